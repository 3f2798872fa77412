"""The native greedy search, by certificates: seeds, threads, symmetry, one-way links, refusals."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reference_fabrics import a100_pod, any_fabric, cube_mesh, ndv2_pair, torus
from tuccl.errors import Infeasible, InputError
from tuccl.planners import plan_multicast
from tuccl.program import verify
from tuccl.sketches import full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, lower
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.greedy.greedy import greedy
from tuccl.synth.greedy.routes import Routes, no_symmetry, rotation_symmetry
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.problem import Options
from tuccl.topology import Topology

QUICK = Options(seed=3, starts=16)


def test_threads_do_not_decide() -> None:
    t = cube_mesh()
    sketch = full_mesh(t)
    one, two = (
        greedy(Problem(Collective("allgather", 8), sketch, 4, 1 << 20, t), Options(7, 48, threads))
        for threads in (1, 2)
    )
    assert one == two


def routes_of(topology: Topology) -> Routes:
    network = sketch_network(full_mesh(topology), topology)
    return Routes(network, no_symmetry(network), tuple(range(len(network.pairs))))


def test_more_starts_are_never_slower() -> None:
    network, sources = routes_of(cube_mesh()).periodic_network(1 << 15), [*range(8)] * 4
    times = [
        plan_multicast(network, sources, [], starts=starts, seed=1, threads=2).time_us
        for starts in (1, 8, 32, 96)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", ["allgather", "reduce-scatter", "allreduce"])
def test_one_host_is_planned_and_rotated(name: str) -> None:
    """Above 64 ranks one host is planned and rotated; the verifier sees the whole program."""
    t = a100_pod(9)
    collective = Collective(name, t.ranks)
    schedule = greedy(Problem(collective, rails(t), 1, 1 << 30, t), Options(starts=4))
    program = lower(schedule)
    assert verify(program, "executor", 0).ok
    assert fraction_of_bound(program, t, collective) > 0.99


def test_a_torus_rotates_by_its_rows_and_unequal_latencies_do_not() -> None:
    t = torus(4, 4)
    network = sketch_network(full_mesh(t), t)
    unequal = tuple(0.1 * n for n in range(len(network.pairs)))
    assert len(rotation_symmetry(network)) == 4
    assert len(rotation_symmetry(replace(network, latencies_us=unequal))) == 1


def test_resources_serve_one_send_at_a_time() -> None:
    """No resource carries two sends of a plan at once, and nobody sends a chunk it lacks."""
    routes = routes_of(ndv2_pair())
    network = routes.network
    sources = list(range(16))
    plan = plan_multicast(routes.periodic_network(1 << 16), sources, [], starts=8, seed=0)
    arrived = {(rank, rank): 0.0 for rank in range(16)}
    free = [0.0] * len(network.rates)
    for send in plan.sends:
        src, dst = network.pairs[send.route]
        assert arrived[src, send.chunk] <= send.start_us + 1e-6
        assert (dst, send.chunk) not in arrived
        arrived[dst, send.chunk] = send.end_us
        for resource in network.routes[send.route]:
            assert free[resource] <= send.start_us + 1e-6
            free[resource] = send.start_us + (1 << 16) / float(network.rates[resource]) / 1e3
    assert len(arrived) == 16 * 16


@pytest.mark.parametrize("seed", range(40))
def test_random_fabrics_are_served_or_refused(seed: int) -> None:
    """Switches, one-way and lopsided links: a verified program, or one line that names a rank."""
    try:
        t = any_fabric(random.Random(seed))
    except InputError:
        return  # a GPU without wires is no machine
    name = ("allgather", "reduce-scatter", "allreduce", "broadcast", "gather", "alltoall")[seed % 6]
    collective = Collective(name, t.ranks, root=seed % t.ranks if seed % 6 in (3, 4) else 0)
    try:
        schedule = greedy(Problem(collective, full_mesh(t), 1 + seed % 3, 1 << 20, t), QUICK)
    except Infeasible as why:
        assert "cannot reach rank" in str(why)
        return
    assert verify_schedule(schedule) is None
    assert verify(lower(schedule), "executor", collective.root).ok


def test_seeds_and_starts_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="seed -1"):
        Options(seed=-1)
    with pytest.raises(InputError, match="starts"):
        Options(starts=1 << 30)
