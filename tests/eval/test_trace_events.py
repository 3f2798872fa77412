"""The trace file is what Perfetto's importer of Chrome's format takes, and says what ran."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import pytest

from tests.eval.conftest import RUNS, ring_on
from tuccl.eval import spent_text, time_spent, trace_json, utilisation, utilisation_text
from tuccl.runtime import TracedRun

Event = dict[str, Any]
NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "t": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
}
SENDING = ("s", "rcs", "rrs", "rrcs")
HOST, PROXIES = 1, 3
MIB = 1 << 20


def ns(us: float) -> int:
    """Nanoseconds as a reader gets them that cuts the rest off."""
    return int(us * 1000)


@pytest.fixture(params=RUNS, scope="module")
def run(request: pytest.FixtureRequest) -> TracedRun:
    name: str = request.param
    return RUNS[name]()


@pytest.fixture(scope="module")
def file(run: TracedRun) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(trace_json(run), parse_constant=pytest.fail)
    return decoded


def of_phase(file: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in file["traceEvents"] if event["ph"] == phase]


def tracks(file: dict[str, Any]) -> dict[tuple[int, int], list[Event]]:
    out: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in of_phase(file, "X"):
        out[event["pid"], event["tid"]].append(event)
    return dict(out)


def test_every_event_has_what_its_phase_needs(file: dict[str, Any]) -> None:
    for event in file["traceEvents"]:
        assert NEEDED[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0
        assert isinstance(event["pid"], int) and event["pid"] > 0


def test_spans_of_a_track_touch_and_never_overlap(run: TracedRun, file: dict[str, Any]) -> None:
    start = round(1000 * run.trace.start_us)
    for (pid, _), own in tracks(file).items():
        assert all(event["dur"] > 0 for event in own)
        for a, b in itertools.pairwise(own):
            assert ns(a["ts"]) + ns(a["dur"]) == ns(b["ts"])
        assert ns(own[0]["ts"]) == (0 if pid == HOST else start)
    ends = [ns(event["ts"]) + ns(event["dur"]) for event in of_phase(file, "X")]
    assert abs(max(ends) - 1000 * run.trace.result.time_us) <= 1


def test_tracks_have_names_that_say_who_talks_to_whom(run: TracedRun, file: dict[str, Any]) -> None:
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in of_phase(file, "M")
        if e["name"] == "thread_name"
    }
    processes = {
        e["pid"]: e["args"]["name"] for e in of_phase(file, "M") if e["name"] == "process_name"
    }
    used = tracks(file).keys()
    assert used <= names.keys()
    assert {pid for pid, _ in used} <= processes.keys()
    assert not {pid for pid, _ in names} & {tid for _, tid in names}
    wires = run.trace.connections
    for b in run.trace.blocks:
        [name] = [
            n for (p, _), n in names.items() if p == 10 + b.gpu and n.startswith(f"tb {b.id} ")
        ]
        assert b.out < 0 or f"→ rank {wires[b.out].dst}" in name
        assert b.into < 0 or f"← rank {wires[b.into].src}" in name
    assert ("proxies of network connections" in processes.values()) == any(w.net for w in wires)
    assert {f"rank {b.gpu}" for b in run.trace.blocks} <= {
        p.split(" (")[0] for p in processes.values()
    }


def test_counters_are_shares_and_their_area_is_the_bytes(
    run: TracedRun, file: dict[str, Any]
) -> None:
    counters: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in of_phase(file, "C"):
        [share] = event["args"].values()
        assert 0 <= share <= 1
        counters[event["name"]].append((event["ts"], share))
    lost = sum(
        e["args"].get("lost_to_nic_switch_bytes", 0) for e in of_phase(file, "X") if e.get("args")
    )
    result = run.trace.result
    for resource, rate, wire in zip(
        run.network.resources, run.trace.rate, result.resource_wire_bytes, strict=True
    ):
        own = counters[f"{resource.name} {resource.kind}"]
        assert own == sorted(own, key=lambda at: at[0])
        assert not own or own[-1][1] == 0
        area = sum(a[1] * (b[0] - a[0]) for a, b in itertools.pairwise(own)) * rate
        assert area >= wire * (1 - 1e-3)
        if run.trace.last_passes == 0:
            assert area <= (wire + lost) * (1 + 1e-3)


def test_flows_carry_the_bytes_of_the_links(run: TracedRun, file: dict[str, Any]) -> None:
    sent = sum(
        event["args"]["bytes"]
        for event in of_phase(file, "X")
        if event["cat"] in ("work", "link") and event["args"]["type"] in SENDING
        if event["pid"] != PROXIES
    )
    steps = [s for gpu in run.program.gpus for tb in gpu.threadblocks for s in tb.steps]
    chunks = sum(step.count for step in steps if step.op in SENDING)
    share = (run.trace.first_passes + run.trace.last_passes) / run.trace.passes
    assert sent == pytest.approx(share * chunks * run.nbytes / run.program.nchunks, rel=1e-6)


def test_arrows_join_spans_in_order_of_time(file: dict[str, Any]) -> None:
    spans = tracks(file)
    stops: defaultdict[int, list[Event]] = defaultdict(list)
    for event in file["traceEvents"]:
        if event["ph"] in "stf":
            stops[event["id"]].append(event)
    assert stops
    for own in stops.values():
        phases = "".join(event["ph"] for event in own)
        assert phases in ("sf", "stf")
        times = [event["ts"] for event in own]
        assert times == sorted(times)
        for event in own:
            around = [
                s
                for s in spans[event["pid"], event["tid"]]
                if ns(s["ts"]) <= ns(event["ts"]) < ns(s["ts"]) + ns(s["dur"])
            ]
            assert [s["cat"] in ("work", "link") for s in around] == [True]


def test_what_is_left_out_is_said(run: TracedRun, file: dict[str, Any]) -> None:
    about = file["otherData"]
    assert "simulated" in about["times"]
    trace = run.trace
    gaps = [e for e in of_phase(file, "X") if e["cat"] == "skipped"]
    if trace.first_passes == trace.passes:
        assert about["recorded"] == f"all {trace.passes} passes" and not gaps
    else:
        assert f"of {trace.passes} passes" in about["recorded"]
        assert {e["name"] for e in gaps} == {f"not recorded: passes 2 to {trace.passes - 3}"}


def test_use_is_bytes_over_rate_and_time(run: TracedRun) -> None:
    use, result = utilisation(run, busiest=10_000), run.trace.result
    by_name = {link.link: link for link in use.links}
    for index, resource in enumerate(run.network.resources):
        link = by_name[resource.name]
        assert link.nbytes == result.resource_bytes[index]
        assert link.used == pytest.approx(link.nbytes / (link.rate_gbs * 1e3 * result.time_us))
        assert link.used <= link.on_wire * (1 + 1e-12) <= link.busy * (1 + 1e-9) <= 1 + 1e-9
        assert link.rate_gbs <= resource.bandwidth_gbs
    for c in use.classes:
        own = [link for link in use.links if link.kind == c.kind]
        assert c.nbytes == sum(link.nbytes for link in own)
        assert c.used == pytest.approx(c.nbytes / (c.rate_gbs * 1e3 * use.time_us))
        carried = sum(c.over_time) * use.bin_us * c.rate_gbs * 1e3
        assert carried >= c.on_wire * c.rate_gbs * 1e3 * use.time_us * (1 - 1e-9)


def test_time_spent_is_within_the_run_and_text_names_it(run: TracedRun) -> None:
    for spent in time_spent(run):
        assert 0 < sum(spent.us.values()) <= spent.whole_us * (1 + 1e-9)
    text = spent_text(time_spent(run))
    assert "simulated" in text and "thread blocks" in text
    table = utilisation_text(utilisation(run))
    assert "simulated" in table and all(c.kind in table for c in utilisation(run).classes)


def test_the_adapter_is_seen_to_bind() -> None:
    """A ring over two hosts whose adapters are far slower than all else."""
    use = utilisation(ring_on(2, "Simple", 256 * MIB))
    assert use.links[0].kind == "network" and use.links[0].used > 0.9
    [network] = [c for c in use.classes if c.kind == "network"]
    # One of the two adapters of each host carries the ring.
    assert network.most_used == use.links[0].used > 1.9 * network.used
    assert all(0.45 < share <= 0.5 for share in network.over_time[2:-2])
    assert use.links[0].held_back_us > 0.8 * use.time_us
