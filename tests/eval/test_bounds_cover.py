"""Nothing simulated is faster than the bound that covers it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nccl_machines import RINGS, machine
from tuccl.errors import Infeasible, InputError
from tuccl.eval.comparison import bound_over
from tuccl.runtime import SimExecutor, TimedProgram
from tuccl.runtime.baseline import nccl_timings, time_nccl
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.versions import nccl_versions
from tuccl.synth import Collective, bound
from tuccl.topology import PROFILES, Topology

LARGE = 1 << 30
MACHINES = [(name, 1) for name in PROFILES] + [("ndv2", 2), ("ndv2", 3)]


def choices(topology: Topology, executor: SimExecutor, call: Collective) -> Iterator[TimedProgram]:
    """What each version of NCCL chooses, equal choices once."""
    seen = set()
    for version in nccl_versions():
        try:
            choice = nccl_choice(topology, call.name, LARGE, version)
            key = (choice.algorithm, choice.protocol, choice.channels, choice.chunk_bytes)
            if key not in seen:
                yield time_nccl(executor, topology, call, LARGE, version=version)
        except (Infeasible, InputError):
            continue
        seen.add(key)


@pytest.mark.parametrize(("profile", "hosts"), MACHINES)
def test_no_version_of_nccl_beats_the_bound_that_covers_it(profile: str, hosts: int) -> None:
    topology = machine(profile, hosts)
    executor = SimExecutor(topology, launch="graph")
    for name in RINGS:
        call = Collective(name, topology.ranks)
        for timed in choices(topology, executor, call):
            least_us = bound(topology, call, bound_over(timed.loop)).time_us(LARGE)
            assert timed.timing.us >= least_us, (name, timed.name)


def test_nvls_beats_the_bound_over_links_but_not_that_over_switches() -> None:
    topology = machine("dgx-h100", 1)
    call = Collective("allreduce", 8)
    timed = nccl_timings(SimExecutor(topology, launch="graph"), topology, call, LARGE)
    nvls = next(t for t in timed if t.nccl and t.nccl.algorithm == "NVLS")
    assert nvls.timing.us < bound(topology, call).time_us(LARGE)
    assert bound_over(nvls.loop) == "switches"
    assert all(bound_over(t.loop) == "links" for t in timed if t.name.startswith("Ring"))
