"""Programs beside others' traffic: exact where theory says so, unchanged where there is none."""

from __future__ import annotations

import math
from statistics import fmean

import msgspec
import pytest

from tuccl.emulation import EmulatedSimExecutor
from tuccl.errors import InputError
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock
from tuccl.runtime import SimExecutor
from tuccl.simulation import MachineClass, OutsideTraffic, simulate
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import (
    CrossTraffic,
    Topology,
    flows,
    join,
    keep_gpus,
    load_profile,
    network,
)
from tuccl.topology.cross_traffic import Source

PAIR = join(load_profile("ndv2"), 2)
FOUR = join(keep_gpus(load_profile("ndv2"), [0]), 4)  # one rank a host, NICs of 12.5 GB/s
IDEAL = MachineClass("ideal")
MIB = 1 << 20


def ring(topology: Topology) -> Program:
    return lower(msccl_default(topology, Collective("allreduce", topology.ranks)))


def cross(kind: str, to: str = "leaf0", seed: int = 1, **fields: object) -> CrossTraffic:
    source = Source("n0/nic0", to, kind, efficiency=1.0, **fields)  # type: ignore[arg-type]
    return CrossTraffic((source,), seed)


def us(
    traffic: CrossTraffic | None,
    topology: Topology = FOUR,
    nbytes: int = 64 * MIB,
    channels: int = 1,
) -> float:
    executor = SimExecutor(topology, IDEAL, cross=traffic)
    return executor.time(ring(topology), Knobs(), nbytes).us


def narrowed(topology: Topology, gbs: float) -> Topology:
    """The topology with its link from n0's NIC at another rate."""
    links = []
    for link in topology.links:
        if "n0/nic0" in (link.src, link.dst) and link.kind == "network":
            one = msgspec.structs.replace(link, duplex=False)
            links.append(msgspec.structs.replace(one, bandwidth=gbs))
            links.append(msgspec.structs.replace(one, src=link.dst, dst=link.src))
        else:
            links.append(link)
    return msgspec.structs.replace(topology, links=tuple(links))


@pytest.mark.parametrize("topology", [PAIR, FOUR])
@pytest.mark.parametrize("nbytes", [64 << 10, 16 * MIB])
@pytest.mark.parametrize("machine", [IDEAL, None])
def test_a_rate_x_is_a_link_at_c_minus_x_exactly(
    topology: Topology, nbytes: int, machine: MachineClass | None
) -> None:
    program = ring(topology)
    loaded = SimExecutor(topology, machine, cross=cross("rate", load=0.8))
    other = SimExecutor(narrowed(topology, 12.5 - 0.8 * 12.5), machine)
    assert loaded.time(program, Knobs(), nbytes).us == other.time(program, Knobs(), nbytes).us


class OneConnection(SimExecutor):
    connection_a_pair = True


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("own", [1, 2, 3])
@pytest.mark.parametrize("others", [1, 3, 8])
def test_m_own_flows_beside_n_long_ones_get_m_of_m_plus_n(own: int, others: int, one: bool) -> None:
    def send(op: str, channel: int, to: int, of: int) -> ThreadBlock:
        return ThreadBlock(channel, to, of, channel, [Step(op, "i", channel, "o", channel, 1)])

    gpus = [Gpu(rank, own, own, 0, []) for rank in (2, 3)]
    gpus.append(Gpu(0, own, own, 0, [send("s", c, 1, -1) for c in range(own)]))
    gpus.append(Gpu(1, own, own, 0, [send("r", c, -1, 0) for c in range(own)]))
    gpus.sort(key=lambda gpu: gpu.id)
    program = Program("sends", "allreduce", "Simple", own, own, gpus)
    kind = OneConnection if one else SimExecutor
    executor = kind(FOUR, IDEAL, cross=cross("long", streams=others))
    latency = us_of(SimExecutor(FOUR, IDEAL), program, own)
    alone = us_of(SimExecutor(FOUR, IDEAL), program, own * 8 * MIB) - latency
    beside = us_of(executor, program, own * 8 * MIB) - us_of(executor, program, own)
    part = 1 if one else own
    assert alone / beside == pytest.approx(part / (part + others), rel=1e-5)


def us_of(executor: SimExecutor, program: Program, nbytes: int) -> float:
    return executor.time(program, Knobs("Simple", buffer_bytes=1 << 20), nbytes).us


@pytest.mark.parametrize("nbytes", [4 << 10, MIB, 256 * MIB])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_without_flows_nothing_changes(nbytes: int, protocol: str) -> None:
    shared, knobs = network(PAIR), Knobs(protocol)
    today = simulate(ring(PAIR), knobs, shared, IDEAL, nbytes)
    none = simulate(ring(PAIR), knobs, shared, IDEAL, nbytes, outside=OutsideTraffic([], []))
    assert (none.time_us, none.events) == (today.time_us, today.events)
    assert none.extrapolated == today.extrapolated
    assert us(CrossTraffic(()), PAIR, nbytes) == us(None, PAIR, nbytes)


@pytest.mark.parametrize("call_us", [0.0, 12.5, 1e6])
def test_flows_elsewhere_or_long_gone_change_nothing(call_us: float) -> None:
    shared = network(FOUR)
    exact = simulate(ring(FOUR), Knobs(), shared, IDEAL, 4 * MIB, exact=True).time_us
    others = OutsideTraffic([([0], math.inf)], [(0.0, 1.0, 0)], call_us)
    spent = simulate(ring(FOUR), Knobs(), shared, IDEAL, 4 * MIB, outside=others).time_us
    assert spent == pytest.approx(exact, rel=1e-3 if call_us == 0 else 1e-9)


