"""Verdicts on a job's log: whether every rank loaded and used a plugin, else what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuccl.runtime.jobs.nccl_log import JobLog, Plugin, Process

_VARIABLES = {
    "tuner": "NCCL_TUNER_PLUGIN",
    "profiler": "NCCL_PROFILER_PLUGIN",
    "scheduler": "MSCCL_SCHEDULER",
}
_AGAIN = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING"


@dataclass(frozen=True)
class Verdict:
    """Of one plugin in all processes: how many loaded it, hold a table, and used it.

    ``ok`` is whether it did its work in every process that could show it; ``remedies`` says what to
    do, one line each. The tuner chooses on every rank, but each choice is said once a process.
    """

    plugin: Plugin
    processes: int
    loaded: int
    with_table: int
    used: int
    ok: bool
    remedies: tuple[str, ...]


def verdicts(log: JobLog) -> tuple[Verdict, ...]:
    """Return a verdict for each plugin that the log mentions, the tuner's where none is.

    >>> from tuccl.runtime.jobs.nccl_log import read_log
    >>> verdicts(read_log([]))[0].ok
    False
    """
    known_processes = [p for p in log.processes if p.pid]
    if not known_processes and any(p.torch for p in log.processes):
        return ()  # all ran on CPUs
    processes = known_processes or list(log.processes)
    result = []
    if any(_mentions(p, "tuner") for p in processes) or not _has_msccl(log):
        result.append(_verdict("tuner", processes))
    if any(_mentions(p, "profiler") for p in processes):
        result.append(_verdict("profiler", processes))
    if _has_msccl(log) or any(_mentions(p, "scheduler") for p in log.processes):
        result.append(_scheduler(log))
    return tuple(result)


def _scheduler(log: JobLog) -> Verdict:
    """MSCCL gives its schedulers no logger: tuccl's lines do not say whose they are."""
    processes = [p for p in log.processes if p.msccl]
    tables = sum(len(p.plugins["scheduler"].tables) for p in log.processes)
    refused = [why for p in log.processes for why in p.plugins["scheduler"].refused]
    if not tables and not refused:
        return _built_in(processes)
    events = _events(processes)
    remedies = [f"refused: {why}" for why in dict.fromkeys(refused)]
    remedies += [f"MSCCL: {words}" for words in events]
    if tables < len(processes) and not refused:
        remedies.append(
            f"{len(processes) - tables} of {len(processes)} processes did not load it: ranks that "
            "choose differently hang; hand MSCCL_SCHEDULER and TUCCL_TABLE on to every host"
        )
    used = sum(p.msccl_calls > 0 for p in processes)
    ok = tables >= len(processes) and not _failed(events) and not refused
    return Verdict("scheduler", len(processes), tables, tables, used, ok, tuple(remedies))


def _built_in(processes: list[Process]) -> Verdict:
    """MSCCL's own scheduler, which loads a folder or the fork a list of files."""
    events = _events(processes)
    remedies = [f"MSCCL: {words}" for words in events]
    calls = [p.msccl_calls for p in processes]
    programs = dict.fromkeys(path for p in processes for path in p.msccl_programs)
    source = ", ".join(programs) or "MSCCL_ALGO_DIR"
    is_fork = any(path.endswith(".xml") for path in programs)
    used = sum(n > 0 for n in calls)
    if used:
        remedies.append(f"programs of {source} served {max(calls)} calls of a process")
    elif is_fork:
        remedies.append(f"the fork loaded {source}; it does not log which calls they serve")
    else:
        remedies.append(
            f"no call of a program of {source} is logged: none fits the job's calls, or "
            f"NCCL_DEBUG_SUBSYS lacks INIT (RCCL: COLL); log with {_AGAIN},COLL"
        )
    if 0 < used < len(processes):
        remedies.append(
            f"{len(processes) - used} of {len(processes)} processes ran none: ranks that choose "
            "differently hang; hand MSCCL_ALGO_DIR on to every host"
        )
    served = used if not is_fork else sum(bool(p.msccl_programs) for p in processes)
    ok = 0 < len(processes) == served and not _failed(events)
    return Verdict("scheduler", len(processes), len(processes), 0, used, ok, tuple(remedies))


def _events(processes: list[Process]) -> list[str]:
    each = dict.fromkeys(words for p in processes for words in p.msccl)
    return [words for words in each if words != "initialised"]


def _failed(events: list[str]) -> bool:
    return any(words.startswith(("failed", "off")) for words in events)


def _has_msccl(log: JobLog) -> bool:
    return any(process.msccl for process in log.processes)


def _mentions(process: Process, plugin: Plugin) -> bool:
    report = process.plugins[plugin]
    return bool(report.name or report.missing or report.tables or report.refused)


def _verdict(plugin: Plugin, processes: list[Process]) -> Verdict:
    reports = [process.plugins[plugin] for process in processes]
    loaded = sum(s.is_ours or bool(s.refused) for s in reports)
    tables = sum(bool(s.tables) for s in reports)
    used = sum(bool(s.used) for s in reports)
    shows_use = plugin == "tuner"
    ok = 0 < len(reports) == loaded == tables and (used > 0 or not shows_use)
    remedies = tuple(dict.fromkeys(_remedies(plugin, processes, loaded, tables, used)))
    return Verdict(plugin, len(reports), loaded, tables, used, ok, remedies)


def _remedies(
    plugin: Plugin, processes: list[Process], loaded: int, tables: int, used: int
) -> Iterator[str]:
    variable = _VARIABLES[plugin]
    if not processes:
        yield f"the log has no line of NCCL's: run the job again with {_AGAIN}"
        return
    for process in processes:
        report = process.plugins[plugin]
        for why in report.refused:
            yield f"refused: {why}"
        if report.name and not report.is_ours:
            yield f"another {plugin} was loaded, {report.name}: hand {variable} on to all ranks"
        elif report.missing and not report.is_ours:
            yield (
                f"{_at(process)} found none ({report.missing}): hand {variable} on to all ranks, "
                "with a path that every host sees (tuccl run does)"
            )
    without_plugin = [p for p in processes if not _mentions(p, plugin)]
    if without_plugin and loaded:
        names = ", ".join(_at(p) for p in without_plugin[:4])
        yield (
            f"{len(without_plugin)} of {len(processes)} processes did not load it ({names}): ranks "
            "that choose differently hang; hand the variables on to every host"
        )
    elif without_plugin:
        yield f"NCCL says nothing of a {plugin}: set {variable}, and log with {_AGAIN}"
    without_table = [
        p for p in processes if p.plugins[plugin].is_ours and not p.plugins[plugin].tables
    ]
    if without_table and not any(p.plugins[plugin].refused for p in without_table):
        count = len(without_table)
        yield f"loaded without a table in {count} processes: hand TUCCL_TABLE on to all ranks"
    if tables and not used and plugin == "tuner":
        yield (
            "no choice is logged: no call was of a tuned collective and size, or NCCL_DEBUG_SUBSYS "
            f"lacks TUNING; log with {_AGAIN}"
        )
    symmetric = max((p.symmetric_calls for p in processes), default=0)
    if symmetric and plugin == "tuner":
        yield (
            f"{symmetric} calls of a process ran kernels for symmetric windows, which no tuner "
            "reaches; NCCL_WIN_ENABLE=0 gives them back to it"
        )


def _at(process: Process) -> str:
    return f"{process.host}:{process.pid}" if process.pid else "a process"
