"""One rank of a job: it measures calls, gets rank 0's schedules, makes steps in turns, reports."""

from __future__ import annotations

import itertools
import os
import time
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch
import torch.distributed as dist

import tuccl.torch  # noqa: F401 - registers the backend
from tuccl.errors import TucclError
from tuccl.files import write_file
from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.costs import Cost, Costs, server_costs, through
from tuccl.training.job import RESULTS_FILE, Job, MethodResult
from tuccl.training.lossy import is_lossy, lossy_method
from tuccl.training.methods import GRADIENT_METHODS, GradientMethod
from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.ranks.calls import AllreduceCalls, Calls, ScatteredCalls
from tuccl.training.ranks.hook_steps import HookSteps
from tuccl.training.ranks.module_steps import DdpSteps, LocalSteps, ModuleSteps
from tuccl.training.ranks.modules import measured_model, module_of
from tuccl.training.ranks.priority import PriorityCalls
from tuccl.training.ranks.servers import Server, ServerCalls
from tuccl.training.ranks.steps import IdleSteps, PlannedSteps, Steps, TimerSteps
from tuccl.training.timeline import simulate_steps

_TIMEOUT = timedelta(seconds=60)
_LEAST_BYTES, _FACTOR = 64, 4
_REPEATS = 5
_LINE, _LINE_BYTES = 32, 1 << 22
_EQUAL_STEPS = 20
_DDP = "torch-ddp"

Turn = tuple[str, str]


