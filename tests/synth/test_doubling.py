"""Doubling along rails: pieces of hosts' blocks, for very many hosts; and the sketch for these."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from reference_fabrics import a100_pod
from tuccl.errors import Infeasible, InputError
from tuccl.program import Program, parse_xml, verify
from tuccl.sketches import Sketch
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, Schedule, lower, make_schedule
from tuccl.synth.bounds.bound import bound
from tuccl.synth.bounds.cuts import allgather_cut
from tuccl.synth.bounds.graph import topology_fabric
from tuccl.synth.bounds.hops import longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.model.certificate import verify_schedule
from tuccl.topology import Topology, join, keep_gpus, load_profile

NAMES = ("allgather", "reduce-scatter", "allreduce")
LARGE, SMALL = 1 << 30, 1 << 10


def quads(hosts: int) -> Topology:
    """Hosts of four GPUs that share a NIC."""
    return join(load_profile("v100x4"), hosts)


def made(
    t: Topology,
    name: str,
    nbytes: int = LARGE,
    chunks: int = 1,
    sketch: Sketch | None = None,
    method: str = "hierarchical-doubling",
) -> Schedule:
    problem = Problem(Collective(name, t.ranks), sketch or rails(t), chunks, nbytes, t)
    return make_schedule(problem, method)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nbytes", [LARGE, SMALL])
@pytest.mark.parametrize(
    ("t", "chunks"),
    [(a100_pod(3), 1), (a100_pod(9), 2), (quads(12), 1), (quads(6), 3)],
)
def test_programs_are_sound_in_and_out_of_place(
    t: Topology, chunks: int, nbytes: int, name: str
) -> None:
    for method in ("hierarchical-doubling", "hierarchical-doubling+split"):
        schedule = made(t, name, nbytes, chunks, method=method)
        assert schedule.method == method
        assert verify_schedule(schedule) is None
        assert verify_schedule(schedule, in_place=True) is None
        program = lower(schedule)
        assert verify(program, "executor", 0).ok
        assert program.in_place
        assert program.out_of_place


@pytest.mark.parametrize("name", NAMES)
def test_each_block_crosses_once_to_each_host_and_rails_carry_the_same(name: str) -> None:
    t = a100_pod(9)
    crossed = Counter[int]()
    for (src, dst), chunks in made(t, name).sent.items():
        if src // 8 != dst // 8:
            assert src % 8 == dst % 8
            crossed[src] += chunks
    halves = 2 if name == "allreduce" else 1
    assert set(crossed.values()) == {halves * 8}  # blocks of 8 chunks for 8 other hosts, on 8 rails
    assert fraction_of_bound(lower(made(t, name)), t, Collective(name, t.ranks)) > 0.99


def test_large_calls_keep_rails_even_and_small_ones_send_few_messages() -> None:
    t = a100_pod(16)

    def rail_messages(nbytes: int) -> Counter[int]:
        transfers = made(t, "allgather", nbytes).transfers
        return Counter(x.src % 8 for x in transfers if x.src // 8 != x.dst // 8)

    # Large: each local rank has its own chunk of the 15 others. Small: a whole block of every
    # eighth host.
    assert set(rail_messages(LARGE).values()) == {15}
    assert set(rail_messages(SMALL).values()) == {1, 2}


@pytest.mark.parametrize(("hosts", "rounds"), [(5, 1), (9, 2), (17, 3), (21, 3), (33, 4)])
def test_messages_in_a_row_grow_by_one_as_hosts_double(hosts: int, rounds: int) -> None:
    """One inside the block's host, one to the first in charge, doublings, one inside hosts."""
    assert longest_chain(made(quads(hosts), "allgather", SMALL)) == 2 + rounds


