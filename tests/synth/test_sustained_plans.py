"""Plans that thread blocks sustain: order, channels and blocks of `packing`, by simulation."""

from __future__ import annotations

import random

import pytest

from class_allowance import allowed_gbs, share_of_allowance
from reference_fabrics import cube_mesh, random_fabric
from tuccl.program import Knobs, Program, verify
from tuccl.simulation import simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.model.send import Send
from tuccl.synth.packing.modulo_order import modulo_order
from tuccl.synth.packing.packing import packing_chunks
from tuccl.topology import Link, Node, Topology, join, load_machine, load_profile, machine_of
from tuccl.topology import network as links_of


def irregular() -> Topology:
    """Return two hosts of 4 GPUs with unequal links inside and two unequal links between."""
    nodes = tuple(Node(f"g{n}", "gpu", f"n{n // 4}", n, "V100") for n in range(8))
    pairs = [(0, 1, 50), (1, 2, 25), (2, 3, 50), (0, 3, 25), (0, 2, 25)]
    ends = [(a + 4 * h, b + 4 * h, gbs) for h in (0, 1) for a, b, gbs in pairs]
    links = [Link(f"g{a}", f"g{b}", "nvlink", gbs, 0.7, duplex=True) for a, b, gbs in ends]
    links += [Link("g1", "g6", "network", 12.5, 1.0, duplex=True)]
    links += [Link("g3", "g4", "network", 25.0, 1.0, duplex=True)]
    return Topology("irregular", nodes, tuple(links))


def uneven_rates() -> Topology:
    """Return seed 7 of benchmarks/random_fabrics.py: 8 GPUs, on which blocks used to wait."""
    rng = random.Random(7)
    rng.choice(range(5))
    rng.random()
    fabric: Topology = random_fabric(rng)
    return fabric


def program_of(t: Topology, collective: Collective) -> Program:
    mesh = full_mesh(t)
    [chunks] = packing_chunks(collective, mesh, t)
    program = lower(make_schedule(Problem(collective, mesh, chunks, 1 << 30, t), "packing"))
    assert verify(program, "executor", collective.root).ok
    return program


def ideal_share(program: Program, t: Topology, collective: Collective) -> float:
    """Return the share of the bound of a long run where only the links take time."""
    nbytes = program.nchunks << 26
    knobs = Knobs("Simple", 1, 512, 1 << 20)
    run = simulate(program, knobs, links_of(t), load_machine("ideal"), nbytes)
    return nbytes / run.time_us / 1e3 / bound(t, collective).algbw_gbs


@pytest.mark.parametrize(
    ("t", "name"),
    [
        (irregular(), "allreduce"),
        (irregular(), "allgather"),
        (uneven_rates(), "allreduce"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_blocks_keep_pace_with_the_links(t: Topology, name: str) -> None:
    collective = Collective(name, t.ranks)
    assert ideal_share(program_of(t, collective), t, collective) >= 0.95


@pytest.mark.parametrize("t", [irregular(), uneven_rates()], ids=lambda t: t.name)
def test_irregular_fabrics_reach_what_the_class_allows(t: Topology) -> None:
    assert share_of_allowance(t, Collective("allreduce", t.ranks)) >= 0.9


def test_the_allowance_is_below_the_bound_and_that_of_the_links_alone_on_an_ideal_machine() -> None:
    t, collective = cube_mesh(), Collective("allreduce", 8)
    limit = bound(t, collective).algbw_gbs
    assert allowed_gbs(t, collective, load_machine("ideal")) == pytest.approx(limit)
    plain = load_machine("plain")
    assert allowed_gbs(t, collective, plain) == pytest.approx(limit * plain.nvlink_efficiency)


@pytest.mark.parametrize("t", [irregular(), join(load_profile("dgx-2"), 2)], ids=lambda t: t.name)
def test_no_block_serves_both_halves_of_an_allreduce(t: Topology) -> None:
    program = program_of(t, Collective("allreduce", t.ranks))
    sms = machine_of(t).sm_count
    for gpu in program.gpus:
        assert len(gpu.threadblocks) <= sms
        for block in gpu.threadblocks:
            assert min(block.send_peer, block.recv_peer) < 0
            ops = {step.op for step in block.steps}
            assert not {"rrc", "r"} <= ops


def test_fast_links_get_lanes_where_copies_do_not_fit() -> None:
    """A star over 600 GB/s links wants more blocks than copies of the program may have."""
    nodes = tuple(Node(f"g{n}", "gpu", "n0", n) for n in range(5))
    links = [Link("g0", "g1", "nvlink", 600.0, 0.7, duplex=True)]
    links += [Link("g0", f"g{n}", "nvlink", 400.0, 0.7, duplex=True) for n in (2, 3, 4)]
    t = Topology("star", nodes, tuple(links))
    collective = Collective("broadcast", 5)
    program = program_of(t, collective)
    wide = [
        sum(block.send_peer == peer for block in program.gpus[0].threadblocks)
        for peer in range(1, 5)
    ]
    assert max(wide) > 1
    assert verify(program, "executor", 0).ok


def chain_of_two_ways() -> tuple[list[Send], list[str], list[float]]:
    """Chunk x goes from block a to b, chunk y from b to a: half a pass each."""
    sends = [Send(0, 0, 1), Send(0, 1, 2, after=(0,)), Send(1, 1, 2), Send(1, 0, 1, after=(2,))]
    return sends, ["a", "b", "b", "a"], [0.5] * 4


def test_modulo_order_has_each_block_do_first_what_others_wait_for() -> None:
    sends, blocks, durations = chain_of_two_ways()
    order = modulo_order(sends, blocks, durations)
    assert sorted(order) == [0, 1, 2, 3]
    assert order.index(0) < order.index(3)
    assert order.index(2) < order.index(1)


@pytest.mark.parametrize("seed", range(4))
def test_modulo_order_keeps_what_sends_wait_for(seed: int) -> None:
    rng = random.Random(seed)
    sends = [
        Send(n % 7, rng.randrange(4), 4 + rng.randrange(4), reduce=rng.random() < 0.5,
             after=tuple(sorted(rng.sample(range(n), min(n, 2)))))
        for n in range(40)
    ]  # fmt: skip
    order = modulo_order(sends, [send.flow for send in sends], [0.1] * 40)
    position = {number: at for at, number in enumerate(order)}
    assert len(position) == 40
    assert all(position[e] < position[n] for n, send in enumerate(sends) for e in send.after)
