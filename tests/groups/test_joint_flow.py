"""Flows of groups that call at once: stars by hand, all cuts of small machines, simulated runs."""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError
from tuccl.groups import joint_flow as module
from tuccl.groups.bounds import joint_bound, kind_calls
from tuccl.groups.concurrent import nccl_choice, time_groups
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.joint_flow import FLOW_COLLECTIVES, Call, JointFlow, joint_flow
from tuccl.groups.layout import Groups, megatron_groups
from tuccl.program import Knobs
from tuccl.runtime import ConfiguredProgram
from tuccl.synth import Collective, bound, lower, msccl_default
from tuccl.topology import Link, Node, Topology, join, load_profile
from tuccl.topology.paths import find_path

GIB = 1 << 30


def flow(
    topology: Topology, calls: list[Call], *, symmetric: bool = True, relays: bool = False
) -> JointFlow:
    found = joint_flow(topology, calls, symmetric=symmetric, relays=relays)
    assert found is not None
    return found


def star(gpus_a_nic: int) -> Topology:
    """Two hosts of 8 GPUs behind NICs of 10 GB/s, a NIC for some of them."""
    nodes, links = [Node("leaf", "switch")], []
    for rank in range(16):
        host, local = f"n{rank // 8}", rank % 8
        nic = f"{host}/nic{local // gpus_a_nic}"
        nodes.append(Node(f"{host}/gpu{local}", "gpu", host, rank))
        links.append(Link(f"{host}/gpu{local}", nic, "pcie", 100.0, 0.5, duplex=True))
        if local % gpus_a_nic == 0:
            nodes.append(Node(nic, "nic", host))
            links.append(Link(nic, "leaf", "network", 10.0, 2.0, duplex=True))
    return Topology("star", tuple(nodes), tuple(links))


PAIRS: Groups = tuple((local, local + 8) for local in range(8))
# What a member of a pair sends to the other, as a part of the array.
SENT = {"allgather": 0.5, "reduce-scatter": 0.5, "alltoall": 0.5, "allreduce": 1.0}


@pytest.mark.parametrize("gpus_a_nic", [1, 2, 4, 8])
@pytest.mark.parametrize("collective", FLOW_COLLECTIVES)
def test_pairs_that_share_a_nic_take_as_many_times_as_long(
    gpus_a_nic: int, collective: str
) -> None:
    calls = kind_calls(PAIRS, collective, GIB)
    for symmetric in (True, False):
        found = flow(star(gpus_a_nic), calls, symmetric=symmetric)
        assert found.ns_per_byte == pytest.approx(gpus_a_nic * SENT[collective] / 10, rel=1e-6)
        # GPU, NIC, leaf, NIC, GPU.
        assert found.latency_us == pytest.approx(5, rel=1e-6)
        assert "nic" in found.links and "leaf" in found.links and "gpu" not in found.links
    joint = joint_bound(star(gpus_a_nic), calls)
    [cut] = [rule.us for rule in joint.rules if rule.name == "cut"]
    assert cut == pytest.approx(found.ns_per_byte * GIB / 1e3, rel=1e-6)
    assert joint.binding.name == ("alone" if gpus_a_nic == 1 else "cut")


@pytest.mark.parametrize(
    ("profile", "hosts"),
    [("dgx-a100", 1), ("ndv2", 1), ("mi300x", 1), ("rtx4090x4", 2), ("v100x4", 3), ("ndv2", 2),
     ("p5", 2), ("torus-3x3", 1)],
)  # fmt: skip
@pytest.mark.parametrize("collective", FLOW_COLLECTIVES)
def test_a_group_of_all_has_the_bound_of_a_collective(
    profile: str, hosts: int, collective: str
) -> None:
    host = load_profile(profile)
    topology = host if hosts == 1 else join(host, hosts)
    best = bound(topology, Collective(collective, topology.ranks))
    found = flow(topology, [Call(tuple(range(topology.ranks)), collective, GIB)])
    assert found.ns_per_byte * best.algbw_gbs >= 1 - 1e-6
    if best.certified:
        assert found.ns_per_byte * best.algbw_gbs == pytest.approx(1, rel=1e-6)


