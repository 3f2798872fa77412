"""The defaults that a table has to beat, timed like any program."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuccl._native import Knobs, Program
from tuccl.errors import Infeasible, InputError
from tuccl.runtime.executor import Executor, Timing
from tuccl.runtime.nccl_choice import NcclChoice, nccl_choice
from tuccl.runtime.nccl_constants import MOST_CHANNELS
from tuccl.runtime.nccl_versions import NCCL_VERSION
from tuccl.synth.baselines import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.collective import Collective
from tuccl.synth.lower import lower
from tuccl.synth.nccl import nccl_program, pipeline_pieces
from tuccl.topology import Topology

__all__ = ["BASELINES", "BaselineTiming", "time_baseline"]

BASELINES = ("nccl", "msccl-default", "msccl-default-robust")
_ALGORITHMS = {"Ring": "ring", "Tree": "tree", "SendRecv": "p2p"}


@dataclass(frozen=True)
class BaselineTiming:
    """A default's time for one call; ``chosen`` says what it ran, like ``Ring/Simple/4ch``."""

    timing: Timing
    chosen: str
    program: Program
    knobs: Knobs


def time_baseline(
    executor: Executor,
    topology: Topology,
    kind: str,
    collective: str,
    nbytes: int,
    *,
    root: int = 0,
    version: str = NCCL_VERSION,
) -> BaselineTiming:
    """Return the time of a default for a call whose whole array has ``nbytes`` bytes.

    ``nccl`` runs what NCCL ``version`` would choose for the size, without NVLS, which has no
    program; ``msccl-default`` is the paper's baseline, ``msccl-default-robust`` the same mesh with all-pairs programs; their
    knobs are the same for every size. Programs are made once per topology.

    Raises:
        InputError: there is no such default or collective.
        Infeasible: the default has no program for the collective.
    """
    if kind not in BASELINES:
        raise InputError(f"baseline {kind[:30]!r}: expected one of {', '.join(BASELINES)}")
    call = Collective(collective, topology.ranks, root)
    if kind == "nccl":
        choice = nccl_choice(topology, call.name, nbytes, version, nvls=False)
        program, knobs, chosen = _nccl(topology, call, choice, nbytes)
    else:
        program, knobs, chosen = _msccl(topology, call, kind)
    timing = executor.time(program, knobs, nbytes, root=root)
    return BaselineTiming(timing, chosen, program, knobs)


def _nccl(
    topology: Topology, call: Collective, choice: NcclChoice, nbytes: int
) -> tuple[Program, Knobs, str]:
    """NCCL's choice as a program; fewer channels where a program cannot have as many.

    The knobs say one channel, since NCCL does not keep the paper's thread-channel rule.
    """
    channels = min(choice.channels, MOST_CHANNELS)
    pieces = pipeline_pieces(topology, _ALGORITHMS[choice.algorithm], channels, nbytes)
    key = (call, choice.algorithm, choice.protocol, channels, choice.parts, pieces)
    program, used = _made(
        topology, key, lambda: _nccl_program(topology, call, choice, channels, nbytes)
    )
    knobs = Knobs(choice.protocol, 1, choice.threads)
    reduced = f" (as {used}ch)" if used != choice.channels else ""
    return program, knobs, f"{choice.text}{reduced}"


def _nccl_program(
    topology: Topology, call: Collective, choice: NcclChoice, channels: int, nbytes: int
) -> tuple[Program, int]:
    algorithm = _ALGORITHMS[choice.algorithm]
    while True:
        try:
            program = nccl_program(
                *(topology, call, algorithm, channels, choice.protocol),
                nbytes=nbytes,
                parts=min(choice.parts, channels),
            )
            return program, channels
        except Infeasible:
            if channels == 1:
                raise
            channels //= 2


def _msccl(topology: Topology, call: Collective, kind: str) -> tuple[Program, Knobs, str]:
    form: Literal["faithful", "robust"] = "faithful" if kind == "msccl-default" else "robust"

    def make() -> tuple[Program, int]:
        schedule = msccl_default(topology, call, form)
        program = lower(schedule, protocol=MSCCL_DEFAULT_KNOBS.protocol, name=kind)
        return program, program.nchannels

    program, channels = _made(topology, (call, kind), make)
    return program, MSCCL_DEFAULT_KNOBS, f"direct/{MSCCL_DEFAULT_KNOBS.protocol}/{channels}ch"


_Made = tuple[Program, int]
_PROGRAMS: dict[int, dict[tuple[object, ...], _Made]] = {}


def _made(topology: Topology, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
    """The program of ``key``, made once while the topology lives."""
    if id(topology) not in _PROGRAMS:
        _PROGRAMS[id(topology)] = {}
        weakref.finalize(topology, _PROGRAMS.pop, id(topology), None)
    programs = _PROGRAMS[id(topology)]
    if key not in programs:
        programs[key] = make()
    return programs[key]
