"""The defaults that a table has to beat, timed like any program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuccl._native import Gpu, Knobs, Program
from tuccl.errors import InputError
from tuccl.runtime.baseline.nccl_call import nccl_call, program_once
from tuccl.runtime.executors.executor import (
    MSCCL_LOOP,
    RUNTIME_CHOICE,
    WINDOWS,
    Executor,
    StepLoop,
    Timing,
)
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.lowering.lower import lower
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology

__all__ = [
    "BASELINES",
    "SYMMETRIC_BASELINE",
    "BaselineTiming",
    "baselines_on",
    "collective_stub",
    "time_baseline",
]

BASELINES = ("nccl", "msccl-default", "msccl-default-robust")
SYMMETRIC_BASELINE = "nccl-symmetric"
"""NCCL on buffers registered as symmetric windows: only a real NCCL can be timed so."""


@dataclass(frozen=True)
class BaselineTiming:
    """A default's time for one call; ``description`` says what it ran, like ``Ring/Simple/4ch``.

    ``sms`` is the SMs that it occupies, 0 where that is not known.
    """

    timing: Timing
    description: str
    program: Program
    knobs: Knobs
    loop: StepLoop = MSCCL_LOOP
    sms: int = 0


def baselines_on(executor: Executor) -> tuple[str, ...]:
    """Return the baselines that ``executor`` can stand for: NCCL's kernels run on GPUs only.

    Notes:
        An executor on CPUs moves the bytes of NCCL's rings and trees, but none of its times are
        NCCL's.
    """
    if executor.runs_nccl:
        return (*BASELINES, SYMMETRIC_BASELINE)
    return BASELINES if executor.default_baseline == "nccl" else BASELINES[1:]


def time_baseline(
    executor: Executor,
    topology: Topology,
    kind: str,
    collective: str,
    nbytes: int,
    *,
    root: int = 0,
    repeats: int = 1,
    version: str = NCCL_VERSION,
) -> BaselineTiming:
    """Return the time of a default for a call whose whole array has ``nbytes`` bytes.

    ``nccl`` on nccl-tests is what its NCCL chooses; there alone ``nccl-symmetric`` is the same on
    buffers registered as symmetric windows. Elsewhere ``nccl`` runs what NCCL ``version`` would
    choose for the size, NVLS only in the simulator, since no program moves data so.
    ``msccl-default`` is the paper's baseline, ``msccl-default-robust`` the same mesh with all-pairs
    programs; their knobs are the same for every size. Programs are made once per topology.

    Raises:
        InputError: there is no such default or collective.
        Infeasible: the default has no program for the collective.
    """
    if kind not in (known := baselines_on(executor) if kind == SYMMETRIC_BASELINE else BASELINES):
        raise InputError(
            f"baseline {kind[:30]!r} on {executor.name}: expected one of {', '.join(known)}"
        )
    call = Collective(collective, topology.ranks, root)
    sms = 0
    if kind == SYMMETRIC_BASELINE:
        program, knobs, loop = collective_stub(call), Knobs(), WINDOWS
        description = "NCCL's own, symmetric windows"
    elif kind == "nccl" and executor.runs_nccl:
        program, knobs, loop = collective_stub(call), Knobs(), RUNTIME_CHOICE
        description = "NCCL's own"
    elif kind == "nccl":
        choice = nccl_choice(topology, call.name, nbytes, version, nvls=executor.simulated)
        ran = nccl_call(topology, call, nbytes, choice)
        program, knobs, loop, description = ran.program, ran.knobs, ran.loop, ran.description
        sms = choice.channels  # NCCL's kernels run one thread block a channel
    else:
        program, knobs, description = _msccl(topology, call, kind)
        loop, sms = MSCCL_LOOP, program.threadblocks
    timing = executor.of_defaults.time(
        program, knobs, nbytes, root=root, repeats=repeats, loop=loop
    )
    return BaselineTiming(timing, description, program, knobs, loop, sms)


def collective_stub(call: Collective) -> Program:
    """Return a program without a step: it stands for what the runtime itself runs for ``call``."""
    gpus = [Gpu(rank, 0, 0, 0, []) for rank in range(call.ranks)]
    return Program("nccl", call.name, "Simple", 1, call.ranks, gpus)


def _msccl(topology: Topology, call: Collective, kind: str) -> tuple[Program, Knobs, str]:
    form: Literal["faithful", "robust"] = "faithful" if kind == "msccl-default" else "robust"

    def make() -> tuple[Program, int]:
        schedule = msccl_default(topology, call, form)
        program = lower(schedule, protocol=MSCCL_DEFAULT_KNOBS.protocol, name=kind)
        return program, program.nchannels

    program, channels = program_once(topology, (call, kind), make)
    return program, MSCCL_DEFAULT_KNOBS, f"direct/{MSCCL_DEFAULT_KNOBS.protocol}/{channels}ch"
