"""The picture of a fabric: hosts as boxes, switches by tier, links as wide as they are fast."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import count

from tuccl.errors import InputError
from tuccl.topology.graph import Topology
from tuccl.topology.pictures.svg import Drawing, number, stroke_width

_MOST_SINGLE = 8  # boxes of a tier; beyond, those that are alike share one in all tiers
_MOST_LINES = 24  # between boxes; beyond too
_MOST_BOXES = 64  # of a tier
_TIER = 92.0
_HEIGHT = 46.0
_LINE = 56.0
_PITCH = 52.0
_MARGIN = 20.0


@dataclass(frozen=True)
class _Box:
    """Hosts or switches that look the same from everywhere, or one of them."""

    members: tuple[str, ...]
    tier: int


class FabricPicture:
    """Hosts and network switches with the links between them."""

    def __init__(self, topology: Topology) -> None:
        """Find the boxes: one for each host and switch if few, else one for those alike."""
        self._topology = topology
        self._hosts = set(topology.hosts)
        self._switches = [n.id for n in topology.nodes if n.kind == "switch"]
        self._rates = self._between()
        if lost := self._rates.keys() - self._hosts - set(self._switches):
            raise InputError(f"host {min(lost)[:60]!r} has no GPU to draw; correct its parts' host")
        tiers = self._tiers()
        self._colours = self._refined()
        groups: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in (*topology.hosts, *self._switches):
            groups[tiers[name], self._colours[name]].append(name)
        single = self._fits_single(tiers)
        self._rows: dict[int, list[_Box]] = defaultdict(list)
        self._omitted = 0
        for tier in sorted(set(tiers.values())):
            boxes = [members for (t, _), members in groups.items() if t == tier]
            if single:
                boxes = [[name] for members in boxes for name in members]
            self._rows[tier] = [_Box(tuple(box), tier) for box in boxes[:_MOST_BOXES]]
            self._omitted += len(boxes[_MOST_BOXES:])
        widest = max(
            min(len(row), self._columns(row)) * self._pitch(row) for row in self._rows.values()
        )
        self.width = max(widest, 240.0) + 2 * _MARGIN
        self.height = sum(self._room(row) for row in self._rows.values()) - 24

    def _fits_single(self, tiers: dict[str, int]) -> bool:
        """Return whether each host and switch gets a box: all tiers are short, and lines few."""
        lines = sum(len(others) for others in self._rates.values()) // 2
        return max(Counter(tiers.values()).values()) <= _MOST_SINGLE and lines <= _MOST_LINES

    @property
    def host_kinds(self) -> list[tuple[str, int]]:
        """Return the first host of each kind, and how many are of it."""
        kinds: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for host in self._topology.hosts:
            kinds[self._kind(host)].append(host)
        return [(hosts[0], len(hosts)) for hosts in kinds.values()]

    def _kind(self, host: str) -> tuple[object, ...]:
        parts = Counter(
            (n.kind, n.model or "", n.port_gbs or 0.0)
            for n in self._topology.nodes
            if (n.host or "") == host
        )
        return tuple(sorted(parts.items()))

    def _between(self) -> dict[str, dict[str, list[float]]]:
        """Return the rates of the links from each host or switch to the others."""
        owner = {n.id: n.id if n.kind == "switch" else n.host or "" for n in self._topology.nodes}
        rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for link in self._topology.links:
            src, dst = owner[link.src], owner[link.dst]
            if src != dst:
                rates[src][dst].append(link.bandwidth)
                rates[dst][src].append(link.bandwidth)
        return rates

    def _tiers(self) -> dict[str, int]:
        """Return 0 for hosts, and for switches the fewest links to a host."""
        tiers = dict.fromkeys(self._topology.hosts, 0)
        queue = list(tiers)
        for name in queue:
            for neighbour in self._rates[name]:
                if neighbour not in tiers:
                    tiers[neighbour] = tiers[name] + 1
                    queue.append(neighbour)
        return {name: tiers.get(name, 1) for name in (*self._topology.hosts, *self._switches)}

    def _refined(self) -> dict[str, int]:
        """Return equal numbers for hosts and switches that nothing distinguishes."""
        colours: dict[str, int] = {}
        seen: dict[object, int] = {}
        for name in (*self._topology.hosts, *self._switches):
            key = self._kind(name) if name in self._hosts else "switch"
            colours[name] = seen.setdefault(key, len(seen))
        kinds = 0
        while len(set(colours.values())) > kinds:
            kinds = len(set(colours.values()))
            numbers: dict[object, int] = defaultdict(count().__next__)
            around = {
                name: tuple(
                    sorted((colours[to], *sorted(r)) for to, r in self._rates[name].items())
                )
                for name in colours
            }
            colours = {name: numbers[colour, around[name]] for name, colour in colours.items()}
        return colours

    @staticmethod
    def _pitch(row: list[_Box]) -> float:
        """Return the room of a box: more where it stands for several."""
        return 150.0 if any(len(box.members) > 1 for box in row) else _PITCH

    def _columns(self, row: list[_Box]) -> int:
        """Return how many boxes stand side by side; the rest goes to further lines."""
        return _MOST_SINGLE if self._pitch(row) == _PITCH else 4

    def _room(self, row: list[_Box]) -> float:
        """Return the height of a tier, with the room for links below it."""
        return _TIER + (len(row) - 1) // self._columns(row) * _LINE

    def draw(self, drawing: Drawing, y: float) -> None:
        """Draw tiers from the top down to the hosts, from ``y`` on."""
        at: dict[str, tuple[float, float]] = {}
        for _, row in sorted(self._rows.items(), reverse=True):
            pitch, columns = self._pitch(row), self._columns(row)
            for place, box in enumerate(row):
                line, column = divmod(place, columns)
                beside = min(columns, len(row) - line * columns)
                x = self.width / 2 + (column - (beside - 1) / 2) * pitch
                for member in box.members:
                    at[member] = x, y + line * _LINE + _HEIGHT / 2 + 6
                self._draw_box(drawing, box, at[box.members[0]], pitch - 6)
            y += self._room(row)
        boxes = [box for row in self._rows.values() for box in row]
        for box in boxes:
            self._draw_links(drawing, box, boxes, at)

    def _draw_box(self, drawing: Drawing, box: _Box, at: tuple[float, float], width: float) -> None:
        first, many = box.members[0], len(box.members)
        most = int(width / 7)
        if first in self._hosts:
            gpus, nics = self._topology.gpus_of(first), self._topology.nics_of(first)
            facts = [_count(len(gpus), "GPU"), _count(len(nics), "NIC")]
        else:
            facts = []
        if many > 1:
            name = f"{first} … {box.members[-1]}"
            each = " each" if facts else ""
            lines = [
                _cut(name, most),
                f"{many} alike",
                *([", ".join(facts) + each] if facts else []),
            ]
        else:
            lines = [_cut(first, most), *facts]
        kind = "cpu" if first in self._hosts else "switch"
        drawing.box(at, (width, _HEIGHT), kind, lines, ", ".join(box.members[:64]))

    def _draw_links(
        self,
        drawing: Drawing,
        box: _Box,
        boxes: list[_Box],
        at: dict[str, tuple[float, float]],
    ) -> None:
        """Draw the links from a box to those of other tiers above it, and between equals once."""
        first = box.members[0]
        for other in boxes:
            is_later = (other.tier, boxes.index(other)) > (box.tier, boxes.index(box))
            rates = [r for m in other.members for r in self._rates[first].get(m, ())]
            if not rates or not is_later:
                continue
            (x1, y1), (x2, y2) = at[first], at[other.members[0]]
            middle = (y1 + y2) / 2
            points = (
                f"M{number(x1)} {number(y1)}C{number(x1)} {number(middle)} {number(x2)} "
                f"{number(middle)} {number(x2)} {number(y2)}"
            )
            text = " + ".join(f"{n} x {gbs:g} GB/s" for gbs, n in sorted(Counter(rates).items()))
            ends = f"{first} to {_cut(other.members[0], 40)}"
            drawing.path(points, "network", stroke_width(sum(rates)), f"{ends}: {text}")
            if max(self._pitch(self._rows[end.tier]) for end in (box, other)) > _PITCH:
                drawing.text((x1 + x2) / 2 + 6, middle, text, "small left")

    def facts(self) -> list[str]:
        """Return a line for each rate between tiers, with the number of links."""
        tiers = self._tiers()
        counts: Counter[tuple[int, int, float]] = Counter()
        for src, others in self._rates.items():
            for dst, rates in others.items():
                if (tiers[src], src) < (tiers[dst], dst):
                    for gbs in rates:
                        counts[tiers[src], tiers[dst], gbs] += 1
        notes = [f"{self._omitted} more that differ are not drawn"] if self._omitted else []
        return notes + [
            f"{'host' if low == 0 else f'tier {low}'} to tier {high}: {n} links of {gbs:g} GB/s"
            for (low, high, gbs), n in sorted(counts.items())
        ]


def _count(many: int, noun: str) -> str:
    return f"{many} {noun}{'' if many == 1 else 's'}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(1, most - 1)] + "…"
