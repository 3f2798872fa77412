"""The parser, the dispatch to a verb, and the one place where errors become exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from tuccl.cli.output import did_you_mean, one_line, say
from tuccl.cli.renamed import RENAMED_VERBS, add_renamed
from tuccl.errors import TucclError

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130

VERBS = {
    "probe": "read this machine, or a description of one, into a topology",
    "calibrate": "fit a machine class of the simulator to measured times",
    "bound": "print the best that any algorithm could do over links and switches, and what limits "
    "it",
    "sketch": "derive ranked communication sketches, with what was pruned and why",
    "groups": "list a job's process groups, which are alike, and what they take at once",
    "synth": "synthesize one program; without --method the fastest in simulation",
    "verify": "prove that a program computes the collective, cannot deadlock and loads",
    "bench": "time a program, or a baseline's own choice per size, in nccl-tests' columns",
    "tune": "search sketch, method and knobs together, into a lookup table",
    "train": "compare the training step with and without a table: methods from BSP to DeAR, "
    "simulated, replayed or run",
    "policy": "train a policy on simulated machines, for `tune --policy` on others",
    "compare": "compare a tuned table with the defaults, size by size",
    "explain": "print the choice of a table for every size, or for one call, and the reason",
    "export": "write the table as files that an unmodified runtime loads",
    "run": "start a program with the table loaded into the runtime",
    "paper": "rebuild figures and tables of the papers: data, a picture, and why they differ",
    "learn": "report what jobs measured with a table; --write merges it into the table",
    "emulate": "run a command on an emulated cluster: a network namespace a host, with the links' "
    "rates",
    "doctor": "list what is installed, what is missing and how to get it",
    "completion": "print the script that completes verbs, options and choices in a shell",
}
"""What each verb does; its module, `tuccl.cli.verbs.VERB`, is imported when it is called."""


class Verb(Protocol):
    """The contract of a module in `tuccl.cli.verbs`."""

    EXAMPLE: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class _OneLineParser(argparse.ArgumentParser):
    """A parser whose usage errors take one line, as every other bad input does."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


class VerbParser(_OneLineParser):
    """The parser of one verb; it imports the verb when it is first used."""

    def load(self) -> None:
        """Add the verb's arguments, once."""
        if self.get_default("run") is not None:
            return
        name = self.prog.rpartition(" ")[2]
        module = cast(Verb, importlib.import_module(f"tuccl.cli.verbs.{name}"))
        module.add_arguments(self)
        add_renamed(self, name)
        self.epilog = f"example:\n  {module.EXAMPLE}"
        self.formatter_class = argparse.RawDescriptionHelpFormatter  # one line, to be copied
        self.set_defaults(run=module.run)

    def parse_known_args(  # type: ignore[override] # its overloads are about the namespace's type
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401
    ) -> tuple[Any, list[str]]:
        """Parse, and refuse in the verb's name what it does not know."""
        self.load()
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self.refusal(unknown[0]))
        return parsed, unknown

    def refusal(self, word: str) -> str:
        """Return why ``word`` is refused, and which option may be meant."""
        if not word.startswith("-"):
            return f"unexpected argument {word[:40]!r}"
        option = word.partition("=")[0]
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        options = [name for action in shown for name in action.option_strings]
        return f"no option {option[:40]}{did_you_mean(option, options)}"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs; that of a verb fills itself when it is used."""
    parser = _OneLineParser(
        prog="tuccl",
        description="Collectives tuned to the machine: probe, sketch, synthesize, tune, run.",
        epilog="Sizes read 1K, 64M, 1G (powers of two); ranges 1K:1G:x4. "
        "Exit codes: 0 done, 1 the answer is no, 2 bad input.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=VerbParser
    )
    for name, summary in VERBS.items():
        verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    return parser


def verb_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb, with its arguments."""
    [verbs] = [
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    parsers = cast(dict[str, VerbParser], dict(verbs.choices))
    for parser in parsers.values():
        parser.load()
    return dict(parsers)


class _Version(argparse.Action):
    """Prints the version, which only this needs to look up."""

    def __call__(
        self, parser: argparse.ArgumentParser, *_: object, option_string: str | None = None
    ) -> NoReturn:
        from tuccl import __version__

        print(f"tuccl {__version__}")
        parser.exit()


def check_verb(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuse a verb that there is not, and name the one that may be meant."""
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb is None or verb in VERBS:
        return
    if verb in RENAMED_VERBS:
        parser.error(f"{verb} is now {RENAMED_VERBS[verb]}")
    parser.error(f"no verb {verb[:40]!r}{did_you_mean(verb, list(VERBS))}")


def run(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code (0 done, 1 the answer is no, 2 bad input)."""
    if sys.stdout is None:  # closed by the caller: results go nowhere, files are still written
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    parser = build_parser()
    check_verb(sys.argv[1:] if argv is None else argv, parser)
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`): not our error, and stdout must not be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt as interrupt:
        if str(interrupt):
            say(f"tuccl {args.verb}: {one_line(str(interrupt))}")
        goes_on = "; continue with --resume" if args.verb in ("tune", "train") else ""
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
