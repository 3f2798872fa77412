"""The plugins that runtimes load: where they are, and their answers to queries."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuccl.errors import InputError, Unavailable
from tuccl.installation import built_folder
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.store import load_table
from tuccl.runtime.table.text import table_text

Kind = Literal["tuner", "profiler", "scheduler"]
# The tuner's file is the profiler's too: what one measures the other chooses by, in one process.
PLUGINS: Mapping[Kind, str] = {
    "tuner": "libnccl-tuner-tuccl.so",
    "profiler": "libnccl-tuner-tuccl.so",
    "scheduler": "libtuccl-msccl-scheduler.so",
}
_HOST = "tuccl-plugin-host"
_ANSWER_S = 60


@dataclass(frozen=True)
class TunerCall:
    """A call as NCCL passes it to a tuner: ``nbytes`` is the whole array."""

    collective: str
    nbytes: int
    operations: int = 1
    registered: bool = False


@dataclass(frozen=True)
class SchedulerCall:
    """A call as an MSCCL runtime passes it to a scheduler: ``count`` is the API's, per rank."""

    collective: str
    count: int
    element_bytes: int = 4
    reduction: str = "sum"
    root: int = 0
    in_place: bool = False
    rank: int = 0


def plugin_path(kind: Kind) -> Path:
    """Return the path of a plugin's shared object.

    >>> plugin_path("tuner").name
    'libnccl-tuner-tuccl.so'

    Raises:
        Unavailable: this installation was built without it.
    """
    path = _folder() / PLUGINS[kind]
    if not path.is_file():
        raise Unavailable(f"{path}: missing; install tuccl again, it is built with it")
    return path


def plugin_paths() -> dict[Kind, Path]:
    """Return the plugins that are there, by kind."""
    return {
        kind: _folder() / name for kind, name in PLUGINS.items() if (_folder() / name).is_file()
    }


def plugin_environment(table: Path) -> dict[str, str]:
    """Return the variables that load ``table`` into NCCL (its own choices) or MSCCL (programs).

    The plugins refuse another table or another machine's (docs/reference/plugins.md).

    Raises:
        InputError: the table is bad.
        Unavailable: this installation was built without the plugins.
    """
    loaded = load_table(table).lookup
    asked_for = {
        "TUCCL_TABLE": str(table.resolve()),
        "TUCCL_SIGNATURE": loaded.signature,
        "TUCCL_TABLE_SHA256": table_text(loaded).split()[-1].decode(),
    }
    if loaded.dialect != "nccl":
        return {"MSCCL_SCHEDULER": str(plugin_path("scheduler")), **asked_for}
    profiler = str(plugin_path("profiler"))
    return {**tuner_variables(loaded), "NCCL_PROFILER_PLUGIN": profiler, **asked_for}


def tuner_variables(table: LookupTable) -> dict[str, str]:
    """Return the variable that has NCCL call the tuner plugin; none for a table of programs alone.

    Raises:
        Unavailable: this installation was built without the plugins.
    """
    if table.dialect == "nccl" or any(c.nccl is not None for c in table.candidates):
        return {"NCCL_TUNER_PLUGIN": str(plugin_path("tuner"))}
    return {}


def ask_tuner(
    table: Path, version: int, ranks: int, hosts: int, calls: Sequence[TunerCall]
) -> list[NcclKnobs | None]:
    """Return what the tuner plugin itself answers to ``calls``; None: NCCL is left alone.

    The shared object is loaded in a process of its own and called through ``version`` (2 to 6) of
    its interface, for a communicator of ``ranks`` on ``hosts``, with nothing forbidden.

    Raises:
        InputError: a call cannot be queried, or the plugin broke a rule of its interface.
        Unavailable: the plugin or its host is not installed.
    """
    arguments = ["tuner", str(plugin_path("tuner")), str(version), str(ranks), str(hosts)]
    lines = [f"{c.collective} {c.nbytes} {c.operations} {c.registered:d}" for c in calls]
    return [_knobs(answer) for answer in _answers(arguments, lines, table)]


def ask_scheduler(
    table: Path, ranks: int, calls: Sequence[SchedulerCall], nccl_version: int = 21903
) -> list[Path | None]:
    """Return the program that the scheduler plugin itself picks for each of ``calls``, or None.

    ``nccl_version`` is the runtime's as ncclGetVersion gives it: from 2.20 on (22000) the plugin
    refuses, since those never connect its programs (docs/reference/msccl.md).

    Raises:
        InputError: a call cannot be queried, or the plugin broke a rule of its interface.
        Unavailable: the plugin or its host is not installed.
    """
    arguments = ["scheduler", str(plugin_path("scheduler")), str(nccl_version), str(ranks)]
    lines = [
        f"{c.collective} {c.count} {c.element_bytes} {c.reduction} {c.root} "
        f"{'in-place' if c.in_place else 'out-of-place'} {c.rank}"
        for c in calls
    ]
    answers = _answers(arguments, lines, table)
    return [None if answer == "-" else Path(answer) for answer in answers]


def _knobs(answer: str) -> NcclKnobs | None:
    algorithm, protocol, channels, chunk_bytes = answer.split(" ")
    if algorithm == "-":
        return None
    return NcclKnobs(
        algorithm=algorithm,  # type: ignore[arg-type]
        protocol=protocol,  # type: ignore[arg-type]
        channels=int(channels),
        chunk_bytes=int(chunk_bytes),
    )


def _answers(arguments: Sequence[str], lines: Iterable[str], table: Path) -> list[str]:
    """One line of answer for each query, from the plugin in a process of its own."""
    queries = list(lines)
    host = _folder() / _HOST
    environment = {k: v for k, v in os.environ.items() if k != "TUCCL_BOOTSTRAP"}  # it is alone
    environment["TUCCL_TABLE"] = str(table.resolve())
    try:
        finished = subprocess.run(
            [str(host), *arguments],
            input="".join(f"{line}\n" for line in queries),
            capture_output=True,
            text=True,
            env=environment,
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{host}: cannot be run: {error}") from None
    answers = finished.stdout.splitlines()
    if finished.returncode != 0 or len(answers) != len(queries):
        why = finished.stderr.strip().splitlines()[-1:] or ["no answer"]
        raise InputError(f"{arguments[1]}: {why[0][:300]}")
    return answers


def _folder() -> Path:
    return built_folder("plugins")
