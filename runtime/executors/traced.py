"""A simulated run with its record: what ``SimExecutor.trace`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl._native import Knobs, Network, Program, SimTrace
from tuccl.runtime.executors.executor import Walk
from tuccl.topology import Topology

__all__ = ["TracedRun"]


@dataclass(frozen=True)
class TracedRun:
    """A simulated call that was walked whole; ``nbytes`` is the whole array in bytes.

    ``trace`` holds what happened when, in us; ``label`` says that it is simulated, and on what;
    ``launch`` is the host term that was paid, and ``network`` what the walk crossed. Each read of a list of ``trace`` copies it: read
    it once.

    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> run = SimExecutor(host).trace(program, Knobs(), 1 << 20)
    >>> run.trace.result.time_us == SimExecutor(host).time(program, Knobs(), 1 << 20).us
    True
    """

    program: Program
    knobs: Knobs
    nbytes: int
    topology: Topology
    network: Network
    walk: Walk
    launch: str
    label: str
    trace: SimTrace
