"""Pipelined trees: near the bound at middle sizes; list schedules keep order and share links."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reference_fabrics import REFERENCE_FABRICS, cube_mesh, with_compared_latencies
from tuccl.program import Knobs, verify
from tuccl.simulation import simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.bounds.hops import hop_bound, longest_chain
from tuccl.synth.bounds.link_load import busiest_us_per_mb
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.send import Send, list_schedule
from tuccl.synth.packing.pipelined import PIPELINED_COLLECTIVES, pipelined_chunks
from tuccl.topology import load_machine, network

MIB = 1 << 20


def simulated_us(name: str, chunks: int) -> tuple[float, float]:
    """Return the simulated time of 1 MiB of allgather on links alone, and the bound."""
    t = with_compared_latencies(REFERENCE_FABRICS[name]())
    collective = Collective("allgather", t.ranks)
    program = lower(make_schedule(Problem(collective, full_mesh(t), chunks, MIB, t), "pipelined"))
    assert verify(program, "executor", 0).ok
    nbytes = -(-MIB // program.nchunks) * program.nchunks
    knobs = Knobs("Simple", 1, 512)
    run = simulate(program, knobs, network(t), load_machine("ideal"), nbytes)
    return run.gpu_us, bound(t, collective).time_us(MIB)


@pytest.mark.parametrize("name", [n for n in REFERENCE_FABRICS if n != "torus-8x8"])
def test_middle_sizes_come_near_the_latency_and_bandwidth_bound(name: str) -> None:
    t = REFERENCE_FABRICS[name]()
    tried = pipelined_chunks(Collective("allgather", t.ranks), full_mesh(t), t)
    best, limit = min(simulated_us(name, chunks) for chunks in tried[-2:])
    assert limit <= best <= 1.35 * limit


@pytest.mark.parametrize("name", sorted(PIPELINED_COLLECTIVES))
def test_pieces_carry_what_packing_carries_in_no_longer_chains(name: str) -> None:
    t = cube_mesh()
    collective, mesh = Collective(name, t.ranks, 3), full_mesh(t)
    packed = make_schedule(Problem(collective, mesh, 6, MIB, t), "packing")
    pieces = make_schedule(Problem(collective, mesh, 12, MIB, t), "pipelined")
    assert hop_bound(t, collective) <= longest_chain(pieces) <= longest_chain(packed)
    carried = busiest_us_per_mb(lower(packed), t)
    assert busiest_us_per_mb(lower(pieces), t) == pytest.approx(carried)


def test_same_arguments_same_schedule() -> None:
    t = cube_mesh()
    collective, mesh = Collective("allgather", 8), full_mesh(t)
    one, other = (
        make_schedule(Problem(collective, mesh, 6, MIB, t), "pipelined") for _ in range(2)
    )
    assert one == other


def two_ranks() -> Network:
    return Network((0, 0), ((0, 1), (1, 0)), ((0,), (1,)), (0.0,) * 2, (Fraction(50),) * 2)


def test_sends_start_after_what_they_carry_and_long_chains_first() -> None:
    sends = [Send(0, 0, 1), Send(1, 0, 1), Send(1, 1, 0, after=(1,))]
    order = list_schedule(two_ranks(), sends, 1e6)
    assert sorted(order) == [0, 1, 2]
    assert order.index(1) < order.index(0)
    assert order.index(1) < order.index(2)


def test_routes_that_share_a_link_take_turns() -> None:
    t = REFERENCE_FABRICS["2x-a100"]()
    mesh = full_mesh(t)
    network = sketch_network(mesh, t)
    sends = [Send(0, 0, 8)] * 3 + [Send(1, 0, 9)] * 3
    targets = [sends[number].dst for number in list_schedule(network, sends, 1e6)]
    assert targets in ([8, 9] * 3, [9, 8] * 3)
