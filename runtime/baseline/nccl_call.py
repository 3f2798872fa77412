"""NCCL's algorithm for a call as a program that an executor can time."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from tuccl.errors import Infeasible
from tuccl.program import Gpu, Knobs, Program
from tuccl.runtime.executors.configured_program import ConfiguredProgram
from tuccl.runtime.executors.executor import StepLoop
from tuccl.runtime.nccl.choice import NcclChoice
from tuccl.runtime.nccl.constants import MAX_CHANNELS, tuning_constants
from tuccl.runtime.nccl.launch import shrunk_tree_chunk
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.synth.baseline.nccl_nvls import nvls_program
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology

_ALGORITHMS = {"Ring": "ring", "Tree": "tree", "SendRecv": "p2p"}
_RINGS = frozenset({"allreduce", "allgather", "reduce-scatter"})
_FIRST_WITH_PLANS = (2, 14, 0)  # ncclKernelPlan, src/enqueue.cc; 2.13's constants are 2.12's
_MOST_THREADS = 512  # that a program's blocks may have for Simple


def collective_stub(call: Collective) -> Program:
    """Return a program without a step: it stands for what the runtime itself runs for ``call``."""
    gpus = [Gpu(rank, 0, 0, 0, []) for rank in range(call.ranks)]
    return Program("nccl", call.name, "Simple", 1, call.ranks, gpus)


def nccl_call(
    topology: Topology, call: Collective, nbytes: int, choice: NcclChoice
) -> ConfiguredProgram:
    """Return how NCCL runs ``choice`` on ``nbytes`` bytes; programs are made once per topology.

    Fewer channels where a program cannot have as many; the knobs say one channel, since NCCL does
    not keep the paper's thread-channel rule.

    Raises:
        Infeasible: NCCL's algorithm makes no program for the collective, or is PAT.
    """
    if choice.algorithm == "PAT":
        raise Infeasible(f"NCCL chooses PAT for {call.name} of {nbytes} B, which has no program")
    channels = min(choice.channels, MAX_CHANNELS)
    key = (call, choice.algorithm, channels, choice.parts)
    program, used = program_once(topology, key, lambda: _program(topology, call, choice, channels))
    program = program.replace(protocol=choice.protocol)
    reduced = f" (as {used}ch)" if used != choice.channels else ""
    threads = choice.threads if choice.protocol == "LL128" else min(choice.threads, _MOST_THREADS)
    if choice.algorithm == "Tree":
        threads = max(choice.threads // 2 // 32, 1) * 32  # half of them sum, half pass on
    knobs = Knobs(choice.protocol, 1, threads)
    loop = _walk(call, choice, nbytes)
    return ConfiguredProgram(program, knobs, loop, f"{choice.text}{reduced}")


def _program(
    topology: Topology, call: Collective, choice: NcclChoice, channels: int
) -> tuple[Program, int]:
    if choice.algorithm in ("NVLS", "NVLSTree"):
        hosts = [topology.gpus_of(host) for host in topology.hosts]
        return nvls_program(call.name, hosts, channels), channels
    algorithm = _ALGORITHMS[choice.algorithm]
    while True:
        try:
            program = nccl_program(
                topology,
                call,
                algorithm,
                channels,
                parts=min(choice.parts, channels),
            )
            return program, channels
        except Infeasible:
            if channels == 1:
                raise
            channels //= 2


def _walk(call: Collective, choice: NcclChoice, nbytes: int) -> StepLoop:
    """Rings take half a FIFO in two slices; all else a slot, in passes of NCCL's chunk.

    NCCL's sources have lines in passes of a slot; measured broadcasts and reductions on 8 A100
    are pipelined more finely, as its trees are: an inference from their times.
    """
    plan = tuning_constants()[choice.version].since >= _FIRST_WITH_PLANS
    if choice.algorithm == "Ring" and call.name in _RINGS:
        return StepLoop(launch_plan=plan)
    chunk = choice.chunk_bytes
    if choice.algorithm == "Ring" and choice.protocol == "Simple":
        chunk = shrunk_tree_chunk(call.ranks - 1, nbytes, choice.channels)
    multicast = choice.algorithm in ("NVLS", "NVLSTree")
    return StepLoop(chunk, 1, multicast=multicast, launch_plan=plan)


_Made = tuple[Program, int]
_PROGRAMS: dict[int, dict[tuple[object, ...], _Made]] = {}


def program_once(topology: Topology, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
    """Return the program of ``key`` and its channels, made once while the topology lives."""
    if id(topology) not in _PROGRAMS:
        _PROGRAMS[id(topology)] = {}
        weakref.finalize(topology, _PROGRAMS.pop, id(topology), None)
    programs = _PROGRAMS[id(topology)]
    if key not in programs:
        programs[key] = make()
    return programs[key]