class Rank:
    """One process of the job, in the default group by a table and in another by Gloo."""

    def __init__(self, job: Job, rank: int, folder: Path) -> None:
        """Join the groups; a core of its own where there are enough, else an equal share."""
        torch.set_num_threads(1)
        cores = sorted(os.sched_getaffinity(0))
        if job.kind == "train" and len(cores) > 1:
            os.sched_setaffinity(0, {cores[rank % len(cores)]})
        self._job, self._rank, self._folder = job, rank, folder
        self._works = rank < job.ranks  # else it serves
        store = f"file://{folder / 'store'}"
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=job.processes, timeout=_TIMEOUT
        )
        self._control: Any = dist.new_group(backend="gloo")
        workers = list(range(job.ranks))
        self._picks: Any = dist.new_group(workers, backend="gloo")
        backends = {"table": "tuccl", "gloo": "gloo"}
        self._groups: dict[str, Any] = {
            name: dist.new_group(workers, backend=backends[name]) for name in job.backends
        }
        self._results: dict[Turn, MethodResult] = {}

    def run(self) -> None:
        """Do the whole job; rank 0 writes the results."""
        model = self._job.model or self._measured()
        costs = self._measure(max(round(model.nbytes * self._job.byte_scale), ELEMENT_BYTES))
        schedules = self._schedules(model, costs)
        turns = {turn: self._steps(turn, model, schedule) for turn, schedule in schedules.items()}
        alone_us = model.step_us
        equal: dict[Turn, str] = {}
        if self._job.kind == "train":
            alone_us = median(self._timed(self._local_steps()))
            equal = self._compare(turns)
        begin = time.monotonic()
        for number in range(self._job.rounds):
            spent = time.monotonic() - begin
            if self._agreed(0 < self._job.limit_s < spent and number > 0):
                break
            for turn, steps in turns.items():
                self._note(
                    turn, steps, model, schedules[turn], costs, alone_us, equal.get(turn, "")
                )
            if self._rank == 0:
                results = msgspec.json.encode(list(self._results.values()))
                write_file(self._folder / RESULTS_FILE, results)
        dist.barrier(self._control)
        dist.destroy_process_group()

    def _measured(self) -> Model:
        """Rank 0's measurement of the module's layers, while all ranks measure."""
        mine = b""
        if self._works:
            module, loss = module_of(self._job.factory, self._rank)
            model = measured_model(self._job.factory, module, loss, self._job.batch)
            mine = msgspec.json.encode(model)
        return msgspec.json.decode(self._shared(mine), type=Model)

    def _local_steps(self) -> Steps:
        if not self._works:
            return IdleSteps()
        return LocalSteps(*module_of(self._job.factory, self._rank))

    def _shared(self, mine: bytes) -> bytes:
        """Rank 0's bytes."""
        size = torch.tensor([len(mine)])
        dist.broadcast(size, 0, group=self._control)
        data = torch.zeros(int(size), dtype=torch.uint8)
        if self._rank == 0:
            data = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self._control)
        return bytes(data.tolist())

    def _agreed(self, yes: bool) -> bool:
        return self._shared(b"+" if yes else b"-") == b"+"

    def _slowest(self, times_us: list[float]) -> list[float]:
        """The times of the slowest rank, one by one."""
        times = torch.tensor(times_us, dtype=torch.float64)
        dist.all_reduce(times, op=dist.ReduceOp.MAX, group=self._control)
        return [float(each) for each in times]

    def _measure(self, most_bytes: int) -> dict[str, Costs]:
        """Measure calls by backend, of sizes up to all gradients; backends go in turns."""
        sizes = [most_bytes]
        while sizes[-1] > _LEAST_BYTES:
            sizes.append(max(sizes[-1] // _FACTOR, _LEAST_BYTES))
        names = ("allreduce", *(("reduce-scatter", "allgather") if self._scatters else ()))
        points: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for call, nbytes in itertools.product(names, reversed(sizes)):
            for backend, us in self._measured_us(call, nbytes).items():
                points.setdefault((backend, call), []).append((nbytes, us))
        return {
            backend: Costs(
                {
                    **{call: through(points[backend, call]) for call in names},
                    **self._server_costs(points[backend, "allreduce"]),
                },
                points[backend, "allreduce"][0][1],
                "measured",
            ).scaled(self._job.byte_scale)
            for backend in self._groups
        }

    def _server_costs(self, allreduces: list[tuple[int, float]]) -> dict[str, Cost]:
        """The stages of servers, at the rate that the largest all-reduce reached.

        Start-ups do not add up: messages to several servers are under way at once.
        """
        nbytes, us = allreduces[-1]
        gbs, ranks = nbytes / us / 1e3, self._job.ranks
        if not self._job.colocated:  # else pushes and answers share each way
            gbs *= 2 * (ranks - 1) / ranks
        return server_costs(None, gbs, gbs, ranks, len(self._job.serving), 0.0)

    @property
    def _scatters(self) -> bool:
        return any(
            GRADIENT_METHODS[m].name == "dear" for m in self._job.methods if m in GRADIENT_METHODS
        )

    def _measured_us(self, call: str, nbytes: int) -> dict[str, float]:
        """The time of a call by each backend.

        Calls of a step stand in line and their start-ups overlap: they are timed so, up to
        _LINE_BYTES in all.
        """
        ranks = self._job.ranks
        share = -(-nbytes // ELEMENT_BYTES // ranks)
        count = share * ranks if call != "allreduce" else -(-nbytes // ELEMENT_BYTES)
        line = max(min(_LINE, _LINE_BYTES // nbytes), 1)
        buffers = [torch.zeros(count) for _ in range(line)]
        times: dict[str, list[float]] = {name: [] for name in self._groups}
        for _, name in itertools.product(range(_REPEATS + 1), self._groups):
            dist.barrier(self._control)
            begin = time.perf_counter()
            for work in [
                self._call(call, b, share, self._groups[name]) for b in buffers if self._works
            ]:
                work.wait()
            times[name].append((time.perf_counter() - begin) * 1e6 / len(buffers))
        return {name: median(self._slowest(each)[1:]) for name, each in times.items()}

    def _call(self, call: str, buffer: torch.Tensor, share: int, group: Any) -> Any:  # noqa: ANN401
        if call == "allreduce":
            return dist.all_reduce(buffer, group=group, async_op=True)
        mine = buffer[self._rank * share :][:share]
        if call == "allgather":
            return dist.all_gather_single(buffer, mine, group=group, async_op=True)
        return dist.reduce_scatter_single(mine, buffer, group=group, async_op=True)

    def _schedules(self, model: Model, costs: dict[str, Costs]) -> dict[Turn, BucketSchedule]:
        """Rank 0's schedules by method and backend, each for the costs that it measured."""
        turns = [
            (method, name)
            for method, name in itertools.product(self._job.methods, self._groups)
            # Servers' messages are no collectives, so no table has them.
            if name == "gloo"
            or method not in GRADIENT_METHODS
            or not GRADIENT_METHODS[method].is_server
        ]
        mine = [_method(method).schedule(model, costs[name]) for method, name in turns]
        shared = self._shared(msgspec.json.encode(mine))
        schedules = msgspec.json.decode(shared, type=list[BucketSchedule])
        return dict(zip(turns, schedules, strict=True))

    def _steps(self, turn: Turn, model: Model, schedule: BucketSchedule) -> Steps:
        method, name = turn
        job, schedule = self._job, schedule.scaled(self._job.byte_scale)
        is_server = method in GRADIENT_METHODS and GRADIENT_METHODS[method].is_server
        if not self._works:
            return Server(schedule, *self._roles()) if is_server else IdleSteps()
        if method == _DDP:
            return DdpSteps(*module_of(job.factory, self._rank), self._groups[name])
        if is_lossy(method):
            return HookSteps(method, *module_of(job.factory, self._rank), self._groups[name])
        calls = self._calls(schedule, self._groups[name], is_server)
        if job.kind == "replay":
            return TimerSteps(model, schedule, calls)
        return ModuleSteps(*module_of(job.factory, self._rank), schedule, calls, job.ranks)

    def _roles(self) -> tuple[Any, int, range, range]:
        return dist.group.WORLD, self._rank, self._job.serving, range(self._job.ranks)

    def _calls(self, schedule: BucketSchedule, group: Any, is_server: bool) -> Calls:  # noqa: ANN401
        if is_server:
            return ServerCalls(schedule, *self._roles())
        if schedule.late:
            return ScatteredCalls(schedule, group, self._rank, self._job.ranks)
        if schedule.order == "priority":
            return PriorityCalls(schedule, group, self._picks, self._rank)
        return AllreduceCalls(schedule, group)

    def _timed(self, steps: Steps, schedule: BucketSchedule | None = None) -> list[float]:
        """The times of a turn's timed steps on the slowest rank.

        A warm-up step precedes them; where steps overlap, one more follows, for the last one's end.
        """
        after = 0 if schedule is None or schedule.barrier else 1
        times = steps.run(self._job.steps + 1 + after)
        return self._slowest(times)[1 : self._job.steps + 1]

    def _compare(self, turns: dict[Turn, Steps]) -> dict[Turn, str]:
        """Say whether parameters after some steps are those of DDP over Gloo, by turn."""
        gloo: Steps = IdleSteps()
        if self._works:
            gloo = DdpSteps(*module_of(self._job.factory, self._rank), self._groups["gloo"])
        every = {("", ""): gloo, **turns}
        weights: dict[Turn, list[torch.Tensor]] = {}
        for turn, steps in every.items():
            steps.run(_EQUAL_STEPS)
            module = steps.module if isinstance(steps, LocalSteps | ModuleSteps) else None
            trained = module.parameters() if module is not None else ()
            weights[turn] = [p.detach().clone() for p in trained]
        reference = weights.pop(("", ""))
        verdicts = {}
        for turn, mine in weights.items():
            pairs = list(zip(mine, reference, strict=True))
            bitwise = all(torch.equal(a, b) for a, b in pairs)
            near = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
            worst = self._slowest([0.0 if bitwise else 1.0 if near else 2.0])[0]
            verdicts[turn] = ("bitwise", "rounding", "no")[int(worst)]
        return {turn: verdict for turn, verdict in verdicts.items() if not is_lossy(turn[0])}

    def _loss(self, steps: Steps) -> float:
        """The mean over ranks of the loss of the first step's batches, by the present weights."""
        if self._job.kind == "replay":
            return 0.0
        mine = torch.zeros(1, dtype=torch.float64)
        if isinstance(steps, LocalSteps | ModuleSteps):
            with torch.no_grad():
                mine += steps.loss(0).double()
        dist.all_reduce(mine, group=self._control)
        return float(mine) / self._job.ranks

    def _note(
        self,
        turn: Turn,
        steps: Steps,
        model: Model,
        schedule: BucketSchedule,
        costs: dict[str, Costs],
        alone_us: float,
        equal: str,
    ) -> None:
        """Make a turn of steps, and add their times to what is known of the method."""
        method, name = turn
        if self._job.kind == "replay":
            self._check_sums(steps)
        before = self._programs(name)
        times = self._timed(steps, schedule)
        made = self._job.steps + (1 if schedule.barrier else 2)
        programs = (self._programs(name) - before) // made
        known = self._results.get(turn)
        every = (*(known.steps_us if known else ()), *times)
        lossy = is_lossy(method)
        calls = steps.calls_made if isinstance(steps, LocalSteps) else 0
        calls = calls or len(schedule.buckets) * len(schedule.calls)
        trained = known.trained_steps if known else _EQUAL_STEPS
        self._results[turn] = MethodResult(
            method=method,
            backend=name,
            steps_us=every,
            exposed_us=max(median(every) - alone_us, 0.0),
            alone_us=alone_us,
            predicted_us=0.0 if lossy else simulate_steps(model, schedule, costs[name]).step_us,
            calls=(programs, max(calls - programs, 0)),
            buckets=tuple(bucket.nbytes for bucket in schedule.buckets),
            c2c=costs[name].of("allreduce")(model.nbytes) / alone_us,
            spans=tuple(steps.spans()),
            model=model,
            equal=equal,  # type: ignore[arg-type]
            loss=self._loss(steps),
            trained_steps=trained + made if self._job.kind == "train" else 0,
        )

    def _programs(self, name: str) -> int:
        group = self._groups[name]
        return int(group.counts["program"]) if name == "table" and self._works else 0

    def _check_sums(self, steps: Steps) -> None:
        """Make a step whose sums are known.

        Raises:
            TucclError: one was wrong.
        """
        buffers = steps.calls.buffers if isinstance(steps, PlannedSteps) else []
        for buffer in buffers:
            buffer.fill_(1.0)
        steps.run(1)
        wrong = next((b for b in buffers if not bool((b == self._job.ranks).all())), None)
        if wrong is not None:
            raise TucclError(f"a bucket of {wrong.nbytes} bytes was reduced wrongly")
        for buffer in buffers:
            buffer.zero_()


def _method(name: str) -> GradientMethod:
    return (
        lossy_method(name) if is_lossy(name) else GRADIENT_METHODS["ddp" if name == _DDP else name]
    )
