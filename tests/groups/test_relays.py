"""Bounds with relays through non-members: by hand, by all cuts of small machines, on profiles."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, combinations, permutations
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tests.groups.test_joint_flow import GIB, flow, small_flow, star
from tuccl.errors import InputError
from tuccl.groups import joint_flow as module
from tuccl.groups.bounds import joint_bound, kind_calls
from tuccl.groups.joint_flow import FLOW_COLLECTIVES, Call
from tuccl.groups.layout import megatron_groups
from tuccl.topology import Link, Node, Topology, join, load_profile
from tuccl.topology.paths import find_path

# What a member of a pair sends to the other, as a part of the array.
SENT = {"allgather": 0.5, "reduce-scatter": 0.5, "alltoall": 0.5, "allreduce": 1.0}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("collective", FLOW_COLLECTIVES)
def test_a_side_of_a_square_has_the_other_three_too(collective: str, symmetric: bool) -> None:
    square = load_profile("mesh-2x2")  # 0 - 1, 2 - 3, 0 - 2, 1 - 3: links of 50 GB/s

    def ns_per_byte(*groups: tuple[int, int]) -> list[float]:
        calls = kind_calls(groups, collective, GIB)
        return [
            flow(square, calls, symmetric=symmetric, relays=relays).ns_per_byte * 50
            for relays in (False, True)
        ]

    sent = SENT[collective]
    assert ns_per_byte((0, 1)) == pytest.approx([sent, sent / 2], rel=1e-6)
    # Two sides at once: what one gains in the links across the other loses.
    assert ns_per_byte((0, 1), (2, 3)) == pytest.approx([sent, sent], rel=1e-6)


@pytest.mark.parametrize("collective", FLOW_COLLECTIVES)
def test_only_relays_join_the_corners_of_a_square(collective: str) -> None:
    square, calls = load_profile("mesh-2x2"), [Call((0, 3), collective, GIB)]
    with pytest.raises(InputError):
        joint_bound(square, calls)
    bound = joint_bound(square, calls, relays=True)
    # Out of a corner go 100 GB/s.
    assert bound.rule_us("alone") is None
    assert bound.rule_us("cut") == pytest.approx(SENT[collective] * GIB / 100e3, rel=1e-6)
    assert bound.us == pytest.approx(SENT[collective] * GIB / 100e3, rel=1e-3)


@pytest.mark.parametrize(
    ("collective", "sent"),
    [("allgather", 2 / 3), ("reduce-scatter", 2 / 3), ("alltoall", 2 / 3), ("allreduce", 1)],
)
def test_a_non_member_in_the_middle_copies_and_adds_up(collective: str, sent: float) -> None:
    """Three members round one GPU: each link carries what one member lacks, or all of a sum."""
    nodes = tuple(Node(f"g{n}", "gpu", "h", n) for n in range(4))
    links = tuple(Link("g3", f"g{n}", "nvlink", 10.0, 0.5, duplex=True) for n in range(3))
    calls = [Call((0, 1, 2), collective, GIB)]
    for symmetric in (True, False):
        found = flow(Topology("hub", nodes, links), calls, symmetric=symmetric, relays=True)
        assert found.ns_per_byte * 10 == pytest.approx(sent, rel=1e-6)


def test_idle_gpus_of_a_switch_add_up_an_allreduce() -> None:
    """Servers of parameters: a member sends and gets each element once, not 2 (p - 1) / p times."""
    topology, groups = star(1), megatron_groups("tp=4", 16).kind("dp").groups
    for calls, ns in ((groups[:1], [0.15, 0.1]), (groups, [0.15, 0.15])):
        made = kind_calls(calls, "allreduce", GIB)
        found = [flow(topology, made, relays=relays).ns_per_byte for relays in (False, True)]
        assert found == pytest.approx(ns, rel=1e-6)


@pytest.mark.parametrize(
    ("profile", "layout"), [("dgx-a100", "tp=4"), ("dgx-h100", "tp=2"), ("torus-4x4", "tp=4")]
)
@pytest.mark.parametrize("collective", FLOW_COLLECTIVES)
def test_groups_that_fill_all_links_gain_nothing(
    profile: str, layout: str, collective: str
) -> None:
    """A switch is full where each GPU calls; rows of a torus cross its columns on all its links."""
    topology = load_profile(profile)
    for kind in megatron_groups(layout, topology.ranks).kinds:
        calls = kind_calls(kind.groups, collective, GIB)
        alone, relayed = (flow(topology, calls, relays=each).ns_per_byte for each in (False, True))
        assert relayed == pytest.approx(alone, rel=1e-6)


def required(call: Call, ranks: int) -> Iterator[tuple[list[tuple[int, int]], float]]:
    """Pairs of ranks that together must send so many bytes, for each cut that limits a call.

    Of an allreduce: a tree from its first member, which carries all of the array.
    """
    size = len(call.members)
    for inside in (set(each) for n in range(1, ranks) for each in combinations(range(ranks), n)):
        within = len(inside & {*call.members})
        shards = {
            "allgather": within if within < size else 0,
            "reduce-scatter": size - within if within else 0,
            "allreduce": size if call.members[0] in inside and within < size else 0,
        }[call.collective]
        pairs = permutations(range(ranks), 2)
        yield (
            [(a, b) for a, b in pairs if a in inside and b not in inside],
            shards * call.nbytes / size,
        )


def least_ns_by_cuts(topology: Topology, calls: list[Call]) -> float:
    """The same least time from a linear program of all cuts, which has no flows."""
    optimize = pytest.importorskip("scipy.optimize")
    paths = {p: find_path(topology, *p) for p in permutations(range(topology.ranks), 2)}
    number: dict[tuple[object, ...], int] = defaultdict(lambda: len(number) + 1)
    rows: list[tuple[float, dict[int, float]]] = []
    loads: dict[object, Counter[int]] = defaultdict(Counter)
    rates: dict[object, float] = {}
    for n, call in enumerate(calls):
        for pair, path in paths.items():
            assert path is not None
            for hop in path.hops:
                loads[hop][number[n, pair]] += 1
                rates[hop] = hop.bandwidth
            if call.collective == "allreduce":
                half = {number[n, each]: -1.0 for each in (pair, pair[::-1])}
                tree = {number[n, each, "tree"]: 2.0 for each in (pair, pair[::-1])}
                rows.append((0.0, {**half, **tree}))
        kind = ("tree",) if call.collective == "allreduce" else ()
        for crossing, nbytes in required(call, topology.ranks):
            rows.append((-nbytes / GIB, {number[n, pair, *kind]: -1.0 for pair in crossing}))
    rows += [(0.0, {**terms, 0: -rates[hop]}) for hop, terms in loads.items()]
    matrix = [[row.get(n, 0.0) for n in range(len(number) + 1)] for _, row in rows]
    most = [each for each, _ in rows]
    return float(optimize.linprog([1.0] + [0.0] * len(number), matrix, most).fun) * GIB


@pytest.mark.parametrize("seed", range(8))
def test_flows_with_relays_need_as_long_as_all_cuts_say(seed: int) -> None:
    topology, calls, ns = small_flow(seed, relays=True)
    assert ns == pytest.approx(least_ns_by_cuts(topology, calls), rel=1e-6)
    assert ns <= small_flow(seed)[2] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("profile", "hosts", "layout"),
    [("dgx-1v", 1, "tp=2"), ("v100x4", 3, "tp=2"), ("l40sx8", 1, "tp=4"), ("mesh-2x4", 1, "tp=4"),
     ("mi300x", 1, "tp=4"), ("ndv2", 1, "tp=4")],
)  # fmt: skip
def test_equivalent_flows_are_one_variable_and_relays_take_no_longer(
    profile: str, hosts: int, layout: str
) -> None:
    host = load_profile(profile)
    topology = join(host, hosts) if hosts > 1 else host
    job = megatron_groups(layout, topology.ranks)
    for collective in FLOW_COLLECTIVES:
        together = [kind_calls(kind.groups, collective, GIB) for kind in job.kinds]
        for calls in (*together, list(chain(*together))):
            relayed = flow(topology, calls, relays=True).ns_per_byte
            assert relayed <= flow(topology, calls).ns_per_byte * (1 + 1e-9)
            whole = flow(topology, calls, relays=True, symmetric=False).ns_per_byte
            assert relayed == pytest.approx(whole, rel=1e-6)
    everyone = [Call(tuple(range(topology.ranks)), "allreduce", GIB)]
    assert flow(topology, everyone, relays=True) == flow(topology, everyone)


def test_a_relay_between_hosts_has_the_rates_of_all_hosts() -> None:
    """A pair on two of three hosts in a ring: the third one's links carry as much again."""
    nodes = tuple(Node(f"g{n}", "gpu", f"n{n}", n) for n in range(3))
    ends = (("g0", "g1"), ("g1", "g2"), ("g2", "g0"))
    links = tuple(Link(*pair, "network", 10.0, 2.0, duplex=True) for pair in ends)
    calls = [Call((0, 1), "allreduce", GIB)]
    topology = Topology("ring", nodes, links)
    found = joint_bound(topology, calls), joint_bound(topology, calls, relays=True)
    assert [each.rule_us("flow") for each in found] == pytest.approx(
        [GIB / 10e3, GIB / 20e3], rel=1e-3
    )
    assert found[1].rule_us("hosts") == pytest.approx(2 * GIB / 60e3, rel=1e-6)


