"""The stages of a tune: a part of the machine, some sizes, those between them, the first again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.tuning.dask_workers import search_on_dask
from tuccl.tuning.small_part import (
    Nomination,
    fine_budget,
    least_budget,
    levels,
    part_budget,
    part_tasks,
    small_part,
)
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.tuner import TaskResult
from tuccl.tuning.work import Progress, Work, report_states
from tuccl.tuning.workers import search_in_processes

_MOST_RANKS = 32  # of which each size is searched by itself
_WORTH = 0.99  # of the first result's time: what a second one is to be below

Tasks = Sequence[tuple[str, int, int]]
"""A collective, a size in bytes and a budget each."""


def part_of(work: Work) -> Work | None:
    """Return what nominates candidates for ``work``, without its tasks; None: nothing does.

    Raises:
        InputError: the options name a part that cannot be.
    """
    if (split := small_part(work.topology, work.options)) is None:
        return None
    part, options = split
    if (executor := work.executor.of_part(part)) is not None:
        return Work(executor, part, options, work.out, every_method=True)
    if work.options.part:
        raise InputError(f"part: {work.executor.label} is not timed in parts; leave it out")
    return None


@dataclass
class Stages:
    """The searches of ``work``, whose results it gathers: each nominates what the next tries.

    Progress counts an evaluation of the whole machine as often as it has the part's ranks, since it
    takes longer.
    """

    work: Work
    part: Work | None
    studies: Studies
    progress: Progress
    deadline: float
    results: list[TaskResult] = field(default_factory=list)
    _done: int = 0
    _total: int = 0

    def search(self, tasks: Tasks) -> bool:
        """Search ``tasks``; False: interrupted, and some were still to be searched, or again."""
        work, part, ranks = self.work, self.part, self.work.topology.ranks
        coarse, *fine = levels(tasks) if has_coarse_sizes(work) else [list(tasks)]
        nominees: Tasks = []
        weight = 1
        if part is not None:
            nominees = part_tasks(coarse, ranks, part.topology.ranks)
            coarse = [(name, n, part_budget(budget, ranks)) for name, n, budget in coarse]
            fine = [
                [(name, n, part_budget(budget, ranks)) for name, n, budget in level]
                for level in fine
            ]
            weight = max(ranks // part.topology.ranks, 1)
        fine = [
            [(name, n, fine_budget(budget, last=level is fine[-1])) for name, n, budget in level]
            for level in fine
        ]
        stages = [coarse, *fine]
        if part is None:  # else a part has nominated them
            stages.append(
                [(name, n, least_budget(b)) for tasks in stages[:-1] for name, n, b in tasks]
            )
        self._total = _budget(nominees) + weight * sum(map(_budget, stages))
        if part is not None:
            seconds = part.options.seconds
            until = time.monotonic() + seconds if seconds else self.deadline
            if not self._search(part, nominees, 1, until):
                return False
            work.nominations = nominations_of(part, _results(part, self.studies))
        complete = True
        left = [level for level in stages if level]
        while complete and left:
            share = _budget(left[0]) / sum(map(_budget, left))
            now = time.monotonic()
            complete = self._search(work, left.pop(0), weight, now + (self.deadline - now) * share)
            self.results = _faster([*self.results, *_results(work, self.studies)])
            work.nominations = nominations_of(work, self.results)
        order = {(name, nbytes): place for place, (name, nbytes, _) in enumerate(tasks)}
        self.results.sort(key=lambda r: order[r.task.collective, r.task.nbytes])
        return complete

    def _search(self, work: Work, tasks: Tasks, weight: int, deadline: float) -> bool:
        """Search the tasks of one stage, here or by workers; False: interrupted."""
        done, prefix = self._done, ""
        if work is not self.work:
            prefix = f"{len(work.topology.hosts)} hosts: "

        def report(count: int, total: int, what: str) -> None:
            now = done + weight * count
            text = "next" if what == "done" and now < self._total else what
            self.progress(now, self._total, prefix + text)

        try:
            report(0, 0, "the default")
            work.add_tasks(tasks)
            queue = work.queue(self.studies)
            if work.options.scheduler is not None:
                search_on_dask(work, queue, self.studies, report, deadline)
            elif work.options.workers > 1:
                search_in_processes(work, queue, self.studies, report, deadline)
            else:
                work.search(queue, self.studies, report, deadline)
        except KeyboardInterrupt:
            return False
        report_states(queue.states(), report)
        self._done += weight * _budget(tasks)
        return True


def has_coarse_sizes(work: Work) -> bool:
    """Return whether some sizes nominate what is tried at others: of many ranks, in simulation."""
    by_size = work.options.part == 0 or not work.executor.deterministic
    return not by_size and work.topology.ranks > _MOST_RANKS


def nominations_of(work: Work, results: Sequence[TaskResult]) -> tuple[Nomination, ...]:
    """Return the best points of each result."""
    ranks = work.topology.ranks
    return tuple(Nomination(ranks, r.task.collective, r.task.nbytes, r.points) for r in results)


def _faster(results: Sequence[TaskResult]) -> list[TaskResult]:
    """Return a result of each size, sizes rising: the first, unless the second is worth more.

    The second search of a size times no default knobs and fewer placements. Evaluations are those
    of both.
    """
    found: dict[tuple[str, int], TaskResult] = {}
    for result in results:
        call = result.task.collective, result.task.nbytes
        before = found.setdefault(call, result)
        if before is not result:
            better = result if _best_us(result) < _WORTH * _best_us(before) else before
            both = before.evaluations + result.evaluations
            found[call] = replace(better, evaluations=both)
    return sorted(found.values(), key=lambda r: r.task)


def _best_us(result: TaskResult) -> float:
    """Return the least time of all candidates, where none has one the default's."""
    stats = [candidate.stats for entry in result.entries for candidate in entry.candidates]
    return min((each.median_us for each in stats if each), default=result.default_us)


def _budget(tasks: Tasks) -> int:
    return sum(budget for _, _, budget in tasks)


def _results(work: Work, studies: Studies) -> list[TaskResult]:
    """The results of the tasks that are finished."""
    states = work.queue(studies).states()
    results = [states[task].result for task in work.tasks]
    try:
        return [msgspec.json.decode(each, type=TaskResult) for each in results if each is not None]
    except msgspec.DecodeError as error:
        raise InputError(
            f"{studies.where}: holds a result of another release ({str(error)[:80]}); "
            "remove the study, or name another table"
        ) from None
