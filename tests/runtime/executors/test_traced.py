"""The record of a simulated run: spans fill each track, and each wait ends with what it names."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from types import ModuleType, SimpleNamespace

import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime import (
    SimExecutor,
    TracedRun,
    time_baseline,
)
from tuccl.simulation import TRACE_CAUSES, TraceSlice, simulate
from tuccl.sketches import candidate_sketches
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.topology import Topology, join, load_profile, machine_of

MIB = 1 << 20
Spans = dict[int, list[TraceSlice]]


@cache
def cluster(profile: str, hosts: int) -> Topology:
    return join(load_profile(profile), hosts)


def made(
    t: Topology, collective: str, method: str, protocol: str, nbytes: int, instances: int = 1
) -> Program:
    [sketch] = [s for s in candidate_sketches(t, collective, nbytes) if s.name == "full-mesh"]
    schedule = make_schedule(Problem(Collective(collective, t.ranks), sketch, 1, nbytes), method)
    return lower(schedule, protocol=protocol, instances=instances)


def traced(
    profile: str,
    hosts: int,
    collective: str,
    method: str,
    protocol: str,
    nbytes: int,
    buffer: int | None = None,
    instances: int = 1,
) -> TracedRun:
    t = cluster(profile, hosts)
    program = made(t, collective, method, protocol, nbytes, instances)
    return SimExecutor(t).trace(program, Knobs(protocol, 1, 512, buffer), nbytes)


def nccl(profile: str, hosts: int, collective: str, nbytes: int) -> TracedRun:
    t = cluster(profile, hosts)
    executor = SimExecutor(t)
    default = time_baseline(executor, t, "nccl", collective, nbytes)
    return executor.trace(default.program, default.knobs, nbytes, loop=default.loop)


CASES: dict[str, Callable[[], TracedRun]] = {
    "ring on 2 hosts": lambda: traced("ndv2", 2, "allreduce", "ring", "Simple", 64 * MIB),
    "shared adapters, small buffers": lambda: traced(
        "ndv2", 2, "allgather", "allpairs", "Simple", 8 * MIB, 1 << 18
    ),
    "hierarchical": lambda: traced(
        "ndv2", 2, "allgather", "hierarchical2", "Simple", 4 * MIB, 1 << 20, 2
    ),
    "LL within a host cuts through": lambda: traced(
        "dgx-a100", 1, "allreduce", "ring", "LL", 4 * MIB
    ),
    "LL over adapters": lambda: traced("ndv2", 2, "allreduce", "ring", "LL", MIB),
    "LL128 and dependencies": lambda: traced(
        "v100x4", 1, "allreduce", "allpairs", "LL128", 8 * MIB, None, 2
    ),
    "greedy": lambda: traced("v100x4", 2, "alltoall", "greedy", "Simple", 8 * MIB),
    "nccl": lambda: nccl("dgx-a100", 2, "allreduce", 4 * MIB),
    "nvls": lambda: nccl("dgx-h100", 1, "allreduce", 64 * MIB),
}


@cache
def case(name: str) -> TracedRun:
    return CASES[name]()


def by_track(run: TracedRun) -> Spans:
    out: defaultdict[int, list[TraceSlice]] = defaultdict(list)
    for s in run.trace.slices:
        out[s.track].append(s)
    return dict(out)


def near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)


@pytest.fixture(params=CASES)
def run(request: pytest.FixtureRequest) -> TracedRun:
    name: str = request.param
    return case(name)


def test_the_walk_is_the_run_that_time_reports(run: TracedRun) -> None:
    t = run.topology
    whole = simulate(
        *(run.program, run.knobs, run.network, machine_of(t), run.nbytes),
        process_gpus=t.ranks // len(t.hosts),
        exact=True,
        pass_bytes=run.loop.pass_bytes,
        transfer_slots=run.loop.transfer_slots,
    )
    trace = run.trace
    assert trace.result.time_us == whole.time_us
    assert trace.start_us + trace.end_us == pytest.approx(whole.gpu_us, rel=1e-12)
    ends = [s.end_us for s in trace.slices if s.track < len(trace.blocks)]
    assert max(ends) == trace.end_us
    assert trace.result.resource_bytes == whole.resource_bytes


def test_spans_fill_each_track_from_the_start(run: TracedRun) -> None:
    trace = run.trace
    spans, spent = by_track(run), run.trace.spent_us
    assert trace.first_passes == trace.passes and trace.last_passes == 0
    for track, own in spans.items():
        assert own[0].start_us == 0
        assert all(s.end_us > s.start_us for s in own)
        assert all(a.end_us == b.start_us for a, b in itertools.pairwise(own))
        for index, cause in enumerate(TRACE_CAUSES):
            us = math.fsum(s.end_us - s.start_us for s in own if s.cause == cause)
            assert near(spent[track][index], us)
    proxies = {len(trace.blocks) + i for i, c in enumerate(trace.connections) if c.net}
    stepping = {i for i, b in enumerate(trace.blocks) if b.into >= 0 or b.out >= 0}
    assert stepping | proxies <= spans.keys()


def moved(run: TracedRun) -> list[float]:
    """User bytes that the spans move over each link."""
    ways = {(r.src, r.dst): r.resources for r in run.network.routes}
    out = [0.0] * len(run.network.resources)
    blocks, wires = run.trace.blocks, run.trace.connections
    for s in run.trace.slices:
        is_block = s.track < len(blocks)
        index = blocks[s.track].out if is_block else s.track - len(blocks)
        wire = wires[index]
        if s.sent < 0 or (is_block and wire.net):
            continue
        for link in ways[wire.src, wire.dst]:
            out[link] += s.bytes
    return out


def test_flows_carry_the_bytes_of_every_link(run: TracedRun) -> None:
    assert moved(run) == pytest.approx(run.trace.result.resource_bytes, rel=1e-9)


def areas(run: TracedRun) -> list[float]:
    """Wire bytes under each link's samples."""
    trace = run.trace
    out = [0.0] * len(run.network.resources)
    rates = trace.rate
    for a, b in itertools.pairwise(trace.samples):
        if a.link == b.link:
            out[a.link] += a.share * (b.time_us - a.time_us) * rates[a.link]
    return out


