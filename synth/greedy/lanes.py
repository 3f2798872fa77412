"""What a sketch's links cost and share when chunks of one size are sent over them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tuccl.sketches.sketch import LogicalLink, Sketch

__all__ = ["Lane", "Lanes", "Send", "estimate_us"]

# The tile that the executor walks through all steps with: four of the eight slots of Simple's
# default 4 MiB buffer (docs/simulator.md 1).
_TILE_BYTES = 2 << 20


class Send(NamedTuple):
    """A chunk on its way: over lane `lane`, from `start` to `end` in us.

    The `number` is the item's, as the planner numbers what it moves.
    """

    number: int
    lane: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A link of the sketch as a planner sees it; times in us.

    Attributes:
        src: Sending rank.
        dst: Receiving rank.
        inter: Whether it joins two hosts.
        travel: From the start of a send to its arrival.
        flow: How long a send keeps each of the `shared` resources.
        shared: Numbers of the NIC directions or switch ports it uses.
    """

    src: int
    dst: int
    inter: bool
    travel: float
    flow: float
    shared: tuple[int, ...]


class Lanes:
    """The links of a sketch for chunks of `chunk_bytes`, forwards or all turned round.

    A lane is busy for the whole travel of a send: one thread block serves it. A NIC direction or a
    switch port is busy only while bytes flow. Planners use the time of one tile of a chunk, since
    the executor pipelines tiles.
    """

    def __init__(self, sketch: Sketch, chunk_bytes: int, backwards: bool = False) -> None:
        """Take the links of `sketch`; `backwards` plans a gathering as a reversed spreading."""
        self.backwards = backwards
        self.ranks = sketch.ranks
        self.hosts = sketch.hosts
        self.tiles = max(1, -(-chunk_bytes // _TILE_BYTES))
        tile = -(-chunk_bytes // self.tiles)
        ports = _Ports(sketch)
        self.lanes = [self._lane(link, tile, ports, backwards) for link in sketch.links]
        self.resources = ports.count
        self.into: dict[int, list[int]] = defaultdict(list)
        self.out_of: dict[int, list[int]] = defaultdict(list)
        for number, lane in enumerate(self.lanes):
            self.into[lane.dst].append(number)
            self.out_of[lane.src].append(number)

    def quickest_inside(self) -> dict[tuple[int, int], float]:
        """Return the least travel in us, by idle lanes inside hosts, of each pair they join."""
        quickest: dict[tuple[int, int], float] = {}
        for source in range(self.ranks):
            waiting = [(0.0, source)]
            while waiting:
                spent, rank = heapq.heappop(waiting)
                if (source, rank) in quickest:
                    continue
                quickest[source, rank] = spent
                for number in self.out_of[rank]:
                    lane = self.lanes[number]
                    if not lane.inter:
                        heapq.heappush(waiting, (spent + lane.travel, lane.dst))
        return quickest

    @staticmethod
    def _lane(link: LogicalLink, tile: int, ports: _Ports, backwards: bool) -> Lane:
        shared = ports.of(link)
        # What shares a wire unseen (PCIe bridges) is taken to be as slow as in a round of all.
        crowding = 1.0 if shared else 1.0 + link.congestion
        flow = tile * link.beta_us_per_mb * crowding / 1e6
        src, dst = (link.dst, link.src) if backwards else (link.src, link.dst)
        return Lane(src, dst, link.inter, link.alpha_us + flow, flow, shared)


class _Ports:
    """Numbers for the directions of NICs and switch ports."""

    def __init__(self, sketch: Sketch) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._switches = [frozenset(ranks) for ranks in sketch.switches]

    @property
    def count(self) -> int:
        return len(self._numbers)

    def of(self, link: LogicalLink) -> tuple[int, ...]:
        """Return the numbers of what a link uses, in its own direction."""
        if link.inter:
            keys = [("nic", way, nic) for way, nic in zip(("out", "in"), link.nics, strict=False)]
            return tuple(self._number(*key) for key in keys)
        return tuple(
            port
            for number, ranks in enumerate(self._switches)
            if link.src in ranks and link.dst in ranks
            for port in (
                self._number("switch", number, "out", link.src),
                self._number("switch", number, "in", link.dst),
            )
        )

    def _number(self, *key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def estimate_us(lanes: Lanes, sends: Sequence[Send]) -> float:
    """Return about how long the executor takes for the sends, in us.

    Notes:
        The first tile takes the makespan; each further tile the time of the busiest lane, NIC or
        port, since tiles are pipelined (docs/simulator.md 2).
    """
    makespan = max((send.end for send in sends), default=0.0)
    return makespan + (lanes.tiles - 1) * _bottleneck_us(lanes, sends)


def _bottleneck_us(lanes: Lanes, sends: Iterable[Send]) -> float:
    lane_load: dict[int, float] = defaultdict(float)
    shared_load: dict[int, float] = defaultdict(float)
    for send in sends:
        lane = lanes.lanes[send.lane]
        lane_load[send.lane] += lane.flow
        for resource in lane.shared:
            shared_load[resource] += lane.flow
    return max((*lane_load.values(), *shared_load.values()), default=0.0)