def test_too_many_flows_leave_the_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [Call((0, 1), "allgather", GIB)]
    monkeypatch.setattr(module, "_MOST_FLOWS", 20)  # between all 8 GPUs, not between the members
    topology = load_profile("dgx-1v")
    assert joint_bound(topology, calls).rule_us("flow") is not None
    bound = joint_bound(topology, calls, relays=True)
    assert "flows between GPUs" in bound.why_no_flow and bound.binding.name == "cut"


def test_the_verb_prints_a_second_bound(tuccl: Tuccl, tmp_path: Path) -> None:
    machine = tmp_path / "t.json"
    tuccl("probe", "--profile", "mesh-2x4", "-o", machine)
    words = ("bound", machine, "--layout", "tp=2", "-c", "tp:allreduce", "-s", "64M")
    assert "relays" not in tuccl(*words).out
    answer = tuccl(*words, "--relays")
    assert answer.code == 0 and "which programs of NCCL and MSCCL do not have" in answer.out
    [row] = map(json.loads, tuccl(*words, "--relays", "--json").out.splitlines())
    assert f"{row['joint_us']:.1f}  " in answer.out and f"{row['relays_us']:.1f}  " in answer.out
    assert row["relays_us"] <= row["joint_us"] and row["relays_why_no_flow"] == ""
    # Even columns: no links of members alone join them.
    words = ("bound", machine, "--layout", "tp=2", "-c", "dp:allreduce", "-s", "64M")
    assert tuccl(*words).code == 2
    [row] = map(json.loads, tuccl(*words, "--relays", "--json").out.splitlines())
    assert row["joint_us"] is None and row["relays_us"] > 0
    words = ("bound", machine, "--layout", "tp=2", "-c", "tp:broadcast", "-s", "64M")
    assert json.loads(tuccl(*words, "--relays", "--json").out)["relays_us"] is None
    assert " - " in tuccl(*words, "--relays").out.splitlines()[-1]
    answer = tuccl("bound", machine, "--relays")
    assert answer.code == 2 and "--relays: expected groups" in answer.err