def lost(run: TracedRun) -> float:
    return math.fsum(s.lost_bytes for s in run.trace.slices)


def test_use_over_time_adds_up_to_the_bytes_on_the_wire(run: TracedRun) -> None:
    trace = run.trace
    width = trace.end_us / 50
    bins = [
        math.fsum(shares) * width * rate for shares, rate in zip(trace.use, trace.rate, strict=True)
    ]
    assert areas(run) == pytest.approx(bins, rel=1e-6)
    assert all(0 <= s.share <= 1 for s in trace.samples)
    assert all(0 <= share <= 1 for shares in trace.use for share in shares)
    for used, wire in zip(bins, trace.result.resource_wire_bytes, strict=True):
        assert wire * (1 - 1e-9) <= used <= wire + lost(run) + 1e-6 * wire


def test_waits_end_with_what_they_name(run: TracedRun) -> None:
    spans, tbs, wires = by_track(run), run.trace.blocks, run.trace.connections
    blocks = len(tbs)
    sent = {(t, s.sent): s.end_us for t, own in spans.items() for s in own if s.sent >= 0}
    got = {(t, s.received): s.end_us for t, own in spans.items() for s in own if s.received >= 0}
    one_slot = run.loop.transfer_slots == 1 or run.knobs.protocol != "Simple"
    window = 8 if one_slot else 4
    cuts = run.knobs.protocol != "Simple"
    for track, own in spans.items():
        index = track - blocks if track >= blocks else tbs[track].out
        for s in own:
            if s.cause == "data" and track < blocks:
                into = tbs[track].into
                wire = wires[into]
                end = sent.get((blocks + into if wire.net else wire.sender, s.received))
                if end is not None and cuts and not wire.net:
                    assert s.end_us <= end + 1e-6
                else:
                    assert end is None or near(s.end_us, end)
            elif s.cause == "data":
                assert near(s.end_us, sent[wires[index].sender, s.sent])
            elif s.cause == "credit":
                assert near(s.end_us, got[wires[index].receiver, s.sent - window])
            elif s.cause == "proxy":
                assert near(s.end_us, sent[blocks + index, s.sent - window])


def test_dependencies_end_with_the_step_they_name(run: TracedRun) -> None:
    spans, tbs = by_track(run), run.trace.blocks
    steps = {(g.id, tb.id): tb.steps for g in run.program.gpus for tb in g.threadblocks}
    numbers = {(b.gpu, b.id): i for i, b in enumerate(tbs)}
    for track, own in spans.items():
        for s in own:
            if s.cause != "dependency":
                continue
            gpu = tbs[track].gpu
            step = steps[gpu, tbs[track].id][s.step]
            other = spans[numbers[gpu, step.dep_tb]]
            assert any(
                near(s.end_us, o.end_us)
                and o.last_step >= step.dep_step
                and o.pass_number == s.pass_number
                for o in other
            )