def test_a_slow_long_flow_takes_its_rate_and_no_more() -> None:
    capped = us(cross("long", gbs=1.25))
    assert capped == pytest.approx(us(cross("rate", gbs=1.25)), rel=1e-6)


@pytest.mark.parametrize("kind", ["web", "burst", "incast", "trace"])
def test_times_beside_random_flows_are_those_of_the_seed(kind: str) -> None:
    fields = {"flows": ((0.0, 10**8), (5000.0, 10**8))} if kind == "trace" else {"load": 0.5}
    executors = [
        SimExecutor(FOUR, IDEAL, cross=cross(kind, seed=seed, **fields)) for seed in (1, 1, 2)
    ]
    first, same, other = (e.time(ring(FOUR), Knobs(), 16 * MIB, repeats=2) for e in executors)
    assert first == same != other
    assert len(first.samples_us) == 40
    assert min(first.samples_us) >= us(None, nbytes=16 * MIB) * (1 - 1e-9)
    assert first.us == pytest.approx(sum(first.samples_us) / 40)


def test_more_load_takes_longer_and_the_rest_of_the_link_bounds_the_mean() -> None:
    times = [us(cross("web", load=load, mean_bytes=2.4e5), nbytes=256 * MIB) for load in (0.3, 0.6)]
    assert us(None, nbytes=256 * MIB) < times[0] < times[1]
    # A call of many flows' length sees their mean.
    assert times[1] < 1.2 * us(cross("rate", load=0.6), nbytes=256 * MIB)


def test_each_entry_of_a_schedule_is_a_moment() -> None:
    traffic = cross("rate", schedule=((0, 0.8), (2, 0.0), (3, 0.5)))
    timing = SimExecutor(FOUR, IDEAL, cross=traffic).time(ring(FOUR), Knobs(), MIB)
    assert timing.samples_us == tuple(
        us(cross("rate", load=load) if load else None, nbytes=MIB) for load in (0.8, 0.0, 0.5)
    )


def test_links_that_no_rank_uses_carry_others_too() -> None:
    clos = join(keep_gpus(load_profile("ndv2"), [0]), 2, "clos")
    elsewhere = CrossTraffic((Source("spine0", "tor1", "long", efficiency=1.0),))
    assert us(elsewhere, clos) == pytest.approx(2 * us(None, clos), rel=0.1)


def test_what_is_unused_beside_others_is_lost() -> None:
    source = msgspec.structs.replace(cross("rate", load=0.5).sources[0], efficiency=0.9)
    assert us(CrossTraffic((source,))) == us(cross("rate", load=0.6))


def test_calls_of_an_iteration_meet_what_its_calls_before_held_up() -> None:
    """Others that are served together with the job leave it what they do not ask for."""
    program, nbytes, buckets = ring(FOUR), 4 * MIB, 8
    at_once = [0.0] * buckets
    beside_rate = SimExecutor(FOUR, IDEAL, cross=cross("rate", load=0.75))
    (iteration_us,) = beside_rate.iterate(program, Knobs(), nbytes, at_once)
    each_us = 1.5 * nbytes / (0.25 * 12.5e3)
    assert iteration_us == pytest.approx(buckets * each_us, rel=0.02)
    beside_web = SimExecutor(FOUR, IDEAL, cross=cross("web", load=0.75, mean_bytes=1e5))
    times = beside_web.iterate(program, Knobs(), nbytes, at_once, runs=100)
    assert fmean(times) == pytest.approx(buckets * each_us, rel=0.25)
    alone = beside_web.time(program, Knobs(), nbytes).us
    assert fmean(times) > 1.1 * buckets * alone


def test_emulated_clusters_take_cross_traffic_too() -> None:
    idle = EmulatedSimExecutor(FOUR, cores=64)
    loaded = EmulatedSimExecutor(FOUR, cores=64, cross=cross("rate", load=0.8))
    program = ring(FOUR)
    times = [e.time(program, Knobs(), 16 * MIB).us for e in (idle, loaded)]
    assert times[1] > 3 * times[0]
    assert "beside cross traffic" in loaded.label


@pytest.mark.parametrize(
    ("paths", "drawn", "call_us"),
    [
        ([([99], 1.0)], [], 0.0),
        ([([], 1.0)], [], 0.0),
        ([([0, 0], 1.0)], [], 0.0),
        ([([0], 0.0)], [], 0.0),
        ([([0], 1.0)], [(1.0, 5.0, 0), (0.0, 5.0, 0)], 0.0),
        ([([0], 1.0)], [(math.nan, 5.0, 0)], 0.0),
        ([([0], 1.0)], [(0.0, 0.0, 0)], 0.0),
        ([([0], 1.0)], [(0.0, 5.0, 1)], 0.0),
        ([([0], 1.0)], [], -1.0),
    ],
)
def test_bad_flows_are_refused(
    paths: list[tuple[list[int], float]], drawn: list[tuple[float, float, int]], call_us: float
) -> None:
    with pytest.raises(InputError, match=r"outside .*expected"):
        simulate(
            ring(FOUR),
            Knobs(),
            network(FOUR),
            IDEAL,
            MIB,
            outside=OutsideTraffic(paths, drawn, call_us),
        )


def test_a_recorded_call_has_no_cross_traffic() -> None:
    executor = SimExecutor(FOUR, IDEAL, cross=cross("rate", load=0.5))
    with pytest.raises(InputError, match="--cross"):
        executor.trace(ring(FOUR), Knobs(), MIB)
    assert flows(cross("rate", load=0.5), FOUR, 1) == ()
