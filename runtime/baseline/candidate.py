"""The program that a table's candidate runs for a call."""

from __future__ import annotations

from collections.abc import Mapping

from tuccl.program import Program
from tuccl.runtime.baseline.nccl_best import time_nccl
from tuccl.runtime.executors import ConfiguredProgram, Executor
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.runtime.table.entry import Candidate
from tuccl.synth import Collective
from tuccl.topology import Topology


def candidate_program(
    executor: Executor,
    topology: Topology,
    call: Collective,
    nbytes: int,
    candidate: Candidate,
    programs: Mapping[str, Program],
    *,
    version: str = NCCL_VERSION,
) -> ConfiguredProgram | None:
    """Return what ``candidate`` runs for a call, None where that is the runtime's default.

    One of NCCL's own is a `TimedProgram`: choosing it takes a run.

    Args:
        executor: Runs NCCL's own.
        topology: The table's machine.
        call: The collective.
        nbytes: The whole array in bytes.
        candidate: Of the table.
        programs: The table's, by their paths.
        version: Of NCCL.

    Raises:
        Infeasible: NCCL's algorithm makes no program for the collective.
        InputError: NCCL does not have these knobs on this topology.
    """
    if candidate.program is not None and candidate.knobs is not None:
        program = programs[candidate.program]
        return ConfiguredProgram(program, candidate.knobs.knobs, name=candidate.name)
    if candidate.nccl is None:
        return None
    return time_nccl(executor, topology, call, nbytes, candidate.nccl, version=version)
