"""All-to-all by concurrent flow: near the bound on the known fabrics, and no bound is beaten."""

from __future__ import annotations

import random
import statistics
from fractions import Fraction
from itertools import permutations

import pytest

from reference_fabrics import REFERENCE_FABRICS, cube_mesh, random_fabric, torus
from tuccl.errors import Infeasible, InputError
from tuccl.planners import flow_duals, route_demands
from tuccl.program import Knobs, Program, verify
from tuccl.simulation import Network, Resource, Route
from tuccl.sketches import full_mesh
from tuccl.synth import (
    Candidates,
    Collective,
    Problem,
    Target,
    bound,
    lower,
    make_schedule,
    synthesize_best,
)
from tuccl.synth.bounds.bound import alltoall_cut
from tuccl.synth.bounds.graph import topology_fabric
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.packing.flow import flow_chunks
from tuccl.topology import Link, Node, Topology, load_machine

NAMES = [name for name in REFERENCE_FABRICS if name != "torus-8x8"]


def made(t: Topology) -> Program:
    collective, mesh = Collective("alltoall", t.ranks), full_mesh(t)
    [chunks] = flow_chunks(collective, mesh, t)
    program = lower(make_schedule(Problem(collective, mesh, chunks, 1 << 30, t), "flow"))
    assert verify(program, "executor", 0).ok
    return program


@pytest.mark.parametrize("name", NAMES)
def test_known_fabrics_come_within_one_percent_of_the_bound(name: str) -> None:
    t = REFERENCE_FABRICS[name]()
    program = made(t)
    assert fraction_of_bound(program, t, Collective("alltoall", t.ranks)) >= 0.99
    assert max(len(gpu.threadblocks) for gpu in program.gpus) <= 32
    assert program.max_steps <= 64


def test_random_fabrics_give_verified_programs_below_the_bound() -> None:
    shares = []
    for seed in range(20):
        t = random_fabric(random.Random(seed))
        try:
            shares.append(fraction_of_bound(made(t), t, Collective("alltoall", t.ranks)))
        except Infeasible as refusal:
            assert "\n" not in str(refusal)
    assert len(shares) >= 15
    assert max(shares) <= 1 + 1e-9
    assert statistics.median(shares) >= 0.95


@pytest.mark.slow
def test_flow_beats_direct_ways_where_ranks_must_pass_on() -> None:
    t = cube_mesh()
    ranked = synthesize_best(
        Target(t, Collective("alltoall", 8), 1 << 30, load_machine("ideal")),
        Candidates([full_mesh(t)], [Knobs("Simple", 1, 512)]),
    ).programs
    assert ranked[0].method == "flow"


def ring(ranks: int) -> Topology:
    """Return ranks joined in a circle by one-way links."""
    nodes = tuple(Node(f"g{n}", "gpu", "n0", n) for n in range(ranks))
    links = (Link(f"g{n}", f"g{(n + 1) % ranks}", "nvlink", 10.0, 0.5) for n in range(ranks))
    return Topology(f"ring of {ranks}", nodes, tuple(links))


@pytest.mark.parametrize("ranks", [3, 5, 6])
def test_bound_of_a_one_way_ring_is_its_only_routing(ranks: int) -> None:
    """Every block of distance d takes d links, so each link carries 1 + 2 + ... + (n - 1)."""
    only = Fraction(ranks * (ranks - 1) // 2, 10)
    assert alltoall_cut(topology_fabric(ring(ranks))).ratio == only


def test_prices_prove_more_than_the_cuts_that_are_tried() -> None:
    """A 3 x 3 torus has links for its 9 x 12 block-hops: 3 a link, which no tried cut shows."""
    cut = alltoall_cut(topology_fabric(torus(3, 3)))
    assert cut.ratio == Fraction(9 * 12, 36 * 50)
    assert "dearest" in cut.words


@pytest.mark.parametrize("seed", range(20))
def test_bound_is_no_less_than_any_routing_allows(seed: int) -> None:
    """Ways by prices alone are one routing: what its busiest wire takes cannot beat the bound."""
    t = random_fabric(random.Random(seed))
    fabric = topology_fabric(t)
    demands = list(permutations(range(t.ranks), 2))
    network = Network(
        len(fabric.names),
        [Resource(f"arc {n}", "", float(arc.rate)) for n, arc in enumerate(fabric.arcs)],
        [Route(arc.tail, arc.head, [n], arc.latency) for n, arc in enumerate(fabric.arcs)],
    )
    loads = [0] * len(fabric.arcs)
    paths = route_demands(network, demands, rounds=10, target=0.0)
    for (src, dst), path in zip(demands, paths, strict=True):
        at = src
        for number in path:
            assert fabric.arcs[number].tail == at
            at = fabric.arcs[number].head
            loads[number] += 1
        assert at == dst
    took = max(load / arc.rate for load, arc in zip(loads, fabric.arcs, strict=True))
    limit = bound(t, Collective("alltoall", t.ranks))
    assert 1 / float(took) * t.ranks <= limit.algbw_gbs * (1 + 1e-9)


def test_native_arguments_are_checked() -> None:
    one_way = Network(2, [Resource("a>b", "", 1.0)], [Route(0, 1, [0], 0.0)])
    with pytest.raises(InputError, match="expected two ranks"):
        route_demands(one_way, [(0, 5)], rounds=1, target=0.0)
    with pytest.raises(InputError, match="no routes lead"):
        route_demands(one_way, [(1, 0)], rounds=1, target=0.0)
    with pytest.raises(InputError, match="expected at least 2"):
        flow_duals(1, [], 1, 1)
    with pytest.raises(InputError, match="expected a capacity"):
        flow_duals(2, [(0, 1, 0)], 2, 1)
