"""MSCCL++'s executor on real GPUs as an executor: programs run as plans."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

from tuccl.errors import InputError, Unavailable
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.executors.measure import check_ranks
from tuccl.runtime.executors.plan_sim import (
    PLAN_GRID,
    PLAN_KNOBS,
    plan_knobs,
    program_plan,
    takes_in_place,
)
from tuccl.runtime.mscclpp.run import DATATYPES, ExecutorTest, run_executor_test
from tuccl.synth.mscclpp.knobs import ALIGNMENT

_MOST_LEAST = (1 << 31) - 1  # bytes: the loader reads 32 bits of a plan's least size
_CHECKED = {  # the collectives whose data the script checks, by the names in plans
    "allgather": "allgather",
    "allreduce": "allreduce",
    "alltoall": "alltoall",
    "reducescatter": "reduce-scatter",
}


class MscclppExecutor(Executor):
    """Runs executor_test.py once for each time, of one plan, which checks the data first."""

    name = "mscclpp"
    runs_plans = True
    full_effort = 3  # a repeat starts a job
    default_baseline = "msccl-default"  # the script runs plans, and no NCCL

    def __init__(self, test: ExecutorTest, ranks: int, hosts: int, location: str) -> None:
        """Prepare to run on ``ranks`` GPUs of ``hosts`` hosts at ``location`` (for the label).

        Raises:
            InputError: the script has no such datatype.
        """
        if test.datatype not in DATATYPES:
            raise InputError(
                f"datatype {test.datatype[:20]!r}: executor_test.py has {', '.join(DATATYPES)}"
            )
        self._test = test
        self.ranks = ranks
        self._hosts = hosts
        self._location = location
        self._work: Path | None = None

    @property
    def label(self) -> str:
        """That it measures, with which script, and on what."""
        return f"measured by MSCCL++'s executor ({self._test.script}) on {self._location}"

    @property
    def supported_knobs(self) -> KnobGrid:
        """The knobs that change a plan."""
        return PLAN_GRID

    def pinned_knobs(self) -> tuple[str, ...]:
        """Return what a search's knobs are in plans."""
        return (PLAN_KNOBS,)

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        """Return the measured time of the plan that ``program`` becomes.

        Each of ``repeats`` is a job of its own, its time the slowest rank's mean.

        Raises:
            Infeasible: MSCCL++ cannot run it.
            InputError: the run failed, or the data were wrong.
            Stuck: the run took too long, and was ended.
            Unavailable: the script or its launch is not what it should be.
        """
        check_ranks(program, self.ranks)
        if loop != MSCCL_LOOP:
            raise InputError(f"program {program.name[:40]!r}: NCCL's own kernels run it, no plan")
        if nbytes % (step := program.nchunks * ALIGNMENT):
            raise InputError(f"{nbytes} bytes: a plan of the program takes multiples of {step}")
        times: list[tuple[float, ...]] = []
        blocks = 0
        for in_place in (False, True):
            if not (takes_in_place(program) if in_place else program.out_of_place):
                times.append(())
                continue
            plan = program_plan(
                program,
                plan_knobs(knobs),
                (min(nbytes, _MOST_LEAST), nbytes),
                hosts=self._hosts,
                in_place=in_place,
                root=root,
                name="tuccl",
            )
            blocks = max(blocks, *(len(gpu.threadblocks) for gpu in plan.gpus))
            times.append(self._times(plan, nbytes, repeats))
        return _timing(times[0], times[1], self._test, blocks)

    def time_plan(self, plan: ExecutionPlan, nbytes: int, *, repeats: int = 1) -> Timing:
        """Return the measured time of a verified ``plan`` on the whole array of ``nbytes`` bytes.

        Raises:
            InputError: the plan is for other ranks; and what `time` raises.
        """
        if len(plan.gpus) != self.ranks:
            raise InputError(
                f"plan {plan.name[:60]!r}: for {len(plan.gpus)} ranks, not {self.ranks}"
            )
        times = self._times(plan, nbytes, repeats)
        blocks = max(len(gpu.threadblocks) for gpu in plan.gpus)
        if plan.inplace:
            return _timing((), times, self._test, blocks)
        return _timing(times, (), self._test, blocks)

    def _times(self, plan: ExecutionPlan, nbytes: int, repeats: int) -> tuple[float, ...]:
        collective = _CHECKED.get(plan.collective)
        if collective is None:
            raise InputError(
                f"{plan.collective}: executor_test.py checks {', '.join(_CHECKED)} alone"
            )
        with tempfile.TemporaryDirectory(dir=self._folder(), prefix="plan-") as folder:
            path = Path(folder) / "tuccl.json"
            path.write_text(plan.json())
            path.chmod(0o644)
            Path(folder).chmod(0o755)
            return tuple(
                run_executor_test(
                    self._test,
                    path,
                    self.ranks,
                    nbytes,
                    in_place=plan.inplace,
                    collective=collective,
                )
                for _ in range(repeats)
            )

    def close(self) -> None:
        """Take the work folder away, if there is one."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
        self._work = None

    def _folder(self) -> Path:
        if self._work is None:
            shared = self._test.shared
            try:
                shared.mkdir(parents=True, exist_ok=True)
                self._work = Path(tempfile.mkdtemp(dir=shared, prefix="mscclpp-"))
                self._work.chmod(0o755)
            except OSError as error:
                raise Unavailable(f"{shared}: {error.strerror}; see --shared") from None
        return self._work


def _timing(
    out_of_place: tuple[float, ...], in_place: tuple[float, ...], test: ExecutorTest, blocks: int
) -> Timing:
    if not out_of_place and not in_place:
        raise InputError("the program is right in no placement that a plan can have")
    repeats = len(out_of_place or in_place)
    return Timing(
        median(out_of_place) if out_of_place else None,
        median(in_place) if in_place else None,
        out_of_place or in_place,
        "mscclpp",
        wrong=0,
        samples_us_ip=in_place,
        runs=test.iterations * test.graphs * repeats,
        sms=blocks,
    )