def test_steps_stay_within_a_thread_block(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["tuccl.synth.classic.rail_doubling"]
    t = quads(17)
    one = lower(made(t, "allreduce", SMALL))
    monkeypatch.setattr(module, "_MOST_STEPS", 3)
    several = lower(made(t, "allreduce", SMALL))
    assert several.max_steps < one.max_steps
    assert verify(several, "executor", 0).ok


def test_what_it_does_not_serve_is_refused() -> None:
    uneven = keep_gpus(a100_pod(4), range(30))
    for t, why in ((a100_pod(2), "2 hosts of 8"), (uneven, "differ in size")):
        with pytest.raises(Infeasible, match=why):
            made(t, "allgather")
    t = a100_pod(4)
    sketch = rails(t)
    carried = changed(sketch, relays={0: (0, 1)})
    with pytest.raises(Infeasible, match="relay rule"):
        made(t, "allgather", sketch=carried)
    fewer = tuple(link for link in sketch.links if (link.src, link.dst) != (0, 1))
    with pytest.raises(Infeasible, match="from 0 to 1"):
        made(t, "allgather", sketch=changed(sketch, links=fewer))


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `rails` of any number of ranks leave out what methods do not use."""
    monkeypatch.setattr(sys.modules["tuccl.sketches.rails"], "_MANY", 0)
    monkeypatch.setattr(sys.modules["tuccl.sketches.rails"], "_MOST_PEERS", 20)


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("hosts", [5, 9, 18])
@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, "hierarchical-doubling") for name in NAMES),
        *((name, "hierarchical3") for name in ("alltoall", "scatter", "gather", "broadcast")),
        ("reduce", "hierarchical3"),
    ],
)
def test_the_sparse_sketch_has_what_methods_use(name: str, method: str, hosts: int) -> None:
    t = quads(hosts)
    sketch = rails(t, name)
    for nbytes in (LARGE, SMALL):
        problem = Problem(Collective(name, t.ranks), sketch, 2, nbytes, t)
        schedule = make_schedule(problem, method)
        assert verify_schedule(schedule) is None


@pytest.mark.usefixtures("sparse")
def test_the_sparse_sketch_has_few_links() -> None:
    t = quads(60)
    assert len(rails(t, "allgather").links) < 60 * 4 * (3 + 20)  # of 59 on each rail


def test_very_many_ranks_are_on_equal_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = keep_gpus(a100_pod(4), range(30))
    assert rails(uneven).ranks == 30
    monkeypatch.setattr(sys.modules["tuccl.sketches.rails"], "_MOST_JOINED", 29)
    with pytest.raises(InputError, match="as many on each host"):
        rails(keep_gpus(a100_pod(4), range(30)))


@pytest.mark.parametrize("t", [a100_pod(3), quads(5), join(load_profile("ndv2"), 3)])
def test_representatives_of_a_fabric_have_its_cuts_and_diameter(t: Topology) -> None:
    fabric = topology_fabric(t)
    assert len(fabric.representatives) == t.ranks // len(t.hosts)
    whole = replace(fabric, spots=())
    assert allgather_cut(fabric).ratio == allgather_cut(whole).ratio
    assert allgather_cut(fabric.reverse).ratio == allgather_cut(whole.reverse).ratio
    assert bound(t, "allgather").latency_us == max(
        max(whole.latencies(rank)[: t.ranks]) for rank in range(t.ranks)
    )


def file_of(ranks: int) -> Program:
    """A file in which each rank copies its own chunk: a program for no collective."""
    gpu = (
        '<gpu id="{0}" i_chunks="1" o_chunks="{1}" s_chunks="0"><tb id="0" send="-1" recv="-1" '
        'chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{0}" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/></tb></gpu>'
    )
    gpus = "".join(gpu.format(rank, ranks) for rank in range(ranks))
    return parse_xml(
        f'<algo name="a" proto="Simple" nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" '
        f'coll="allgather" inplace="0" outofplace="1" minBytes="0" maxBytes="0">{gpus}</algo>'
    )


def test_only_tuccl_reads_a_program_of_more_than_1024_gpus() -> None:
    few, many = file_of(1024), file_of(1025)
    for dialect in ("executor", "rccl"):
        assert not [e for e in verify(few, dialect, 0).errors if e.code == "limit"]
    assert [e.message for e in verify(many, "rccl", 0).errors if e.code == "limit"]
    own = verify(many, "executor", 0)
    assert not [e for e in own.errors if e.code == "limit"]
    assert any("only tuccl's own" in w.message for w in own.warnings)
