"""The fastest program for one call: methods on sketches, by the knobs that the dialect allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from tuccl.errors import InputError
from tuccl.program import Knobs, Program, max_threads
from tuccl.runtime.executors.knob_grid import CHANNELS, PROTOCOLS
from tuccl.runtime.nccl.ll128 import ll128_is_safe
from tuccl.runtime.table import KnobValues, fork_threads, hangs_between_hosts
from tuccl.simulation import MachineClass
from tuccl.sketches import Sketch, candidate_sketches
from tuccl.synth import (
    EXACT_METHODS,
    Candidates,
    Collective,
    Options,
    Schedule,
    SearchResult,
    SynthesizedProgram,
    Target,
    fork_end,
    searched_methods,
    synthesize_best,
)
from tuccl.synth.model.collective import collective_on
from tuccl.topology import Topology, machine_of
from tuccl.topology.machines import as_topology
from tuccl.units import Size, size_bytes

_RCCL_THREADS = max_threads("Simple", "rccl")


def synthesize(
    topology: Topology | str | os.PathLike[str],
    collective: str | Collective,
    size: Size,
    *,
    method: str = "auto",
    sketch: Sketch | None = None,
    protocol: str | None = None,
    channels: int | None = None,
    threads: int | None = None,
    buffer: Size | None = None,
    chunks: int | None = None,
    dialect: str = "executor",
    any_order: bool = False,
    machine: MachineClass | None = None,
    options: Options | None = None,
    time_limit_s: float | None = 60.0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> SearchResult:
    """Return the programs for a call that could be made, the fastest in simulation first.

    Each is verified. What is left None is searched.

    Args:
        topology: The machine, or the path of its file.
        collective: Its name, or a `Collective` with a root.
        size: The whole array that it is to be fast at, in bytes or as "16M".
        method: A name of `tuccl.synth.find_method`; "auto": the searched ones.
        sketch: The links that may be used; None: `candidate_sketches`.
        protocol: Simple, LL or LL128; LL128 only where it keeps data whole.
        channels: Instances of the program side by side.
        threads: Threads of a thread block, 32 to 640.
        buffer: Bytes of a connection's buffer.
        chunks: Chunks of each rank's part.
        dialect: ``executor``, ``rccl`` or ``fork``.
        any_order: Also methods whose ranks add in different orders, so that results may differ in
            the last bit.
        machine: Rates for the simulator; None: those of the topology's GPUs.
        options: Seed and effort of the methods.
        time_limit_s: Stops looking for better after so many seconds.
        progress: Called with the candidates done, their number, and the next.

    >>> from tuccl.topology import profile
    >>> found = synthesize(profile("v100x4"), "allgather", "16M", method="ring", protocol="Simple")
    >>> found.best.method, found.best.program.ngpus
    ('ring', 4)

    Raises:
        Infeasible: no program could be made; says why.
        InputError: an argument cannot be.
    """
    topology = as_topology(topology)
    call, nbytes = collective_on(topology.ranks, collective), size_bytes(size)
    sketches = (sketch,) if sketch else candidate_sketches(topology, call, nbytes)
    if chunks is None and method in EXACT_METHODS:
        chunks = sketches[0].chunks_per_rank
    knobs = _knobs(call, len(topology.hosts), dialect, (protocol, channels, threads, buffer))
    candidates = Candidates(
        sketches,
        knobs,
        searched_methods(unordered=any_order) if method == "auto" else (method,),
        None if chunks is None else (chunks,),
        partial(_keeps_data_whole, topology),
    )
    target = Target(topology, call, nbytes, machine or machine_of(topology), dialect)
    found = synthesize_best(
        target, candidates, options or Options(), time_limit_s=time_limit_s, progress=progress
    )
    if dialect != "fork":
        return found
    best = replace(found.best, program=_of_fork(found.best, nbytes, threads is not None))
    return replace(found, programs=(best, *found.programs[1:]))


_Choice = tuple[str | None, int | None, int | None, Size | None]


def _knobs(call: Collective, hosts: int, dialect: str, choice: _Choice) -> tuple[Knobs, ...]:
    """Return the knobs to choose from: those given, and all that they leave open.

    A broadcast or reduce between hosts gets Simple only if it is given (`hangs_between_hosts`).

    Raises:
        InputError: the knobs given cannot be used together; says why.
    """
    protocol, channels, threads, buffer = choice
    protocols: Sequence[str] = PROTOCOLS if protocol is None else (protocol,)
    counts: Sequence[int] = CHANNELS if channels is None else (channels,)
    if protocol is None:
        protocols = [p for p in protocols if not hangs_between_hosts(call.name, p, hosts)]
    if dialect == "rccl":
        counts = [c for c in counts if 32 * c <= _RCCL_THREADS] or counts
        if threads not in (None, _RCCL_THREADS):
            raise InputError(f"threads {threads}: RCCL always runs {_RCCL_THREADS}")
        threads = _RCCL_THREADS
    nbytes = None if buffer is None else size_bytes(buffer)
    knobs, reasons = [], []
    for name, count in product(protocols, counts):
        one = Knobs(name, count, 512 if threads is None else threads, nbytes)
        if (why := _refusal(one, dialect, threads)) is None:
            knobs.append(one)
        else:
            reasons.append(why)
    if not knobs:
        raise InputError(reasons[0])
    return tuple(knobs)


def _refusal(knobs: Knobs, dialect: str, threads: int | None) -> str | None:
    """Return why no program may have the knobs, None where one may."""
    if threads is not None and threads % 32:  # more channels would round it up
        return f"threads {threads}: expected a multiple of 32, at least 32"
    if (why := knobs.illegal()) is not None:
        return f"knobs: {why}"
    if dialect == "fork" and threads is not None and fork_threads(KnobValues.of(knobs)) is None:
        return (
            f"threads {threads}: under Simple the fork wants 8 bytes a thread to divide a slice of "
            f"{knobs.slice_bytes} bytes; take a power of two, or another buffer"
        )
    return None


def _keeps_data_whole(topology: Topology, schedule: Schedule, knobs: Knobs) -> bool:
    """Return whether the protocol keeps data whole on all links that `schedule` uses."""
    return knobs.protocol != "LL128" or ll128_is_safe(topology, schedule.sent)


def _of_fork(best: SynthesizedProgram, nbytes: int, sets_threads: bool) -> Program:
    """Return the program with what only the fork reads: its threads, and an end to its scratch."""
    program = best.program
    if program.max_bytes is None:
        program = program.replace(max_bytes=fork_end(program, nbytes))
    threads = fork_threads(KnobValues.of(best.knobs)) if sets_threads else None
    return program.replace(nthreads=threads or 0)
