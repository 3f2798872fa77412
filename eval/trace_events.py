"""A simulated run's record as a file for ui.perfetto.dev: Chrome's JSON trace event format."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tuccl import __version__
from tuccl.eval.utilisation import utilisation
from tuccl.runtime import TracedRun
from tuccl.simulation import TraceSlice

Event = dict[str, Any]
# Numbers that no process and thread share: viewers take some equal ones for main threads.
_HOST_TRACK, _START_TRACK = 9_998, 9_999
_HOST, _LINKS, _PROXIES, _FIRST_GPU, _FIRST_TRACK = 1, 2, 3, 10, 10_000
_MOVING = ("work", "link")


def trace_json(run: TracedRun) -> bytes:
    """Return the record of ``run`` as JSON that Perfetto and chrome://tracing open.

    A process per GPU has a track per thread block; there is one process for the links, with a
    counter (0 to 1) per direction, one for the proxies and one for the host. Times are in us.
    What was left out is named in ``otherData.recorded`` and by spans called "not recorded".

    >>> from tuccl.program import Knobs
    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> file = msgspec.json.decode(trace_json(SimExecutor(host).trace(program, Knobs(), 1 << 20)))
    >>> file["displayTimeUnit"], sorted({event["ph"] for event in file["traceEvents"]})
    ('ns', ['C', 'M', 'X', 'f', 's'])

    Notes:
        Format: "Trace Event Format" (Duflot, Chromium project); phases X, C, M, s, t, f.
    """
    scene = _Scene(run)
    events = [*scene.names(), *scene.host(), *scene.spans(), *scene.counters(), *scene.arrows()]
    about = {"otherData": _about(run), "displayTimeUnit": "ns", "traceEvents": events}
    return msgspec.json.encode(about)


def _about(run: TracedRun) -> dict[str, str]:
    trace = run.trace
    return {
        "program": run.program.name,
        "times": f"{run.label}; not measured",
        "tuccl": __version__,
        "collective": run.program.collective,
        "bytes": str(run.nbytes),
        "knobs": f"{run.knobs.protocol}, {run.knobs.threads} threads, "
        f"{run.knobs.buffer_bytes} bytes of buffer",
        "time_us": f"{trace.result.time_us:.3f}",
        "recorded": _recorded(run),
    }


def _recorded(run: TracedRun) -> str:
    trace = run.trace
    if trace.first_passes >= trace.passes:
        return f"all {trace.passes} passes"
    return (
        f"the first {trace.first_passes} and the last {trace.last_passes} of {trace.passes} "
        "passes; all were walked. Between them counters show the mean."
    )


def _us(ns: int) -> float:
    """Nanoseconds as the us that readers who cut off digits turn into the same again."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