def small_machine(draw: random.Random) -> Topology:
    """Four to six GPUs on two switches of random rates, and some links from GPU to GPU."""
    gpus = draw.randrange(4, 7)
    nodes = [Node(f"g{n}", "gpu", "h", n) for n in range(gpus)]
    nodes += [Node("s0", "pcie", "h"), Node("s1", "pcie", "h")]
    ends = [(f"g{n}", f"s{n % 2}") for n in range(gpus)] + [("s0", "s1")]
    ends += [(f"g{a}", f"g{b}") for a, b in combinations(range(gpus), 2) if draw.random() < 0.3]
    links = []
    for src, dst in ends:
        rates = draw.randrange(1, 9), draw.randrange(1, 9)
        links += [
            Link(*pair, "pcie", float(gbs), 0.5)
            for pair, gbs in zip(((src, dst), (dst, src)), rates, strict=True)
        ]
    return Topology("small", tuple(nodes), tuple(links))


def small_calls(draw: random.Random, ranks: int) -> list[Call]:
    """Two or three calls of two to four members, which may overlap."""
    return [
        Call(
            tuple(draw.sample(range(ranks), draw.randrange(2, 5))),
            draw.choice(["allgather", "reduce-scatter", "allreduce"]),
            draw.randrange(1, 4) * GIB,
        )
        for _ in range(draw.randrange(2, 4))
    ]


def partitions(members: tuple[int, ...]) -> Iterator[list[set[int]]]:
    if not members:
        yield []
        return
    for parts in partitions(members[1:]):
        yield [{members[0]}, *parts]
        for place in range(len(parts)):
            yield [p | {members[0]} if n == place else p for n, p in enumerate(parts)]


def required(call: Call) -> Iterator[tuple[list[tuple[int, int]], float]]:
    """Pairs of members that together must send so many bytes: each cut, or each partition."""
    pairs = list(permutations(call.members, 2))
    if call.collective == "allreduce":
        for parts in partitions(call.members):
            home = {rank: n for n, part in enumerate(parts) for rank in part}
            crossing = [pair for pair in pairs if home[pair[0]] != home[pair[1]]]
            yield crossing, 2 * (len(parts) - 1) * call.nbytes
        return
    size = len(call.members)
    for inside in chain.from_iterable(combinations(call.members, n) for n in range(1, size)):
        shards = len(inside) if call.collective == "allgather" else size - len(inside)
        crossing = [(a, b) for a, b in pairs if a in inside and b not in inside]
        yield crossing, shards * call.nbytes / size


def least_ns_by_cuts(topology: Topology, calls: list[Call]) -> float:
    """The same least time from a linear program of all cuts, which has no flows."""
    optimize = pytest.importorskip("scipy.optimize")
    number = {
        use: n + 1
        for n, use in enumerate(
            (n, pair)
            for n, call in enumerate(calls)
            for pair in permutations(call.members, 2)
            if find_path(topology, *pair) is not None
        )
    }
    rows: list[dict[int, float]] = []
    most: list[float] = []
    loads: dict[Any, dict[int, float]] = defaultdict(dict)
    for (_, pair), variable in number.items():
        path = find_path(topology, *pair)
        assert path is not None
        for hop in path.hops:
            loads[hop][variable] = 1.0
    for hop, terms in loads.items():
        rows.append({**terms, 0: -hop.bandwidth})
        most.append(0.0)
    for n, call in enumerate(calls):
        for crossing, nbytes in required(call):
            rows.append({number[n, pair]: -1.0 for pair in crossing if (n, pair) in number})
            most.append(-nbytes / GIB)
    matrix = [[row.get(n, 0.0) for n in range(len(number) + 1)] for row in rows]
    return float(optimize.linprog([1.0] + [0.0] * len(number), matrix, most).fun) * GIB


def small_flow(seed: int, *, relays: bool = False) -> tuple[Topology, list[Call], float]:
    """Return a machine, calls on it, and the least ns that their flows take."""
    draw = random.Random(seed)
    topology = small_machine(draw)
    calls = small_calls(draw, topology.ranks)
    found = flow(topology, calls, relays=relays)
    return topology, calls, found.ns_per_byte * max(call.nbytes for call in calls)


