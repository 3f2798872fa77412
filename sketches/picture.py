"""The picture of a sketch: the links before and after pruning, drawn on its hosts."""

from __future__ import annotations

from tuccl.errors import InputError
from tuccl.sketches.sketch import Sketch
from tuccl.topology.graph import Topology
from tuccl.topology.pictures.host import HostPicture
from tuccl.topology.pictures.svg import Drawing, number

_MOST_HOSTS = 4
_GAP = 8.0
_WIDEST = 1000.0


def sketch_svg(sketch: Sketch, topology: Topology) -> str:
    """Return two drawings as one SVG text: all links that there were, then those that stayed.

    Links that were pruned are dashed in the first; a line stands for both directions, unless one
    alone stayed. At most four hosts are drawn.

    >>> from tuccl.sketches import candidate_sketches
    >>> from tuccl.topology import load_profile
    >>> dgx = load_profile("dgx-1v")
    >>> [first, *_] = candidate_sketches(dgx, "allgather", 1 << 20)
    >>> sketch_svg(first, dgx) == sketch_svg(first, dgx)
    True

    Raises:
        InputError: the sketch is of another machine.
    """
    if sketch.ranks != topology.ranks:
        raise InputError(
            f"sketch {sketch.name[:40]!r} is of {sketch.ranks} ranks, topology "
            f"{topology.name[:40]!r} has {topology.ranks}"
        )
    drawing = Drawing()
    drawing.text(8, 14, f"{topology.name[:40]}: sketch {sketch.name[:40]}", "title left")
    hosts = topology.hosts[:_MOST_HOSTS]
    frames: dict[str, tuple[HostPicture, float]] = {}
    x = 0.0
    for host in hosts:
        picture = HostPicture(topology, host, linked=False)
        if len(frames) > 1 and x + picture.width > _WIDEST:
            break
        frames[host] = picture, x
        x += picture.width + _GAP
    pairs = set(sketch.pairs)
    pruned_pairs = {(link.src, link.dst) for link in sketch.pruned} - pairs
    text = [f"before: {len(pairs | pruned_pairs)} links", f"after: {len(pairs)} links"]
    if len(frames) < len(topology.hosts):
        text = [f"{line}; {len(frames)} of {len(topology.hosts)} hosts drawn" for line in text]
    y = 40.0
    for line, dashed in zip(text, (pruned_pairs, set[tuple[int, int]]()), strict=True):
        drawing.text(8, y, line, "left")
        panel = _Panel(drawing, topology, frames, y + 10)
        panel.draw(dashed, "pruned")
        panel.draw(pairs, "logical")
        y = panel.bottom + 12
    stages = ", ".join(dict.fromkeys(link.stage for link in sketch.pruned))
    _legend(drawing, y, f"pruned by {stages}" if stages else "nothing was pruned")
    return drawing.svg(max(x, 330.0), y + 34, f"sketch {sketch.name} of {topology.name}")


class _Panel:
    """Hosts side by side, with logical links over them."""

    def __init__(
        self,
        drawing: Drawing,
        topology: Topology,
        frames: dict[str, tuple[HostPicture, float]],
        y: float,
    ) -> None:
        self._drawing, self._topology, self._frames, self._y = drawing, topology, frames, y
        self.bottom = y + max(picture.height for picture, _ in frames.values())
        for picture, x in frames.values():
            picture.draw(drawing, x, y)

    def draw(self, pairs: set[tuple[int, int]], kind: str) -> None:
        """Draw a line for each pair of ranks, one for both directions."""
        for src, dst in sorted(pairs):
            both = (dst, src) in pairs
            points = None if both and dst < src else self._points(src, dst)
            if points:
                title = f"{kind}: rank {src} {'and' if both else 'to'} {dst}"
                self._drawing.path(points, kind, 1.4, title)

    def _points(self, src: int, dst: int) -> str | None:
        hosts = self._topology.host_of(src), self._topology.host_of(dst)
        if not self._frames.keys() >= set(hosts):
            return None
        gpus = self._topology.gpus[src].id, self._topology.gpus[dst].id
        (first, x1), (second, x2) = (self._frames[host] for host in hosts)
        if hosts[0] == hosts[1]:
            return first.curve(*gpus, x1, self._y)
        if gpus[0] not in first.at or gpus[1] not in second.at:
            return None
        # Between hosts a line bends towards the middle of the rows, where no boxes are.
        start, end = first.at[gpus[0]], second.at[gpus[1]]
        middle = self._y + (first.height + second.height) / 4
        return (
            f"M{number(x1 + start[0])} {number(self._y + start[1])}"
            f"Q{number((x1 + start[0] + x2 + end[0]) / 2)} {number(middle)} "
            f"{number(x2 + end[0])} {number(self._y + end[1])}"
        )


def _legend(drawing: Drawing, y: float, pruned: str) -> None:
    for row, (kind, text) in enumerate((("logical", "in the sketch"), ("pruned", pruned))):
        drawing.path(f"M12 {number(y + 16 * row)}H44", kind, 1.4)
        drawing.text(52, y + 16 * row, text, "left")
