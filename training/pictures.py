"""The timeline of a step as a picture and as a trace, exposed communication shaded."""

from __future__ import annotations

import msgspec

from tuccl import __version__
from tuccl.topology.pictures.svg import Drawing
from tuccl.training.simulation import TrainingRun
from tuccl.training.timeline import Span

_KINDS = {"forward": "cpu", "backward": "gpu", "queue": "paper", "wire": "nic", "update": "switch"}
_WIDTH, _LEFT, _ROW, _TOP = 960.0, 150.0, 34.0, 70.0
_TICKS = 8
_SPACE = {"sim": "simulated", "replay": "replayed", "train": "trained"}


def _tracks(run: TrainingRun) -> list[str]:
    return list(dict.fromkeys(("compute", *(span.track for span in run.timeline.spans))))


def _title(run: TrainingRun) -> str:
    row = run.row
    return (
        f"{row.model}, {row.method}, {row.ranks} ranks, {row.backend}: step of "
        f"{row.step_us / 1e3:.3g} ms, {row.exposed:.1%} exposed ({_SPACE[row.kind]})"
    )


def timeline_svg(run: TrainingRun) -> str:
    """Return a step as SVG: computing, each link and its queue; what is exposed is hatched."""
    tracks, step_us = _tracks(run), run.timeline.step_us
    scale = (_WIDTH - _LEFT - 20) / step_us
    bottom = _TOP + _ROW * len(tracks)
    drawing = Drawing()
    drawing.text(_WIDTH / 2, 20, _title(run), "title")
    drawing.text(
        _WIDTH / 2, 42, "violet forward, blue backward, orange transfer, green update; red: exposed"
    )
    for start, end in run.timeline.exposed:
        x = _LEFT + (start + end) / 2 * scale
        drawing.path(
            f"M{x:.1f} {_TOP - 14:.1f}V{bottom:.1f}",
            "pruned",
            max((end - start) * scale, 0.5),
            f"exposed: {end - start:.1f} us",
        )
    for row, track in enumerate(tracks):
        drawing.text(10, _TOP + _ROW * (row + 0.5), track, "left")
    for span in run.timeline.spans:
        middle = _TOP + _ROW * (tracks.index(span.track) + 0.5)
        x, width = _LEFT + span.start_us * scale, (span.end_us - span.start_us) * scale
        title = f"{span.kind} {span.name}: {span.start_us:.1f} to {span.end_us:.1f} us"
        size = (max(width, 0.3), _ROW * (0.3 if span.kind == "queue" else 0.7))
        drawing.box((x + width / 2, middle), size, _KINDS[span.kind], title=title)
    for tick in range(_TICKS + 1):
        us = step_us * tick / _TICKS
        drawing.text(_LEFT + us * scale, bottom + 14, f"{us / 1e3:.3g} ms", "small")
    return drawing.svg(_WIDTH, bottom + 30, _title(run))


def timeline_trace(run: TrainingRun) -> bytes:
    """Return a step as a trace for Perfetto or chrome://tracing.

    Notes:
        "Trace Event Format" (Chromium project), phases X and M; queues overlap, so each of their
        spans has a track of its own where needed.
    """
    tracks = [*_tracks(run), "exposed communication"]
    exposed = [
        Span("wire", tracks[-1], "exposed", start, end) for start, end in run.timeline.exposed
    ]
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": _title(run)}}
    ]
    for number, track in enumerate(tracks):
        named = {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": track}}
        events.append(named)
    for span in (*run.timeline.spans, *exposed):
        if span.kind == "queue":
            events += _asynchronous(span, tracks.index(span.track), len(events))
            continue
        events.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": span.kind,
                "pid": 1,
                "tid": tracks.index(span.track),
                "ts": span.start_us,
                "dur": span.end_us - span.start_us,
            }
        )
    about = {"times": _SPACE[run.row.kind], "tuccl": __version__, "step_us": run.row.step_us}
    return msgspec.json.encode({"otherData": about, "displayTimeUnit": "ms", "traceEvents": events})


def _asynchronous(span: Span, track: int, number: int) -> list[dict[str, object]]:
    common: dict[str, object] = {
        "name": span.name,
        "cat": "queue",
        "pid": 1,
        "tid": track,
        "id": number,
    }
    return [
        {"ph": "b", "ts": span.start_us, **common},
        {"ph": "e", "ts": span.end_us, **common},
    ]
