"""The best of the programs that ship with MSCCL, with their knobs: a stronger default than one."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import product

from tuccl import synth
from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs, Program, max_threads
from tuccl.runtime.executors.configured_program import ConfiguredProgram, TimedProgram
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.nccl.choice import nccl_protocols
from tuccl.sketches import full_mesh
from tuccl.synth.lowering.lower import lower
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import Problem
from tuccl.topology import Topology

# Methods of the programs in msccl-tools' examples (all pairs, ring, recursive doubling and halving,
# hierarchical allreduce, two-step alltoall) and in Azure's msccl-scheduler.
SHIPPED = ("allpairs", "ring", "recursive", "hierarchical2", "hierarchical3")
_INSTANCES = (1, 2, 4, 8)
_BYTES = 1 << 20  # one program for every size, made for this one


def best_shipped(
    executor: Executor, topology: Topology, call: Collective, nbytes: int, version: str
) -> list[TimedProgram]:
    """Return the fastest of the shipped programs at ``nbytes`` bytes; empty where none runs.

    The programs are made on the full mesh, run under each protocol that NCCL ``version`` holds
    safe there, in 1 to 8 instances, with MSCCL's own threads and buffers. Programs that cannot be
    faster than one already timed are not run.
    """
    runs = [
        ConfiguredProgram(program, knobs, name=f"{method}/{protocol}/{program.nchannels}ch")
        for method, instances in product(SHIPPED, _INSTANCES)
        if (program := _program(topology, call, method, instances)) is not None
        for protocol in nccl_protocols(topology, version)
        for knobs in [Knobs(protocol, 1, max_threads(protocol))]
    ]
    least_us = [executor.least_us(run.program, [(run.knobs, nbytes)])[0] for run in runs]
    best: list[TimedProgram] = []
    for least, run in sorted(zip(least_us, runs, strict=True), key=lambda pair: pair[0]):
        if best and least >= best[0].timing.us:
            break
        with suppress(Infeasible, InputError):
            timing = run.on(executor, nbytes, root=call.root)
            if not best or timing.us < best[0].timing.us:
                best = [run.timed(timing, run.program.threadblocks)]
    return best


@lru_cache(maxsize=256)
def _program(topology: Topology, call: Collective, method: str, instances: int) -> Program | None:
    """Return a method's program on the full mesh, or None where it has none."""
    if call.name not in synth.METHODS[method].collectives:
        return None
    problem = Problem(call, full_mesh(topology), 1, _BYTES, topology)
    try:
        return lower(
            synth.make_schedule(problem, method), instances=instances, name=f"msccl-{method}"
        )
    except Infeasible:
        return None
