"""Broadcast and reduce of several hosts go along two complementary trees of hosts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from reference_fabrics import a100_pod
from tuccl.program import verify
from tuccl.sketches import Sketch
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.bounds.hops import longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.hierarchy import complementary_trees
from tuccl.topology import join, load_profile
from tuccl.tuning import synthesize


@pytest.mark.parametrize("count", range(2, 66))
def test_two_trees_span_all_and_no_node_has_children_in_both(count: int) -> None:
    inner = []
    for edges in complementary_trees(count):
        steps = {0: 0}
        for parent, child in edges:
            assert child not in steps
            steps[child] = steps[parent] + 1
        assert sorted(steps) == list(range(count))
        assert max(steps.values()) <= count.bit_length()
        children = Counter(parent for parent, _ in edges)
        assert children.pop(0) == 1
        assert max(children.values(), default=0) <= 2
        inner.append(set(children))
    assert not inner[0] & inner[1]


@pytest.mark.parametrize("root", [0, 13])
@pytest.mark.parametrize("name", ["broadcast", "reduce"])
@pytest.mark.parametrize("hosts", [3, 6, 9])
def test_hosts_send_as_much_as_they_receive(hosts: int, name: str, root: int) -> None:
    t = a100_pod(hosts)
    size = t.ranks // hosts
    problem = Problem(Collective(name, t.ranks, root), rails(t), 2, 64 << 20, t)
    schedule = make_schedule(problem, "hierarchical3")
    program = lower(schedule)
    assert verify_schedule(schedule) is None
    assert verify_schedule(schedule, in_place=True) is None
    assert verify(program, "executor", root).ok
    away, towards = Counter[int](), Counter[int]()  # chunks between hosts, as seen from the root
    for x in schedule.transfers:
        if x.src // size != x.dst // size:
            near, far = (x.src, x.dst) if name == "broadcast" else (x.dst, x.src)
            away[near] += x.count
            towards[far] += x.count
    share = 2 * hosts  # chunks of a rank's lane
    for rank in range(t.ranks):
        at_root = rank // size == root // size
        assert towards[rank] == (0 if at_root else share)
        assert away[rank] == share if at_root else away[rank] <= share
    # Into or out of the root's host, over few hosts, and inside another.
    assert longest_chain(schedule) <= 2 + hosts.bit_length() + 2
    assert fraction_of_bound(program, t, problem.collective) == pytest.approx(1)


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_hosts_that_are_joined_in_a_ring_pass_on_in_a_chain(
    name: str,
    mesh: Callable[..., Sketch],
    run_schedule: Callable[..., bool],
) -> None:
    whole = mesh([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "rail")
    ring = [x for x in whole.links if (whole.hosts[x.dst] - whole.hosts[x.src]) % 5 in (0, 1, 4)]
    sketch = replace(whole, links=tuple(ring))
    schedule = make_schedule(Problem(Collective(name, 10, 3), sketch, 2), "hierarchical3")
    assert run_schedule(schedule, random.Random(0), False)
    assert longest_chain(schedule) >= 5


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
@pytest.mark.parametrize("profile", ["ndv2", "dgx-2", "ndv4"])
def test_hosts_with_fewer_nics_than_gpus_fit_their_sms(profile: str, name: str) -> None:
    t = join(load_profile(profile), 5)
    problem = Problem(Collective(name, t.ranks, 1), rails(t), 1, 64 << 20, t)
    schedule = make_schedule(problem, "hierarchical3")
    assert lower(schedule).threadblocks <= 80
    assert longest_chain(schedule) <= 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("broadcast", 0.4), ("reduce", 0.36)])
def test_1024_gpus_reach_a_good_part_of_the_bound_at_64_mib(name: str, share: float) -> None:
    t = join(load_profile("dgx-h100"), 128)
    best = synthesize(t, name, 64 << 20, channels=1).best
    assert best.method == "hierarchical3"
    assert bound(t, name).time_us(64 << 20) / best.time_us >= share
    assert best.program.threadblocks <= 132