class _Scene:
    """The run, with every text that spans repeat made once."""

    def __init__(self, run: TracedRun) -> None:
        self._run = run
        self._trace = run.trace
        self._blocks = run.trace.blocks
        self._connections = run.trace.connections
        self._links = [resource.name for resource in run.network.resources]
        steps = {
            (gpu.id, tb.id): list(tb.steps) for gpu in run.program.gpus for tb in gpu.threadblocks
        }
        self._steps = [steps[block.gpu, block.id] for block in self._blocks]
        self._slices = run.trace.slices

    def _ns(self, us: float) -> int:
        return round((us + self._trace.start_us) * 1000)

    def _place(self, track: int) -> tuple[int, int]:
        """The process and the thread of a track."""
        is_block = track < len(self._blocks)
        pid = _FIRST_GPU + self._blocks[track].gpu if is_block else _PROXIES
        return pid, _FIRST_TRACK + track

    def names(self) -> Iterator[Event]:
        """The names of processes and tracks, and their order."""
        ids = {node.rank: node.id for node in self._run.topology.nodes if node.rank is not None}
        processes = {_HOST: "host", _LINKS: "links", _PROXIES: "proxies of network connections"}
        if not any(connection.net for connection in self._connections):
            del processes[_PROXIES]
        gpus = sorted({block.gpu for block in self._blocks})
        processes |= {_FIRST_GPU + g: f"rank {g} ({ids.get(g, 'NVLink switch')})" for g in gpus}
        for order, (pid, name) in enumerate(processes.items()):
            yield _meta("process_name", pid, 0, name=name)
            yield _meta("process_sort_index", pid, 0, sort_index=order)
        yield _meta("thread_name", _HOST, _HOST_TRACK, name="launches the next call meanwhile")
        yield _meta("thread_name", _HOST, _START_TRACK, name="GPUs: start of the kernel")
        for track, name in self._track_names():
            pid, tid = self._place(track)
            yield _meta("thread_name", pid, tid, name=name)
            yield _meta("thread_sort_index", pid, tid, sort_index=track)

    def _track_names(self) -> Iterator[tuple[int, str]]:
        for track, block in enumerate(self._blocks):
            to = f" → rank {self._connections[block.out].dst}" if block.out >= 0 else ""
            of = f" ← rank {self._connections[block.into].src}" if block.into >= 0 else ""
            between = " /" if to and of else ""
            yield track, f"tb {block.id} ch {block.channel}{to}{between}{of}"
        for index, connection in enumerate(self._connections):
            if connection.net:
                name = f"rank {connection.src} → rank {connection.dst} ch {connection.channel}"
                yield len(self._blocks) + index, name

    def host(self) -> Iterator[Event]:
        """The host's time for a call, and the kernel's before its thread blocks start."""
        host = round(self._trace.result.host_us * 1000)
        spans = (
            (_HOST_TRACK, f"launch ({self._run.launch})", host),
            (
                _START_TRACK,
                "start of the kernel",
                self._ns(0),
            ),
        )
        for tid, name, ns in spans:
            if ns > 0:
                place = {"pid": _HOST, "tid": tid, "ts": 0.0, "dur": _us(ns)}
                yield {"ph": "X", "name": name, "cat": "launch", **place}

    def spans(self) -> Iterator[Event]:
        """One event for each span of at least a nanosecond."""
        blocks = len(self._blocks)
        for s in self._slices:
            start, end = self._ns(s.start_us), self._ns(s.end_us)
            if end <= start:
                continue
            cause = s.cause
            name = self._name(s, cause) if s.track < blocks else self._proxy_name(s, cause)
            pid, tid = self._place(s.track)
            yield {
                "ph": "X",
                "name": name,
                "cat": cause,
                "ts": _us(start),
                "dur": _us(end - start),
                "pid": pid,
                "tid": tid,
                "args": self._args(s, cause),
            }

    def _name(self, s: TraceSlice, cause: str) -> str:
        if cause == "skipped":
            return self._skipped()
        block = self._blocks[s.track]
        step = self._steps[s.track][s.step]
        match cause:
            case "work":
                return f"{step.op} {_steps(s)}"
            case "link":
                return f"{step.op} {_steps(s)}, full: {self._links[s.link]}"
            case "data":
                return f"wait: data of rank {self._connections[block.into].src}"
            case "credit":
                return f"wait: credit of rank {self._connections[block.out].dst}"
            case "proxy":
                return f"wait: own proxy to rank {self._connections[block.out].dst}"
            case "dependency":
                return f"wait: tb {step.dep_tb} step {step.dep_step}"
        return "wait: latency" if cause == "flight" else f"set up {step.op}"

    def _proxy_name(self, s: TraceSlice, cause: str) -> str:
        connection = self._connections[s.track - len(self._blocks)]
        match cause:
            case "skipped":
                return self._skipped()
            case "data":
                return f"wait: slice of tb {self._blocks[connection.sender].id}"
            case "credit":
                return f"wait: slot at rank {connection.dst}"
            case "turn":
                return "wait: turn in the proxy"
            case "flight":
                return "wait: latency"
            case "link":
                return f"message, full: {self._links[s.link]}"
        return "hand over message" if cause == "setup" else "message"

    def _skipped(self) -> str:
        first = self._trace.first_passes
        last = self._trace.passes - self._trace.last_passes - 1
        return f"not recorded: passes {first} to {last}"

    def _args(self, s: TraceSlice, cause: str) -> Event:
        if cause == "skipped":
            return {}
        at: Event = {"step": s.step, "pass": s.pass_number, "slice": s.slice}
        if cause not in _MOVING:
            return at
        sender = self._sender(s.track)
        step = self._steps[sender][s.step]
        at["type"] = step.op
        for key, buffer, offset in (
            ("from", step.src_buffer, step.src_offset),
            ("to", step.dst_buffer, step.dst_offset),
        ):
            if offset >= 0:
                at[key] = f"{buffer}[{offset + s.chunk}]"
        at["chunks"] = s.chunks
        at["bytes"] = round(s.bytes, 3)
        at["GB/s"] = round(s.bytes / (s.end_us - s.start_us) / 1e3, 3)
        if s.lost_bytes > 0:
            at["lost_to_nic_switch_bytes"] = round(s.lost_bytes, 3)
        return at

    def _sender(self, track: int) -> int:
        """The thread block whose steps a track's spans name."""
        blocks = len(self._blocks)
        return track if track < blocks else self._connections[track - blocks].sender

    def counters(self) -> Iterator[Event]:
        """The load of each link, and the mean of each class of links."""
        kinds = [resource.kind for resource in self._run.network.resources]
        for sample in self._trace.samples:
            link = sample.link
            yield self._counter(f"{self._links[link]} {kinds[link]}", sample.time_us, sample.share)
        use = utilisation(self._run)
        for c in use.classes:
            for i, share in enumerate((*c.over_time, 0.0)):
                yield self._counter(f"all {c.links} {c.kind}", i * use.bin_us, share)

    def _counter(self, name: str, time_us: float, share: float) -> Event:
        ts = _us(self._ns(time_us))
        return {"ph": "C", "name": name, "pid": _LINKS, "ts": ts, "args": {"in use": share}}

    def arrows(self) -> Iterator[Event]:
        """From each send to its receive, through the proxy where there is one."""
        sent, carried, received = self._ends()
        for number, key in enumerate(sorted(sent.keys() & received.keys())):
            stops = [sent[key], *([carried[key]] if key in carried else []), received[key]]
            moments = [(self._ns(s.start_us) + self._ns(s.end_us)) // 2 for s in stops]
            last = len(stops) - 1
            for i, s in enumerate(stops):
                pid, tid = self._place(s.track)
                ts = _us(min(moments[i:]))
                event = {"name": "slice", "cat": "slice", "id": number, "pid": pid, "tid": tid}
                yield {"ph": "f" if i == last else "t" if i else "s", "bp": "e", "ts": ts, **event}

    def _ends(self) -> Sequence[dict[tuple[int, int], TraceSlice]]:
        """The first span that moves each slice of a connection: sender's, proxy's, receiver's."""
        ends: defaultdict[str, dict[tuple[int, int], TraceSlice]] = defaultdict(dict)
        blocks = len(self._blocks)
        for s in self._slices:
            if s.cause not in _MOVING or self._ns(s.end_us) <= self._ns(s.start_us):
                continue
            if s.track >= blocks:
                ends["carried"].setdefault((s.track - blocks, s.sent), s)
                continue
            block = self._blocks[s.track]
            if s.sent >= 0:
                ends["sent"].setdefault((block.out, s.sent), s)
            if s.received >= 0:
                ends["received"].setdefault((block.into, s.received), s)
        return ends["sent"], ends["carried"], ends["received"]


def _steps(s: TraceSlice) -> str:
    fused = s.last_step > s.step
    return f"steps {s.step}-{s.last_step}" if fused else f"step {s.step}"


def _meta(kind: str, pid: int, tid: int, **args: object) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}
