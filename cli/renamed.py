"""Former names of verbs, options and searches: each is refused by a line that names the new one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

RENAMED_VERBS = {"select": "explain"}

_TIMED = {"--launch": "--launch-mode"}
_PEERS = {"--peers": "a benchmark: benchmarks/peers/emulated_peers.py"}
RENAMED_OPTIONS: dict[str, dict[str, str]] = {
    "probe": {
        "--check": "--drift",
        "--root": "--fsroot",
        "--budget": "--max-pairs",
        "--use": "--traffic",
        "--launcher": "--remote-launcher",
        "--host-limit": "--timeout",
    },
    "calibrate": {**_TIMED, "--start": "--machine", "--check": "--no-fit"},
    "synth": {"--steps": "--max-steps", "--improve": "left to --method auto, the default"},
    "verify": {"--run": "--size"},
    "bench": {**_TIMED, **_PEERS},
    "tune": {
        **_TIMED,
        "--from": "--warm-start",
        "--scheduler": "--dask",
        "--local-batch": "--batch",
        "--evaluation-limit": "--evaluation-timeout",
    },
    "policy": {"--agent": "the bandit alone; leave it out"},
    "train": {"--limit": "--time-limit", "--svg": "--picture"},
    "compare": {**_TIMED, **_PEERS},
    "export": {"--hosts": "--nodes"},
    "run": {"--machine": "--topology"},
    "emulate": {"--run": "--emulation"},
}
"""By verb, the new name of each option that had another one."""
RENAMED_SEARCHES = {
    "tpe-halving": "tpe",
    "mraco-literal": "mraco",
    **dict.fromkeys(
        ("random", "grid", "coordinate"),
        "in benchmarks/baseline_searches.py; use descent, the default",
    ),
}


class _Renamed(argparse.Action):
    """Refuses a former name, wherever it stands among the arguments."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """End with the new name."""
        parser.error(f"{option_string} is now {self.const}")


def search_name(text: str) -> str:
    """Return the name of a search, unless it is a former one."""
    if text in RENAMED_SEARCHES:
        raise argparse.ArgumentTypeError(f"{text} is now {RENAMED_SEARCHES[text]}")
    return text


def add_renamed(parser: argparse.ArgumentParser, verb: str) -> None:
    """Make ``parser`` refuse the former names of the options of ``verb``."""
    for old, new in RENAMED_OPTIONS.get(verb, {}).items():
        parser.add_argument(
            old,
            action=_Renamed,
            const=new,
            nargs="?",
            dest=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
