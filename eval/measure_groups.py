"""A job's tables measured under PyTorch, beside Gloo: all groups of a kind call at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from tuccl.emulation import Emulation
from tuccl.groups.concurrent import KindCall
from tuccl.groups.job import JobTables
from tuccl.groups.layout import ProcessGroups
from tuccl.training.launch import run_ranks
from tuccl.tuning import tuned_sizes

GLOO = "gloo"
MEASURED = ("allgather", "allreduce", "alltoall", "reduce-scatter")


MOST_TURNS = 64


class MeasuredCall(msgspec.Struct, frozen=True):
    """A call that all groups of a kind make at once, with those that other kinds make meanwhile.

    Attributes:
        kind: Of the groups.
        collective: The collective.
        nbytes: A group's whole array.
        beside: Calls of other kinds, which are under way when it begins.
        repeats: Of these as many are under way as take as long by Gloo, at most `MOST_TURNS`.
    """

    kind: str
    collective: str
    nbytes: int
    beside: tuple[KindCall, ...] = ()
    repeats: bool = False


class MeasuredGroups(msgspec.Struct, frozen=True):
    """Groups with the calls that ranks time.

    Attributes:
        groups: All groups.
        tables: Folders of jobs' tables, by the name of the arm; `GLOO` is always an arm.
        calls: What is timed, arm by arm in turns.
        rounds: Of each call, after one that is not timed.
    """

    groups: ProcessGroups
    tables: dict[str, str]
    calls: tuple[MeasuredCall, ...]
    rounds: int

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms, Gloo's last."""
        return (*self.tables, GLOO)


class GroupTimes(msgspec.Struct, frozen=True):
    """The measured times of a call.

    Attributes:
        call: The call.
        us: By arm the time of each round, of the slowest rank: from after a barrier, and after it
            has started the calls beside, to the call's end.
        programs: By arm the part of rank 0's calls that ran a table's program, not Gloo.
    """

    call: MeasuredCall
    us: dict[str, list[float]]
    programs: dict[str, float]

    def median_us(self, arm: str) -> float:
        """Return the median of an arm's rounds."""
        return median(self.us[arm])

    def spread(self, arm: str) -> float:
        """Return how far an arm's rounds lie apart, as a part of their median."""
        return (max(self.us[arm]) - min(self.us[arm])) / self.median_us(arm)


def calls_of_job(job: JobTables, sizes: Sequence[int] | None = None) -> tuple[MeasuredCall, ...]:
    """Return the calls of `MEASURED` that a job's tables were tuned for, beside those of the tune.

    Args:
        job: The job.
        sizes: In bytes; None: those that were tuned.
    """
    calls: dict[MeasuredCall, None] = {}
    for entry in job.entries:
        lookup = job.table(entry).lookup
        beside = tuple(KindCall.parse(text) for text in entry.beside)
        for collective in sorted({each.collective for each in lookup.entries} & {*MEASURED}):
            for nbytes in sizes or tuned_sizes(lookup, collective):
                calls[MeasuredCall(entry.kind, collective, nbytes, beside, entry.repeats)] = None
    return tuple(calls)


def measure_groups(
    groups: ProcessGroups,
    tables: Mapping[str, Path],
    calls: Iterable[MeasuredCall],
    location: Emulation | None,
    rounds: int = 5,
    progress: Callable[[int, int, str], None] = lambda done, total, task: None,
) -> list[GroupTimes]:
    """Return the times of calls on ranks of their own, a process each, by tables and by Gloo.

    Args:
        groups: The job's.
        tables: Folders of jobs' tables, by a name for each.
        calls: What is timed.
        location: The emulated hosts; None: side by side on this machine.
        rounds: Timed turns of each call.
        progress: Called with the calls that are done, all of them, and a task.

    Raises:
        TucclError: a rank failed, or values differ from Gloo's.
        Unavailable: PyTorch is not installed.
    """
    folders = {name: str(folder.resolve()) for name, folder in tables.items()}
    job = MeasuredGroups(groups, folders, tuple(calls), rounds)
    found: list[GroupTimes] = []
    ranks = run_ranks("tuccl.eval.group_rank", msgspec.json.encode(job), groups.ranks, location, {})
    for data in ranks:
        found = msgspec.json.decode(data, type=list[GroupTimes])
        progress(len(found), len(job.calls), "groups at once")
    return found
