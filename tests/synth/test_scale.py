"""Many equal hosts: programs of one host's part, rotated, are sound and near the bound."""

from __future__ import annotations

import random
import sys
from fractions import Fraction

import networkx
import pytest

from reference_fabrics import a100_pod, any_fabric, random_fabric, torus
from tuccl.errors import Infeasible, InputError
from tuccl.planners import diameter, group_cuts
from tuccl.program import Knobs, Program, verify
from tuccl.simulation import simulate
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, Schedule, bound, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.classic.host_alltoall import host_alltoall
from tuccl.synth.lowering.limits import limits_of
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.hierarchical import hierarchical_trees, rails_of
from tuccl.synth.packing.packing import packing_chunks
from tuccl.synth.packing.tree_sends import chained_sends, merged_sends
from tuccl.topology import Link, Node, Topology, load_machine, network, path

NAMES = ("allgather", "reduce-scatter", "allreduce")


def pairs_of_gpus(hosts: int) -> Topology:
    """Hosts of two GPUs with an NVLink and a NIC each: few GPUs, many hosts."""
    nodes, links = [Node("leaf", "switch")], []
    for number in range(hosts):
        host = f"n{number}"
        for n in range(2):
            gpu, nic = f"{host}/gpu{n}", f"{host}/nic{n}"
            nodes += [Node(gpu, "gpu", host, 2 * number + n), Node(nic, "nic", host)]
            links.append(Link(gpu, nic, "pcie", 25.0, 0.5, duplex=True))
            links.append(Link(nic, "leaf", "network", 25.0, 1.0, duplex=True))
        links.append(Link(f"{host}/gpu0", f"{host}/gpu1", "nvlink", 200.0, 0.5, duplex=True))
    return Topology(f"{hosts} pairs", tuple(nodes), tuple(links))


def made(t: Topology, name: str) -> tuple[Schedule, Program]:
    collective, sketch = Collective(name, t.ranks), rails(t)
    [chunks] = packing_chunks(collective, sketch, t)
    schedule = make_schedule(Problem(collective, sketch, chunks, 1 << 30, t), "packing")
    return schedule, lower(schedule)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("t", "least"),
    [
        (a100_pod(9), 0.99),
        (pairs_of_gpus(40), 0.99),
        (pairs_of_gpus(33), 0.99),
        (pairs_of_gpus(70), 0.97),
    ],
)
def test_many_equal_hosts_get_programs_near_the_bound(t: Topology, least: float, name: str) -> None:
    schedule, program = made(t, name)
    assert verify_schedule(schedule) is None
    assert verify_schedule(schedule, in_place=True) is None
    assert verify(program, "executor", 0).ok
    assert program.in_place
    assert program.out_of_place
    assert program.max_steps <= 64
    assert least <= fraction_of_bound(program, t, Collective(name, t.ranks)) <= 1 + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_connections_with_too_many_steps_are_dealt_out_to_more_channels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = pairs_of_gpus(40)
    schedule, one_channel = made(t, name)
    limits = limits_of("executor").replace(steps=one_channel.max_steps - 1)
    monkeypatch.setattr(sys.modules[lower.__module__], "limits_of", lambda *_: limits)
    program = lower(schedule)
    assert program.nchannels > one_channel.nchannels
    assert program.max_steps < one_channel.max_steps
    assert verify(program, "executor", 0).ok


def test_rotating_ranks_rotates_the_trees() -> None:
    rail_network = sketch_network(rails(t := pairs_of_gpus(70)), t)
    hosts, trees = rails_of(rail_network), hierarchical_trees(rail_network, 1)
    assert hosts is not None
    assert trees is not None
    by = hosts.relay_group * hosts.local_ranks
    assert by == 4
    parents = {tree.root: tree.parent for tree in trees}
    for root, parent in parents.items():
        turned = parents[(root + by) % t.ranks]
        for rank, above in enumerate(parent):
            expected = -1 if above < 0 else (above + by) % t.ranks
            assert turned[(rank + by) % t.ranks] == expected


