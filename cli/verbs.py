"""The parser, the dispatch to a verb, and the one place where errors become exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from tuccl import __version__
from tuccl.cli import (
    bench,
    bound,
    calibrate,
    compare,
    doctor,
    emulate,
    explain,
    export,
    learn,
    policy,
    probe,
    sketch,
    synth,
    train,
    tune,
    verify,
)
from tuccl.cli import run as start
from tuccl.cli.output import say
from tuccl.errors import TucclError

__all__ = ["BAD_INPUT", "DONE", "NO", "run"]

DONE, NO, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

VERBS = {
    "probe": probe,
    "calibrate": calibrate,
    "bound": bound,
    "sketch": sketch,
    "synth": synth,
    "verify": verify,
    "bench": bench,
    "tune": tune,
    "train": train,
    "policy": policy,
    "compare": compare,
    "explain": explain,
    "export": export,
    "run": start,
    "learn": learn,
    "emulate": emulate,
    "doctor": doctor,
}
# Former names of verbs.
ALIASES = {"explain": ["select"]}


class _OneLineParser(argparse.ArgumentParser):
    """A parser whose usage errors take one line, as every other bad input does."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = _OneLineParser(
        prog="tuccl",
        description="Collectives tuned to the machine: probe, sketch, synthesize, tune, run.",
        epilog="Sizes read 1K, 64M, 1G (powers of two); ranges 1K:1G:x4. "
        "Exit codes: 0 done, 1 the answer is no, 2 bad input.",
    )
    parser.add_argument("--version", action="version", version=f"tuccl {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in VERBS.items():
        verb = verbs.add_parser(
            name,
            aliases=ALIASES.get(name, ()),
            help=module.HELP,
            description=module.HELP,
            epilog=module.EXAMPLE,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def run(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code (0 done, 1 the answer is no, 2 bad input)."""
    if sys.stdout is None:  # closed by the caller: results go nowhere, files are still written
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`): not our error, and stdout must not be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        goes_on = "; --resume goes on" if args.verb in ("tune", "train") else ""
        say(f"tuccl {args.verb}: interrupted; nothing half-written is left{goes_on}")
        return INTERRUPTED
    except TucclError as error:
        say(f"tuccl {args.verb}: {one_line(str(error))}")
        return BAD_INPUT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"tuccl {args.verb}: {where}{error.strerror or error}")
        return BAD_INPUT
    return code


def one_line(message: str) -> str:
    r"""Return ``message`` with line ends and control characters made visible.

    >>> one_line("a\nb")
    'a b'
    """
    flat = " ".join(message.split())
    return "".join(c if c.isprintable() else "?" for c in flat)
