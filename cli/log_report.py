"""``tuccl doctor --log``: what a job's log proves of the plugins, by rank and communicator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tuccl.cli.output import columns, print_json
from tuccl.errors import InputError
from tuccl.runtime.jobs import (
    JobLog,
    LoggedCommunicator,
    Process,
    TorchGroup,
    Verdict,
    read_lines,
    read_log,
    verdicts,
)

_MOST_BYTES = 1 << 30
_MOST_CHOICES = 8


def judge_log(path: str, *, as_json: bool) -> int:
    """Print what the log proves; 1 where a plugin did not do its work on every rank.

    Raises:
        InputError: the file cannot be read.
    """
    log = read_log(_lines(path))
    found = verdicts(log)
    groups = [group for process in log.processes for group in process.torch]
    done = bool(found or groups) and all(verdict.ok for verdict in found)
    done = done and all(group.counts.get("program") for group in groups)
    if as_json:
        ranks = [_rank(process, one) for process in log.processes for one in _each(process)]
        found_in_log = {"lines": log.lines, "plugins": found, "ranks": ranks, "torch": groups}
        print_json({"ok": done, **found_in_log})
    else:
        print(
            "\n".join([*_summary(found), *_torch(groups), *_by_communicator(log), *_choices(log)])
        )
    return 0 if done else 1


def _lines(path: str) -> Iterator[str]:
    if path == "-":
        yield from read_lines(sys.stdin)
        return
    if not Path(path).is_file():
        what = "not a regular file" if Path(path).exists() else "no such file"
        raise InputError(f"{path}: {what}; expected a job's output with NCCL_DEBUG=INFO")
    if Path(path).stat().st_size > _MOST_BYTES:
        raise InputError(f"{path}: over {_MOST_BYTES >> 20} MiB; cut out one run")
    with Path(path).open(errors="replace") as file:
        yield from read_lines(file)


def _each(process: Process) -> list[LoggedCommunicator | None]:
    return [*process.communicators] or [None]


def _rank(process: Process, one: LoggedCommunicator | None) -> dict[str, object]:
    return {
        "host": process.host,
        "pid": process.pid,
        "communicator": one,
        "msccl": list(process.msccl),
        **{
            plugin: {
                "loaded": said.name,
                "version": said.version,
                "table": one is not None and one.ranks in said.tables,
                "used": list(said.used),
                "refused": list(said.refused),
            }
            for plugin, said in process.plugins.items()
        },
    }


def _summary(found: tuple[Verdict, ...]) -> Iterator[str]:
    for v in found:
        state = "loaded and used" if v.ok and v.used else "loaded" if v.ok else "NOT in order"
        counts = f"{v.loaded} of {v.processes} processes loaded it, {v.with_table} hold a table"
        used = f", {v.used} used it" if v.plugin != "scheduler" else ""
        yield f"{v.plugin}: {state}; {counts}{used}"
        yield from (f"  {remedy}" for remedy in v.remedies)


def _torch(groups: list[TorchGroup]) -> Iterator[str]:
    for group in groups:
        each = ", ".join(f"{count} by {name}" for name, count in group.counts.items())
        yield f"torch: a group of {group.ranks} ranks made its calls {each}"
        if not group.counts.get("program"):
            yield "  no call ran by a program: tune the collectives and sizes that the job calls"


def _by_communicator(log: JobLog) -> list[str]:
    rows = []
    for (comm_id, ranks), members in log.communicators().items():
        tuner = sum(ranks in process.plugins["tuner"].tables for process, _ in members)
        timed = sum(ranks in process.plugins["profiler"].tables for process, _ in members)
        seen = f"{len({one.rank for _, one in members})} of {ranks}"
        rows.append([comm_id or "-", seen, str(tuner), str(timed)])
    header = ["communicator", "ranks seen", "with a tuner's table", "with a profiler's"]
    return ["", columns(header, rows)] if rows else []


def _choices(log: JobLog) -> list[str]:
    used = [u for process in log.processes for said in process.plugins.values() for u in said.used]
    each = list(dict.fromkeys(used))
    more = [f"and {len(each) - _MOST_CHOICES} more"] if len(each) > _MOST_CHOICES else []
    return ["", *each[:_MOST_CHOICES], *more] if each else []
