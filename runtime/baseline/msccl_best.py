"""The best of the programs that ship with MSCCL, with their knobs: a stronger default than one."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from itertools import product

from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs, Program
from tuccl.runtime.baseline.timing import BaselineTiming
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.nccl.constants import tuning_constants
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.model import ll128_is_safe
from tuccl.runtime.nccl.versions import nccl_group
from tuccl.sketches import full_mesh
from tuccl.synth.lowering.lower import lower
from tuccl.synth.methods import METHODS, make_schedule
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import Problem
from tuccl.topology import Topology

__all__ = ["SHIPPED", "best_shipped"]

# Methods of the programs in msccl-tools' examples (all pairs, ring, recursive doubling and halving,
# hierarchical allreduce, two-step alltoall) and in Azure's msccl-scheduler.
SHIPPED = ("allpairs", "ring", "recursive", "hierarchical2", "hierarchical3")
_INSTANCES = (1, 2, 4, 8)
_BYTES = 1 << 20  # one program for every size, made for this one
_THREADS = {"Simple": 512, "LL": 512, "LL128": 640}


def best_shipped(
    executor: Executor, topology: Topology, call: Collective, nbytes: int, version: str
) -> list[BaselineTiming]:
    """Return the fastest of the shipped programs at ``nbytes`` bytes; empty where none runs.

    The programs are made on the full mesh, run under each protocol that NCCL ``version`` holds
    safe there, in 1 to 8 instances, with MSCCL's own threads and buffers. Programs that cannot be
    faster than one already timed are not run.
    """
    safe = ll128_is_safe(tuning_constants()[nccl_group(version)], nccl_graph(topology, version))
    runs = [
        (method, _program(topology, call, method, instances), Knobs(protocol, 1, threads))
        for method, instances in product(SHIPPED, _INSTANCES)
        for protocol, threads in _THREADS.items()
        if safe or protocol != "LL128"
    ]
    least: dict[int, float] = {}
    for number, (_, program, knobs) in enumerate(runs):
        if program is not None:
            [least[number]] = executor.least_us(program, [(knobs, nbytes)])
    best: list[BaselineTiming] = []
    best_us = math.inf
    for number in sorted(least, key=lambda number: least[number]):
        method, program, knobs = runs[number]
        if program is None or least[number] >= best_us:
            continue
        with suppress(Infeasible, InputError):
            timing = executor.time(program, knobs, nbytes, root=call.root)
            if timing.us < best_us:
                text = f"{method}/{knobs.protocol}/{program.nchannels}ch"
                best_us = timing.us
                best = [BaselineTiming(timing, text, program, knobs, sms=program.threadblocks)]
    return best


@lru_cache(maxsize=256)
def _program(topology: Topology, call: Collective, method: str, instances: int) -> Program | None:
    """Return a method's program on the full mesh, or None where it has none."""
    if call.name not in METHODS[method].collectives:
        return None
    problem = Problem(call, full_mesh(topology), 1, _BYTES, topology)
    try:
        return lower(make_schedule(problem, method), instances=instances, name=f"msccl-{method}")
    except Infeasible:
        return None
