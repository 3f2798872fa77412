"""The time of a default, and what it ran."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.program import Gpu, Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop, Timing
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.synth.model.collective import Collective

__all__ = ["BaselineTiming", "collective_stub"]


@dataclass(frozen=True)
class BaselineTiming:
    """A default's time for one call; ``description`` says what it ran, like ``Ring/Simple/4ch``.

    ``sms`` is the SMs that it occupies, 0 where that is not known; ``nccl`` the knobs that make
    NCCL run it, None where it is NCCL's own choice or a program.
    """

    timing: Timing
    description: str
    program: Program
    knobs: Knobs
    loop: StepLoop = MSCCL_LOOP
    sms: int = 0
    nccl: NcclKnobs | None = None


def collective_stub(call: Collective) -> Program:
    """Return a program without a step: it stands for what the runtime itself runs for ``call``."""
    gpus = [Gpu(rank, 0, 0, 0, []) for rank in range(call.ranks)]
    return Program("nccl", call.name, "Simple", 1, call.ranks, gpus)
