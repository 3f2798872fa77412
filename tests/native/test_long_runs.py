"""Long runs are extrapolated: every method and protocol comes within 0.1 % of the whole walk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.safety import safe_bytes
from tuccl.errors import Infeasible
from tuccl.program import Knobs, Program
from tuccl.simulation import Network, simulate
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import (
    Collective,
    Problem,
    find_method,
    lower,
    make_schedule,
    searched_methods,
)
from tuccl.topology import Topology, join, load_profile, machine_of, network

PROTOCOLS = ("Simple", "LL", "LL128")
QUICK = searched_methods(unordered=True)
MACHINES = (
    ("ndv4", 2),
    ("ndv2", 2),
    ("a100x8-roce", 2),
    ("dgx-2", 1),
    ("dgx-1v", 2),
    ("v100x4", 4),
    ("ndv5", 2),
)
MIB = 1 << 20
SMALL = {"Simple": 1 << 15, "LL": 1 << 17, "LL128": 1 << 16}  # buffers of many passes
MOST_STEPS = 1_500_000  # of a whole walk, for its time's sake


@cache
def cluster(profile: str, hosts: int) -> tuple[Topology, Network]:
    t = load_profile(profile) if hosts == 1 else join(load_profile(profile), hosts)
    return t, network(t)


def programs(
    t: Topology, method: str, collective: str, protocol: str, nbytes: int
) -> Iterator[Program]:
    """Return what a method makes of the best sketch, in many instances, and of the full mesh."""
    best = candidate_sketches(t, collective, nbytes)[0]
    for sketch, chunks, instances in ((best, 2, 4), (full_mesh(t), 1, 2)):
        try:
            wanted = Collective(collective, t.ranks)
            schedule = make_schedule(Problem(wanted, sketch, chunks, nbytes), method)
            yield lower(schedule, protocol=protocol, instances=instances)
        except Infeasible:
            continue


def check(profile: str, hosts: int, method: str, collective: str, knobs: Knobs, nbytes: int) -> int:
    """Compare both times of each program; return how many were extrapolated."""
    t, wires = cluster(profile, hosts)
    machine, found = machine_of(t), 0
    for program in programs(t, method, collective, knobs.protocol, nbytes):
        size = -(-nbytes // program.nchunks) * program.nchunks
        steps = sum(len(tb.steps) for gpu in program.gpus for tb in gpu.threadblocks)
        crowded = 0 < machine.sm_count < program.threadblocks
        if crowded or steps * (size // program.nchunks // knobs.slice_bytes) > MOST_STEPS:
            continue
        if size > safe_bytes(program, knobs):
            continue
        short = simulate(program, knobs, wires, machine, size)
        whole = simulate(program, knobs, wires, machine, size, exact=True)
        assert short.gpu_us == pytest.approx(whole.gpu_us, rel=1e-3)
        assert short.resource_bytes == whole.resource_bytes
        assert short.steady
        rough = simulate(program, knobs, wires, machine, size, exact_to_us=0.8 * short.time_us)
        assert rough.gpu_us > 0.8 * short.time_us
        assert rough.gpu_us == pytest.approx(whole.gpu_us, rel=0.25)
        assert rough.events <= short.events
        fast_enough = simulate(program, knobs, wires, machine, size, exact_to_us=short.time_us)
        assert fast_enough.time_us == short.time_us
        found += short.extrapolated
    return found


@pytest.mark.parametrize(
    "protocol", ["Simple", *(pytest.param(p, marks=pytest.mark.slow) for p in PROTOCOLS[1:])]
)
def test_long_runs_end_when_the_whole_walk_does(protocol: str) -> None:
    knobs = Knobs(protocol, 1, 512, SMALL[protocol])
    found = 0
    for method in QUICK:
        able = find_method(method).collectives
        collective = "allreduce" if "allreduce" in able else "allgather"
        found += check(*MACHINES[1], method, collective, knobs, 16 * MIB)
    assert found >= 3


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("profile", "hosts"), MACHINES)
def test_every_method_and_size(profile: str, hosts: int, protocol: str) -> None:
    found = 0
    for nbytes in (64 * MIB, 256 * MIB, 1024 * MIB):
        for method in QUICK:
            for collective in ("allreduce", "allgather", "alltoall", "broadcast"):
                if collective in find_method(method).collectives:
                    found += check(
                        profile, hosts, method, collective, Knobs(protocol, 1, 512), nbytes
                    )
    assert found or protocol == "Simple"  # whose passes are few
