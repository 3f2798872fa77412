"""``python -m tuccl.eval.group_rank FOLDER RANK``: one rank of `measure_groups`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

import tuccl.torch
from tuccl.errors import TucclError
from tuccl.eval.measure_groups import (
    GLOO,
    MOST_TURNS,
    GroupTimes,
    MeasuredCall,
    MeasuredGroups,
)
from tuccl.files import write_file
from tuccl.training.job import JOB_FILE, RESULTS_FILE
from tuccl.training.ranks.process import run_rank

_ELEMENT_BYTES = 4


class _Rank:
    """A process with its groups of all kinds, once for each arm."""

    def __init__(self, job: MeasuredGroups, rank: int, folder: Path) -> None:
        torch.set_num_threads(1)
        self._job, self._rank, self._folder = job, rank, folder
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=job.groups.ranks,
        )
        self._groups: dict[tuple[str, str], Any] = {}
        for kind in job.groups.kinds:
            for arm in job.arms:
                for members in kind.groups:
                    made = self._group(arm, members)
                    if rank in members:
                        self._groups[kind.name, arm] = made

    def _group(self, arm: str, members: tuple[int, ...]) -> object:
        if arm == GLOO:
            return dist.new_group(list(members), backend="gloo")
        options = tuccl.torch.Options((self._job.tables[arm],))
        return dist.new_group(list(members), backend="tuccl", pg_options=options)

    def run(self) -> None:
        """Time the calls; rank 0 writes the results after each."""
        results = []
        for call in self._job.calls:
            results.append(self._times(call))
            if self._rank == 0:
                write_file(self._folder / RESULTS_FILE, msgspec.json.encode(results))
        dist.barrier()
        dist.destroy_process_group()

    def _times(self, call: MeasuredCall) -> GroupTimes:
        us: dict[str, list[float]] = {arm: [] for arm in self._job.arms}
        before = {arm: self._counts(call.kind, arm) for arm in us}
        turns = self._turns(call)
        for number in range(self._job.rounds + 1):
            values = {}
            for arm, times_us in us.items():
                values[arm], took_us = self._timed(call, arm, turns)
                times_us += [took_us] * (number > 0)
            for arm, mine in values.items():
                if not torch.equal(mine, values[GLOO]):
                    raise TucclError(
                        f"{call.kind}:{call.collective} of {call.nbytes} bytes: the values by "
                        f"{arm} differ from Gloo's"
                    )
        programs = {}
        for arm, (ran, calls) in before.items():
            ran_now, calls_now = self._counts(call.kind, arm)
            programs[arm] = (ran_now - ran) / max(calls_now - calls, 1)
        return GroupTimes(call, us, programs)

    def _counts(self, kind: str, arm: str) -> tuple[int, int]:
        """Calls that ran a program, and all, of this rank's group so far."""
        if arm == GLOO or (kind, arm) not in self._groups:
            return 0, 0
        counts = self._groups[kind, arm].counts
        return counts["program"], counts["program"] + counts["gloo"]

    def _turns(self, call: MeasuredCall) -> list[int]:
        """Turns of each call beside; if it repeats as many as fit, by Gloo's times."""
        if not call.repeats:
            return [1] * len(call.beside)
        _, own_us = self._timed(call, GLOO, [])
        turns = []
        for other in call.beside:
            _, us = self._timed(MeasuredCall(*other), GLOO, [])
            turns.append(min(max(round(own_us / us), 1), MOST_TURNS))
        return turns

    def _timed(self, call: MeasuredCall, arm: str, turns: list[int]) -> tuple[torch.Tensor, float]:
        """Return the values of a call and the us of the slowest rank."""
        run, out = self._call(call.kind, call.collective, call.nbytes, arm)
        others = [self._call(*each, arm)[0] for each in call.beside[: len(turns)]]
        dist.barrier()
        works = [
            other(async_op=True)
            for other, count in zip(others, turns, strict=True)
            for _ in range(count)
        ]
        begin = time.perf_counter()
        run(async_op=False)
        took_us = (time.perf_counter() - begin) * 1e6
        for work in works:
            if work is not None:
                work.wait()
        slowest = torch.tensor([took_us], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return out, float(slowest.item())

    def _call(
        self, kind: str, collective: str, nbytes: int, arm: str
    ) -> tuple[Callable[..., Any], torch.Tensor]:
        """A call of this rank's group on arrays of its own, and its output."""
        group = self._groups.get((kind, arm))
        if group is None:
            return (lambda async_op: None), torch.empty(0)
        ranks = dist.get_world_size(group)
        count = max(nbytes // _ELEMENT_BYTES // ranks, 1)  # of a rank
        whole = torch.arange(count * ranks, dtype=torch.float32) % 1000 + self._rank
        if collective == "allreduce":
            return (lambda async_op: dist.all_reduce(whole, group=group, async_op=async_op)), whole
        out, given = torch.empty_like(whole), whole
        if collective == "allgather":
            given, call = whole[:count].clone(), dist.all_gather_single
        elif collective == "reduce-scatter":
            out, call = torch.empty_like(whole[:count]), dist.reduce_scatter_single
        elif collective == "alltoall":
            call = dist.all_to_all_single
        else:
            raise TucclError(f"{collective}: is not measured here; leave it out")
        return (lambda async_op: call(out, given, group=group, async_op=async_op)), out


def _run(folder: Path, rank: int) -> None:
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=MeasuredGroups)
    _Rank(job, rank, folder).run()


if __name__ == "__main__":
    run_rank(_run)