def test_merged_sends_are_the_single_ones_side_by_side() -> None:
    rail_network = sketch_network(rails(t := pairs_of_gpus(70)), t)
    trees = hierarchical_trees(rail_network, 3)
    assert trees is not None
    first_chunks = [3 * rank for rank in range(t.ranks)]

    def chunks(sends: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int]]:
        return sorted((a, b, first + k) for a, b, first, n in sends for k in range(n))

    merged = [(r.parent, r.child, r.chunk, r.nchunks) for r in merged_sends(trees, first_chunks, 2)]
    single = [(s.src, s.dst, s.chunk, s.nchunks) for s in chained_sends((), trees, first_chunks, 3)]
    assert chunks(merged) == chunks(single)
    assert len(merged) < 0.6 * len(single)


def test_unlike_hosts_get_no_hierarchical_trees() -> None:
    t = pairs_of_gpus(36)
    lopsided = Topology("lopsided", t.nodes, (*t.links[:-1], replace_rate(t.links[-1])))
    assert rails_of(sketch_network(rails(lopsided), lopsided)) is not None  # pairs are the same
    one_more = Node("n0/gpu2", "gpu", "n0", t.ranks)
    link = Link("n0/gpu2", "n0/gpu0", "nvlink", 25.0, 0.5, duplex=True)
    uneven = Topology("uneven", (*t.nodes, one_more), (*t.links, link))
    assert rails_of(sketch_network(rails(uneven), uneven)) is None


def replace_rate(link: Link) -> Link:
    return Link(link.src, link.dst, link.kind, link.bandwidth / 2, link.latency, duplex=True)


def test_rails_join_mates_and_equal_places() -> None:
    t = a100_pod(3)
    sketch = rails(t)
    for src, dst in full_mesh(t).pairs:
        joined = src // 8 == dst // 8 or src % 8 == dst % 8
        assert (sketch.link(src, dst) is not None) == joined
    assert sketch.symmetry == full_mesh(t).symmetry
    assert [s.name for s in candidate_sketches(a100_pod(17), "allgather", 1 << 20)] == ["rails"]
    assert {link.dst for link in rails(torus(3, 3)).out_links(0)} == {1, 2, 3, 6}


@pytest.mark.parametrize("seed", range(10))
def test_group_cuts_are_maximum_flows(seed: int) -> None:
    rng = random.Random(seed)
    vertices, ranks = 7, 5
    arcs = [
        (a, b, rng.randint(1, 20))
        for a in range(vertices)
        for b in range(vertices)
        if a != b and rng.random() < 0.5
    ]
    groups = [rng.sample(range(ranks), rng.randint(1, ranks - 1)) for _ in range(4)]
    for group, rate in zip(groups, group_cuts(vertices, arcs, ranks, groups), strict=True):
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from(arcs, weight="capacity")
        # Without a capacity an edge is infinitely wide.
        graph.add_edges_from(("source", r) if r in group else (r, "sink") for r in range(ranks))
        assert rate == networkx.maximum_flow_value(graph, "source", "sink")


def test_native_questions_refuse_what_does_not_fit() -> None:
    assert diameter(3, [(0, 1), (1, 2), (2, 0)], [1.0, 2.0, 4.0], 3, range(3)) == 6.0
    assert diameter(3, [(0, 1)], [1.0], 2, range(2)) == float("inf")
    for call in (
        lambda: group_cuts(2, [(0, 2, 1)], 2, [[0]]),
        lambda: group_cuts(2, [(0, 1, 1)], 2, [[2]]),
        lambda: group_cuts(2, [(0, 1, 1)], 3, [[0]]),
        lambda: diameter(2, [(0, 1)], [-1.0], 2, [0]),
        lambda: diameter(2, [(0, 1)], [], 2, [0]),
    ):
        with pytest.raises(InputError, match="expected"):
            call()


def test_an_allreduce_must_cross_a_lopsided_link_both_ways() -> None:
    """Two messages of two ranks go one each way: the slow one decides, not the sum of both."""
    nodes = tuple(Node(f"g{n}", "gpu", "h", n) for n in range(2))
    links = (Link("g0", "g1", "nvlink", 10.0, 1.0), Link("g1", "g0", "nvlink", 1.0, 1.0))
    assert bound(Topology("lopsided", nodes, links), Collective("allreduce", 2)).algbw_gbs == 1.0