@pytest.mark.parametrize("seed", range(12))
def test_flows_need_as_long_as_all_cuts_say(seed: int) -> None:
    topology, calls, ns = small_flow(seed)
    assert ns == pytest.approx(least_ns_by_cuts(topology, calls), rel=1e-6)
    largest = max(call.nbytes for call in calls)
    alone = [flow(topology, [call]).ns_per_byte * call.nbytes for call in calls]
    assert max(alone) * (1 - 1e-9) <= ns <= sum(alone) * (1 + 1e-9)
    twice = flow(topology, [call._replace(nbytes=2 * call.nbytes) for call in calls])
    again = flow(topology, calls * 2)
    assert twice.ns_per_byte * 2 * largest == pytest.approx(2 * ns, rel=1e-6)
    assert again.ns_per_byte * largest == pytest.approx(2 * ns, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_links_in_one_direction_carry_trees_in_either(seed: int) -> None:
    """A ring of one direction, and shortcuts: most pairs have no route, or one there alone."""
    draw = random.Random(seed)
    ends = [(n, (n + 1) % 5) for n in range(5)] + [(0, 2), (3, 1)]
    topology = Topology(
        "ring",
        tuple(Node(f"g{n}", "gpu", "h", n) for n in range(5)),
        tuple(Link(f"g{a}", f"g{b}", "nvlink", float(draw.randrange(1, 9)), 0.5) for a, b in ends),
    )
    for collective in ("allreduce", "allgather", "reduce-scatter"):
        calls = [Call(tuple(range(5)), collective, GIB), Call((4, 0, 1, 2, 3), "allreduce", GIB)]
        ns = flow(topology, calls).ns_per_byte * GIB
        assert ns == pytest.approx(least_ns_by_cuts(topology, calls), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_an_alltoall_alone_and_with_others_lies_between_one_and_the_sum(seed: int) -> None:
    draw = random.Random(seed)
    topology = small_machine(draw)
    calls = [
        call._replace(collective=draw.choice(FLOW_COLLECTIVES))
        for call in [*small_calls(draw, topology.ranks), Call((0, 1, 2, 3), "alltoall", GIB)]
    ]
    calls[-1] = calls[-1]._replace(collective="alltoall")
    us = flow(topology, calls).time_us(GIB)
    assert us == pytest.approx(flow(topology, calls, symmetric=False).time_us(GIB), rel=1e-6)
    best = bound(topology, "alltoall").algbw_gbs
    everyone = Call(tuple(range(topology.ranks)), "alltoall", GIB)
    assert flow(topology, [everyone]).ns_per_byte * best >= 1 - 1e-6


@pytest.mark.parametrize(
    ("profile", "hosts", "layout"),
    [
        ("ndv2", 2, "tp=8"),
        ("ndv2", 1, "tp=2"),
        ("dgx-a100", 2, "tp=4,cp=2"),
        ("v100x4", 3, "tp=2"),
        ("l40sx8", 2, "tp=2"),
    ],
)
def test_equivalent_flows_as_one_variable_change_nothing(
    profile: str, hosts: int, layout: str
) -> None:
    host = load_profile(profile)
    topology = join(host, hosts) if hosts > 1 else host
    job = megatron_groups(layout, topology.ranks)
    for collective in FLOW_COLLECTIVES:
        together = []
        for kind in ("tp", "dp"):
            calls = kind_calls(job.kind(kind).groups, collective, GIB)
            together += calls
            whole = flow(topology, calls, symmetric=False).ns_per_byte
            assert flow(topology, calls).ns_per_byte == pytest.approx(whole, rel=1e-6)
        mixed = [each._replace(nbytes=GIB // (1 + each.members[0] % 2)) for each in together]
        for calls in (together, mixed):
            whole = flow(topology, calls, symmetric=False).ns_per_byte
            assert flow(topology, calls).ns_per_byte == pytest.approx(whole, rel=1e-6)


def test_symmetries_make_the_program_smaller() -> None:
    topology = join(load_profile("dgx-a100"), 2)
    groups = megatron_groups("tp=8", 16).kind("dp").groups
    demands = [module._Demand(group, "allgather", 1.0) for group in groups]
    one = module._Family(topology, demands)
    every = module._Family(topology, demands, symmetric=False)
    assert [len(each) for each in one.members] == [16] and len(every.members) == 16
    assert [len(each) for each in one.uses] == [16]
    other = [*demands[:-1], demands[-1]._replace(size=2.0)]  # a call unlike the others
    assert len(module._Family(topology, other).members) > 1


def mesh(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
    """The full-mesh program."""
    program = lower(msccl_default(part, Collective(collective, part.ranks)))
    return ConfiguredProgram(program.replace(protocol="Simple"), Knobs("Simple"))


@pytest.mark.parametrize(
    ("profile", "hosts", "layout", "kind"),
    [("ndv2", 1, "tp=2", "dp"), ("l40sx8", 2, "tp=2", "dp"), ("v100x4", 2, "tp=4", "dp"),
     ("ndv2", 2, "tp=8", "dp"), ("dgx-a100", 2, "tp=4", "tp")],
)  # fmt: skip
def test_no_groups_beat_the_bound_in_simulation(
    profile: str, hosts: int, layout: str, kind: str
) -> None:
    host = load_profile(profile)
    topology = join(host, hosts) if hosts > 1 else host
    groups = megatron_groups(layout, topology.ranks).kind(kind).groups
    orbits = group_orbits(topology, groups)
    for collective in FLOW_COLLECTIVES:
        for nbytes in (1 << 12, 1 << 20, 1 << 28):
            for choose in (nccl_choice(), mesh):
                found = time_groups(topology, groups, orbits, collective, nbytes, choose)
                assert found.bound_us <= found.together_us
                assert found.bound_us >= (found.bound.rule_us("alone") or 0)


def test_flows_see_what_single_cuts_do_not() -> None:
    """Two groups of every other GPU of a cube mesh share the links between its squares."""
    groups = megatron_groups("tp=2", 8).kind("dp").groups
    joint = joint_bound(load_profile("ndv2"), kind_calls(groups, "allreduce", 1 << 28))
    others = max(rule.us for rule in joint.rules if rule.name != "flow")
    assert joint.binding.name == "flow" and joint.us > 1.15 * others


def test_calls_with_a_root_are_bounded_alone() -> None:
    topology = star(8)
    calls = kind_calls(PAIRS, "broadcast", GIB)
    assert joint_flow(topology, calls) is None
    assert joint_bound(topology, calls).binding.name == "alone"
    mixed = [*calls, Call((0, 8), "allgather", GIB)]
    assert joint_bound(topology, mixed).us >= joint_bound(topology, mixed[-1:]).us


def test_too_many_routes_or_flows_leave_the_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, calls = star(1), kind_calls(PAIRS, "allgather", 3 * GIB)
    for name, what in (("_MOST_ROUTES", "16 routes"), ("_MOST_FLOWS", "flows")):
        module._solved.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 1)
            joint = joint_bound(topology, calls)
        assert what in joint.why_no_flow and joint.rule_us("flow") is None
        assert joint.us == pytest.approx(3 * GIB / 2 / 10e3, rel=1e-2)


def test_without_ortools_the_cuts_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    module._solved.cache_clear()
    for name in ("ortools", "ortools.linear_solver"):
        monkeypatch.setitem(sys.modules, name, None)
    joint = joint_bound(star(8), kind_calls(PAIRS, "allgather", GIB))
    assert "OR-Tools is not installed" in joint.why_no_flow
    assert joint.us == pytest.approx(8 * GIB / 2 / 10e3)
    with pytest.raises(InputError, match="pip install"):
        joint_flow(star(8), kind_calls(PAIRS, "allgather", GIB))


def test_the_verb_bounds_a_layout(tuccl: Tuccl, tmp_path: Path) -> None:
    machine = tmp_path / "t.json"
    tuccl("probe", "--profile", "v100x4", "--nodes", "2", "-o", machine)
    words = ("bound", machine, "--layout", "tp=4", "-c", "dp:allreduce,tp:allgather")
    answer = tuccl(*words, "-s", "1M:64M:x64")
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()[2:]]
    assert [line[:2] for line in lines] == [
        ["calls", "size"], ["dp:allreduce", "1M"], ["dp:allreduce", "64M"],
        ["tp:allgather", "1M"], ["tp:allgather", "64M"],
    ]  # fmt: skip
    alone, cut, together = (float(lines[2][place]) for place in (2, 3, 6))
    assert together >= cut == pytest.approx(2 * alone, rel=0.01)
    assert "268 MB out of n0 over 25 GB/s" in answer.out
    answer = tuccl(*words, "-s", "64M", "--concurrent", "all", "--json")
    [row] = map(json.loads, answer.out.splitlines())
    assert row["calls"] == ["dp:allreduce", "tp:allgather"] and row["size"] == 64 << 20
    assert set(row["rules_us"]) == {"alone", "cut", "hosts", "flow"}
    assert row["joint_us"] == max(row["rules_us"].values()) >= together * (1 - 1e-3)
    for bad, why in (
        (("-c", "allreduce", "-s", "1M"), "add --layout"),
        (("--layout", "tp=4", "-s", "1M"), "-c and -s: expected both"),
        (("--layout", "tp=4", "-c", "dp:allreduce"), "-c and -s: expected both"),
        (("--layout", "tp=4", "-c", "allreduce", "-s", "1M"), "expected KIND:COLLECTIVE"),
        (("--layout", "tp=4", "-c", "dp:allreduce", "-s", "1M", "--root", "1"), "--root"),
        (
            ("--layout", "tp=4", "-c", "dp:allreduce", "-s", "1M", "--concurrent", "some"),
            "expected kind or all",
        ),
    ):
        answer = tuccl("bound", machine, *bad)
        assert answer.code == 2 and why in answer.err and answer.err.count("\n") == 1
