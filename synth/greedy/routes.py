"""What a greedy plan may use: pairs of ranks, what they cost, and the wires that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tuccl._native import Roads
from tuccl.synth.greedy.rotation import Turning
from tuccl.synth.model.network import Network

__all__ = ["Lanes"]

# The tile that the executor walks through all steps with: four of the eight slots of Simple's
# default 4 MiB buffer (docs/simulator.md).
_TILE_BYTES = 2 << 20


@dataclass(frozen=True)
class Lanes:
    """Pairs of a machine that looks the same from each block of ranks: those out of the first one.

    A wire is busy while bytes pass; an item arrives a latency later, and as a whole. Times are those
    of one tile of an item, since the executor pipelines tiles.

    Attributes:
        wires: All pairs, and their wires.
        alphas: Latency of each pair in us.
        slowed: For each pair how many times as long as alone its bytes take.
        turning: The blocks.
        used: Numbers of the pairs that may be used, all from the first block.
    """

    wires: Network
    alphas: tuple[float, ...]
    slowed: tuple[float, ...]
    turning: Turning
    used: tuple[int, ...]

    @cached_property
    def ends(self) -> list[tuple[int, int, int]]:
        """Return of each lane the sending and receiving rank of a block, and how many blocks on."""
        size = self.turning.ranks
        pairs = (self.wires.pairs[place] for place in self.used)
        return [(src, dst % size, dst // size) for src, dst in pairs]

    def roads(self, item_bytes: int, *, backwards: bool = False) -> Roads:
        """Return the lanes for items of so many bytes, forwards or all turned round."""
        tiles = max(1, -(-item_bytes // _TILE_BYTES))
        tile, blocks = item_bytes / tiles, self.turning.blocks
        hosts = self.wires.hosts[: self.turning.ranks]
        number = {host: place for place, host in enumerate(dict.fromkeys(hosts))}
        lanes = []
        for (tail, head, on), place in zip(self.ends, self.used, strict=True):
            way = self._way(place, tile)
            src, dst = self.wires.pairs[place]
            inter = self.wires.hosts[src] != self.wires.hosts[dst]
            if backwards:
                lanes.append((head, tail, -on % blocks, inter, self.alphas[place], way[::-1]))
            else:
                lanes.append((tail, head, on, inter, self.alphas[place], way))
        return Roads(
            blocks, [number[host] for host in hosts], len(self.turning.crowd), tiles, lanes
        )

    def _way(self, place: int, nbytes: float) -> list[tuple[int, float]]:
        turning, rates = self.turning, self.wires.rates
        return [
            (
                turning.orbit[wire],
                nbytes
                * self.slowed[place]
                * turning.crowd[turning.orbit[wire]]
                / float(rates[wire])
                / 1e3,
            )
            for wire in self.wires.routes[place]
        ]

    def connections(self, lanes: Sequence[int]) -> int:
        """Return the most ways in and out that a rank has by so many different lanes."""
        count = [0] * self.turning.ranks
        for lane in set(lanes):
            tail, head, _ = self.ends[lane]
            count[tail] += 1
            count[head] += 1
        return max(count, default=0)
