"""The greedy method: right on every sketch, within the sketch's rules, never past the bound."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from msgspec.structs import replace

from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs
from tuccl.simulation import simulate
from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.sketches.sketch import LogicalLink
from tuccl.synth.bounds.bound import bound
from tuccl.synth.greedy.greedy import greedy
from tuccl.synth.lowering.lower import lower
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.topology import Topology, join, load_machine, load_profile, network

MACHINES = ("v100x4 x1", "v100x4 x2", "dgx-1v x1", "ndv2 x2", "dgx-a100 x2")


def machine(name: str) -> Topology:
    profile, hosts = name.split(" x")
    t = load_profile(profile)
    return join(t, int(hosts)) if int(hosts) > 1 else t


@pytest.fixture(scope="module", params=MACHINES)
def t(request: pytest.FixtureRequest) -> Topology:
    return machine(str(request.param))


def links_used(schedule: Schedule) -> set[tuple[int, int]]:
    return {(move.src, move.dst) for move in schedule.transfers if not move.local}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_right_on_every_sketch_over_its_links_alone(t: Topology, name: str) -> None:
    collective = Collective(name, t.ranks, root=t.ranks - 1)
    sketches = candidate_sketches(t, name, 1 << 20)
    for sketch in (sketches[0], sketches[-1]):
        schedule = greedy(Problem(collective, sketch, 2, 1 << 20))
        assert verify_schedule(schedule) is None
        assert links_used(schedule) <= {(link.src, link.dst) for link in sketch.links}


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 26])
def test_programs_verify_and_keep_to_the_bound(t: Topology, name: str, nbytes: int) -> None:
    """`lower` proves the program; in the ideal machine class nothing beats the cut bound."""
    collective = Collective(name, t.ranks)
    program = lower(greedy(Problem(collective, full_mesh(t), 1, nbytes)))
    size = -(-nbytes // program.nchunks) * program.nchunks
    ideal = load_machine("ideal")
    result = simulate(program, Knobs("Simple", 1, 512), network(t), ideal, size)
    assert result.time_us >= bound(t, collective).time_us(size) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["allgather", "broadcast"])
def test_each_chunk_reaches_each_rank_once_and_enters_each_host_once(name: str) -> None:
    t = machine("ndv2 x2")
    sketch = full_mesh(t)
    schedule = greedy(Problem(Collective(name, 16), sketch, 1, 1 << 24))
    arrivals: Counter[tuple[int, int]] = Counter()
    crossings: Counter[tuple[int, int]] = Counter()
    for move in schedule.transfers:
        for chunk in range(move.dst_at.offset, move.dst_at.offset + move.count):
            if not move.local:
                arrivals[chunk, move.dst] += 1
                if sketch.hosts[move.src] != sketch.hosts[move.dst]:
                    crossings[chunk, sketch.hosts[move.dst]] += 1
    assert set(arrivals.values()) == {1}
    assert set(crossings.values()) == {1}


def test_relay_rule_is_kept() -> None:
    t = machine("ndv2 x2")
    pairs = next(s for s in candidate_sketches(t, "allgather", 1 << 26) if s.relays)
    schedule = greedy(Problem(Collective("allgather", 16), pairs, 2, 1 << 26))
    carried = defaultdict(set)
    for move in schedule.transfers:
        if pairs.hosts[move.src] != pairs.hosts[move.dst]:
            carried[move.src].add(move.dst_at.offset // 2)
    assert carried
    for sender, owners in carried.items():
        assert owners <= set(pairs.relays[sender])


def test_equal_arguments_give_equal_schedules() -> None:
    sketch = full_mesh(machine("v100x4 x2"))
    once, again = (
        greedy(Problem(Collective("allreduce", 8), sketch, 2, 1 << 20)) for _ in range(2)
    )
    assert once == again


def test_a_switch_port_is_shared() -> None:
    """At large sizes no port of an NVSwitch gets more than its share of an allgather, or nearly."""
    sketch = full_mesh(load_profile("dgx-a100"))
    schedule = greedy(Problem(Collective("allgather", 8), sketch, 4, 1 << 28))
    sent = Counter(m.src for m in schedule.transfers for _ in range(m.count) if not m.local)
    assert max(sent.values()) <= 7 * 4 * 1.1


def line(ranks: int, hosts: tuple[int, ...], pairs: list[tuple[int, int]]) -> Sketch:
    links = (
        LogicalLink(
            src=src, dst=dst, inter=hosts[src] != hosts[dst], alpha_us=1.0, beta_us_per_mb=40.0
        )
        for src, dst in pairs
    )
    return Sketch(name="line", ranks=ranks, hosts=hosts, links=tuple(links))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_path_of_ranks_is_enough(name: str) -> None:
    there = [(0, 1), (1, 2), (2, 3)]
    sketch = line(4, (0, 0, 1, 1), there + [(b, a) for a, b in there])
    schedule = greedy(Problem(Collective(name, 4, root=1), sketch, 1, 4096))
    assert verify_schedule(schedule) is None
    assert verify_schedule(schedule, in_place=True) is None or name == "alltoall"


@pytest.mark.parametrize("name", COLLECTIVES)
def test_an_unreachable_rank_is_named(name: str) -> None:
    sketch = line(4, (0, 0, 1, 1), [(0, 1), (1, 0), (2, 3), (3, 2)])
    with pytest.raises(Infeasible, match=r"rank .*cannot reach rank"):
        greedy(Problem(Collective(name, 4), sketch, 1, 4096))


@pytest.mark.parametrize("name", ["allgather", "alltoall", "scatter"])
def test_the_relay_rule_is_named(name: str) -> None:
    there = [(0, 1), (1, 2), (2, 3)]
    whole = line(4, (0, 0, 1, 1), there + [(b, a) for a, b in there])
    nobody = replace(whole, relays={1: (1,), 2: (2, 3)})
    with pytest.raises(Infeasible, match="relay rule"):
        greedy(Problem(Collective(name, 4), nobody, 1, 4096))


def test_ranks_must_agree() -> None:
    sketch = full_mesh(load_profile("v100x4"))
    with pytest.raises(InputError, match=r"8 ranks on sketch .* of 4 ranks"):
        greedy(Problem(Collective("allgather", 8), sketch))


def test_many_ranks() -> None:
    t = join(load_profile("dgx-a100"), 8)
    schedule = greedy(Problem(Collective("allgather", 64), full_mesh(t), 1, 1 << 26))
    assert schedule.period == 0
    assert sum(schedule.sent.values()) == 64 * 63