def test_bounds_keep_to_the_route_of_a_pair() -> None:
    """GPUs 0 and 1 have a slow link of their own, so the switch between them is no use."""
    nodes = (*(Node(f"g{n}", "gpu", "h", n) for n in range(3)), Node("s", "nvswitch", "h"))
    links = [Link(f"g{n}", "s", "nvlink", 100.0, 1.0, duplex=True) for n in range(3)]
    links += [Link(f"g{n}", "g2", "nvlink", 1.0, 1.0, duplex=True) for n in range(2)]
    t = Topology("detour", (*nodes,), tuple(links))
    assert [hop.dst for hop in path(t, 0, 2).hops] == ["g2"]
    best = bound(t, Collective("allgather", 3))
    assert best.algbw_gbs == pytest.approx(float(3 / Fraction(2, 2)))
    assert "g0>g2" in best.bottleneck


def test_disconnected_fabrics_are_refused_in_one_line() -> None:
    refusals = []
    for seed in range(40):
        try:
            any_fabric(random.Random(seed))
        except InputError as why:
            refusals.append(str(why))
    assert refusals
    assert all("cannot be reached" in why and "\n" not in why for why in refusals)
    assert random_fabric(random.Random(0)).ranks >= 2


@pytest.mark.parametrize("rows", [3, 4])
def test_sums_are_as_fast_as_results(rows: int) -> None:
    """A reduce-scatter is an allgather backwards, in simulation too."""
    t = torus(rows, rows)
    shared, mesh, rates = network(t), full_mesh(t), []
    for name in ("allgather", "reduce-scatter"):
        collective = Collective(name, t.ranks)
        [chunks] = packing_chunks(collective, mesh, t)
        program = lower(make_schedule(Problem(collective, mesh, chunks, 1 << 30, t), "packing"))
        nbytes = (1 << 30) // program.nchunks * program.nchunks
        run = simulate(program, Knobs("Simple", 1, 512), shared, load_machine("ideal"), nbytes)
        rates.append(nbytes / run.time_us)
    assert rates[1] >= 0.98 * rates[0]


def test_steps_get_no_more_channels_than_they_need() -> None:
    t = torus(3, 3)
    schedule = make_schedule(
        Problem(Collective("alltoall", 9), full_mesh(t), 60, 1 << 30, t), "flow"
    )
    program = lower(schedule)
    busiest = lower(schedule, dialect="fork").max_steps
    assert program.max_steps <= 64
    assert program.nchannels <= -(-busiest // 64) + 1


@pytest.mark.parametrize("t", [a100_pod(9), pairs_of_gpus(40), pairs_of_gpus(3)])
def test_an_all_to_all_of_equal_hosts_is_rotated_and_as_good_as_by_links(t: Topology) -> None:
    """Made of one host's part and rotated, it takes as long as what is chosen link by link."""
    nbytes = t.ranks << 20
    problem = Problem(Collective("alltoall", t.ranks), rails(t), 1, nbytes, t)
    schedule = make_schedule(problem, "hierarchical2")
    assert verify_schedule(schedule) is None
    trace = Trace(problem.collective, 1, "hierarchical2")
    host_alltoall(trace, problem.sketch)
    rotated, whole = lower(schedule), lower(trace.schedule())
    assert fraction_of_bound(rotated, t, problem.collective) == pytest.approx(
        fraction_of_bound(whole, t, problem.collective)
    )
    machine, links = load_machine("plain"), network(t, problem.sketch.pairs)
    times = [simulate(p, Knobs("Simple"), links, machine, nbytes).gpu_us for p in (rotated, whole)]
    assert times[0] <= 1.01 * times[1]
    assert max(len(gpu.threadblocks) for gpu in rotated.gpus) <= 128


def test_an_all_to_all_with_more_peers_than_blocks_says_so() -> None:
    t = pairs_of_gpus(130)
    problem = Problem(Collective("alltoall", t.ranks), rails(t), 1, 1 << 20, t)
    with pytest.raises(Infeasible, match="130 peers"):
        make_schedule(problem, "hierarchical2")


@pytest.mark.slow
def test_a_program_too_large_to_settle_has_a_time() -> None:
    """Its first pass is dearer than what a simulation watches: the second still gives a pace."""
    t = a100_pod(32)
    sketch = rails(t)
    problem = Problem(Collective("allgather", t.ranks), sketch, 1, 1 << 34, t)
    program = lower(make_schedule(problem, "packing"), instances=4)
    links = network(t, sketch.pairs)
    result = simulate(program, Knobs("Simple", 4), links, load_machine("h100"), 1 << 34)
    assert bound(t, problem.collective).time_us(1 << 34) < result.gpu_us < 1e6
