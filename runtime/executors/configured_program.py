"""A program with its knobs, and with its time."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.synth.model.problem import ScheduleChoice


@dataclass(frozen=True)
class ConfiguredProgram:
    """A program with the knobs and the kernel loop that it runs by.

    Attributes:
        program: The program.
        knobs: Its knobs.
        loop: The loop of the kernel that runs it.
        name: A name for tables, like ``Ring/Simple/4ch``.
        plan: What MSCCL++ runs in its place; None: it runs as it is.
    """

    program: Program
    knobs: Knobs
    loop: StepLoop = MSCCL_LOOP
    name: str = ""
    plan: ExecutionPlan | None = None

    def on(self, executor: Executor, nbytes: int, *, root: int = 0, repeats: int = 1) -> Timing:
        """Return its time on ``executor``; raises what `Executor.time` raises."""
        return executor.time(
            self.program, self.knobs, nbytes, root=root, repeats=repeats, loop=self.loop
        )

    def timed(self, timing: Timing, sms: int = 0, nccl: NcclKnobs | None = None) -> TimedProgram:
        """Return it with its time, the SMs that it occupies and the knobs that make NCCL run it."""
        values = self.program, self.knobs, self.loop, self.name, self.plan
        return TimedProgram(*values, timing=timing, sms=sms, nccl=nccl)


@dataclass(frozen=True, kw_only=True)
class TimedProgram(ConfiguredProgram):
    """The same with its time for one call.

    Attributes:
        timing: The time of both placements.
        sms: SMs that it occupies; 0: not known.
        nccl: The knobs that make NCCL run it; None: it is NCCL's own choice, or a program.
        choice: The schedule that a program was made of; None: a default.
    """

    timing: Timing
    sms: int = 0
    nccl: NcclKnobs | None = None
    choice: ScheduleChoice | None = None
