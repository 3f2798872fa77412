"""The defaults that a table has to beat, timed like any program."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from tuccl.errors import InputError, Stuck
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import RUNTIME_CHOICE, WINDOWS, Executor
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology

if TYPE_CHECKING:
    from tuccl.runtime.executors.configured_program import ConfiguredProgram, TimedProgram

BASELINES = ("nccl", "nccl-best", "msccl-default", "msccl-default-robust", "msccl-best")
BEST_BASELINES = ("nccl-best", "msccl-best")
"""Those that a user has to search for: no runtime does so by itself."""
_UNTUNED = ("msccl-default", "msccl-default-robust")
LIBRARIES_BASELINE = "libraries"
"""The fastest of the libraries beside the ranks, each by its own choice."""
SYMMETRIC_BASELINE = "nccl-symmetric"
"""NCCL on buffers registered as symmetric windows: only a real NCCL can be timed so."""


def baselines_on(executor: Executor) -> tuple[str, ...]:
    """Return the baselines that ``executor`` can stand for: NCCL's kernels run on GPUs only.

    Notes:
        An executor on CPUs moves the bytes of NCCL's rings and trees, but none of its times are
        NCCL's.
    """
    if executor.libraries:
        return (LIBRARIES_BASELINE, *_UNTUNED)
    if executor.runs_nccl:
        return ("nccl", "nccl-best", *_UNTUNED, SYMMETRIC_BASELINE)
    if executor.default_baseline != "nccl":
        return _UNTUNED
    return BASELINES if executor.simulated else ("nccl", *_UNTUNED)


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
) -> TimedProgram:
    """Return the time of a default for a call whose whole array has ``nbytes`` bytes.

    - ``nccl``: NCCL's own choice; on nccl-tests that of its NCCL, elsewhere what NCCL ``version``
      would choose, as a program (NVLS only in the simulator, since no program moves data so).
    - ``nccl-best``: the fastest of NCCL's algorithms, safe protocols and numbers of channels that a
      user can set, its own choice among them.
    - ``nccl-symmetric``: on nccl-tests, NCCL on buffers registered as symmetric windows.
    - ``msccl-default``: the paper's baseline, one channel under Simple; ``msccl-default-robust``
      the same mesh with all-pairs programs.
    - ``libraries``: the fastest of Gloo and the MPIs that run on the same ranks; where none of
      them can, ``msccl-default-robust``.
    - ``msccl-best``: the fastest of the programs that ship with MSCCL, under the knobs that suit
      the size, and of NCCL's own choice, which MSCCL falls back to.

    Programs are made once per topology.

    Raises:
        InputError: there is no such default or collective.
        Infeasible: the default has no program for the collective.
    """
    from tuccl.runtime.baseline.nccl_best import nccl_timings, time_nccl
    from tuccl.runtime.baseline.nccl_call import collective_stub
    from tuccl.runtime.executors.configured_program import ConfiguredProgram

    of_executor = kind in (SYMMETRIC_BASELINE, LIBRARIES_BASELINE)
    if kind not in (known := baselines_on(executor) if of_executor else BASELINES):
        raise InputError(
            f"baseline {kind[:30]!r} on {executor.name}: expected one of {', '.join(known)}"
        )
    call = Collective(collective, topology.ranks, root)
    if kind == SYMMETRIC_BASELINE:
        name = "NCCL's own, symmetric windows"
        own = ConfiguredProgram(collective_stub(call), Knobs(), WINDOWS, name)
        return own.timed(own.on(executor, nbytes, root=root, repeats=repeats))
    if kind == LIBRARIES_BASELINE:
        each = [
            ConfiguredProgram(
                collective_stub(call), Knobs(), RUNTIME_CHOICE._replace(library=name), name
            )
            for name in executor.libraries
        ]
        timed = []
        for own in each:
            with suppress(InputError, Stuck):  # it has no such collective, or fails here
                timed.append(own.timed(own.on(executor, nbytes, root=root, repeats=repeats)))
        if timed:
            return min(timed, key=lambda own: own.timing.us)
        kind = "msccl-default-robust"
    if kind == "nccl":
        return time_nccl(executor, topology, call, nbytes, repeats=repeats, version=version)
    if kind in BEST_BASELINES:
        own = time_nccl(executor, topology, call, nbytes, repeats=repeats, version=version)
        if kind == "nccl-best":
            others = nccl_timings(executor, topology, call, nbytes, version)[:1]
        else:
            from tuccl.runtime.baseline.msccl_best import best_shipped

            others = best_shipped(executor, topology, call, nbytes, version)
        return min([own, *others], key=lambda each: each.timing.us)
    mesh = _msccl(topology, call, kind)
    timing = mesh.on(executor.of_defaults, nbytes, root=root, repeats=repeats)
    return mesh.timed(timing, mesh.program.threadblocks)


def _msccl(topology: Topology, call: Collective, kind: str) -> ConfiguredProgram:
    from tuccl.runtime.baseline.nccl_call import program_once
    from tuccl.runtime.executors.configured_program import ConfiguredProgram
    from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS, msccl_default
    from tuccl.synth.lowering.lower import lower

    form: Literal["faithful", "robust"] = "faithful" if kind == "msccl-default" else "robust"

    def make() -> tuple[Program, int]:
        schedule = msccl_default(topology, call, form)
        program = lower(schedule, protocol=MSCCL_DEFAULT_KNOBS.protocol, name=kind)
        return program, program.nchannels

    program, channels = program_once(topology, (call, kind), make)
    name = f"direct/{MSCCL_DEFAULT_KNOBS.protocol}/{channels}ch"
    return ConfiguredProgram(program, MSCCL_DEFAULT_KNOBS, name=name)