def test_a_flow_is_held_back_only_by_a_full_link(run: TracedRun) -> None:
    trace, tbs, wires = run.trace, run.trace.blocks, run.trace.connections
    shares: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for sample in trace.samples:
        shares[sample.link].append((sample.time_us, sample.share))
    ways = {(r.src, r.dst): r.resources for r in run.network.routes}
    for s in trace.slices:
        if s.cause != "link":
            continue
        wire = wires[tbs[s.track].out if s.track < len(tbs) else s.track - len(tbs)]
        assert s.link in ways[wire.src, wire.dst]
        own = shares[s.link]
        first = max(bisect.bisect_right(own, (s.start_us + 1e-6, 2.0)) - 1, 0)
        last = bisect.bisect_left(own, (s.end_us - 1e-6, -1.0))
        assert all(share > 1 - 1e-6 for _, share in own[first:last])


def test_a_proxy_hands_over_one_message_at_a_time(run: TracedRun) -> None:
    trace = run.trace
    blocks, wires = len(trace.blocks), trace.connections
    busy: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for s in trace.slices:
        if s.track >= blocks and s.cause == "setup":
            src = wires[s.track - blocks].src
            busy[src].append((s.start_us, s.end_us))
    for own in busy.values():
        own.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(own))


def test_the_cases_show_every_cause() -> None:
    seen = {s.cause for name in CASES for s in case(name).trace.slices}
    assert seen == set(TRACE_CAUSES) - {"skipped"}


def test_some_passes_stand_for_a_long_run(hand: SimpleNamespace) -> None:
    executor = SimExecutor(hand.mesh(hosts=2))
    program, knobs = hand.ring_allgather(), Knobs("Simple", 1, 512, 1 << 14)
    whole = executor.trace(program, knobs, 8 * MIB, passes=10_000)
    part = executor.trace(program, knobs, 8 * MIB, passes=3)
    assert whole.trace.passes == part.trace.passes > 100
    assert (part.trace.first_passes, part.trace.last_passes) == (3, 3)
    assert part.trace.result.time_us == whole.trace.result.time_us
    assert part.trace.spent_us == whole.trace.spent_us
    assert part.trace.use == whole.trace.use
    every = by_track(whole)
    for track, own in by_track(part).items():
        [gap] = [s for s in own if s.cause == "skipped"]
        assert all(a.end_us == b.start_us for a, b in itertools.pairwise(own))
        passes = {s.pass_number for s in own if s.cause != "skipped"}
        last = part.trace.passes
        assert passes == {0, 1, 2, last - 3, last - 2, last - 1}
        other = every[track]
        at = other.index(next(s for s in other if s.pass_number == 3))
        assert gap.start_us == other[at].start_us
    assert areas(part) == pytest.approx(areas(whole), rel=1e-9)
    assert len(part.trace.samples) < len(whole.trace.samples) / 4


def test_a_dependency_heavy_program_by_hand(handmade: ModuleType) -> None:
    t = cluster("dgx-a100", 1)
    run = SimExecutor(t).trace(handmade.allpairs_allreduce(8), Knobs("LL"), MIB)
    names = dict(zip(TRACE_CAUSES, map(sum, zip(*run.trace.spent_us, strict=True)), strict=True))
    assert names["dependency"] > 0
    test_dependencies_end_with_the_step_they_name(run)


def test_what_cannot_be_recorded_is_refused_in_one_line(hand: SimpleNamespace) -> None:
    executor = SimExecutor(hand.mesh())
    program = hand.ring_allgather()
    with pytest.raises(InputError, match=r"walk of .* too long"):
        executor.trace(program, Knobs("LL", 1, 512, 256), 1 << 40)
    with pytest.raises(InputError, match="bins 0"):
        executor.trace(program, Knobs(), 1024, bins=0)
    with pytest.raises(InputError, match="passes -1"):
        executor.trace(program, Knobs(), 1024, passes=-1)
    with pytest.raises(InputError, match="spans, expected at most"):
        executor.trace(program, Knobs("LL", 1, 512, 256), 1 << 24, passes=1 << 40)
    with pytest.raises(InputError, match="ranks"):
        executor.trace(hand.ring_allgather(ranks=3), Knobs(), 1024)
