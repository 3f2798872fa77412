"""What is to be planned: items (chunks, or neighbours together), where they start, what they may use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tuccl.sketches.sketch import Sketch
from tuccl.synth.greedy.rotation import Turning, turning, unturned
from tuccl.synth.greedy.routes import Lanes
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network
from tuccl.synth.model.problem import Options
from tuccl.synth.packing.pair_units import near

__all__ = ["MOST_CONNECTIONS", "MOST_SINGLE", "Question", "starts_of"]

# Ranks up to which every rank's own part is planned and lowered; above, one block's is, and turned.
MOST_SINGLE = 64
# Ways in and out that a rank should need at most: each takes a thread block.
MOST_CONNECTIONS = 32
# Sends planned over all starts of one question, which bounds the time spent on it.
_MOST_PLANNED = 150_000
_MOST_STARTS = 128


def starts_of(options: Options, sends: int) -> int:
    """Return the starts to make of a plan of so many sends."""
    return options.starts or max(2, min(_MOST_STARTS, _MOST_PLANNED // max(1, sends)))


@dataclass(frozen=True)
class Question:
    """A collective over lanes, planned in bundles of `bundle` chunks.

    Attributes:
        collective: What is to be computed.
        sketch: Links and relay rules.
        wires: The links' wires.
        chunks_per_rank: Parts of each rank's share.
        nbytes: Size that the plan is made for.
        options: Seed, starts and threads.
        slowed: For each pair how many times as long as alone its bytes take.
        lanes: What may be used.
        bundle: Chunks of an item, neighbours that start and end alike.
    """

    collective: Collective
    sketch: Sketch
    wires: Network
    chunks_per_rank: int
    nbytes: int
    options: Options
    slowed: tuple[float, ...]
    lanes: Lanes
    bundle: int = 1

    @property
    def item_bytes(self) -> int:
        """Return the bytes of an item."""
        nchunks = self.collective.nchunks(self.chunks_per_rank)
        return max(1, -(-self.nbytes * self.bundle // nchunks))

    @cached_property
    def holders(self) -> list[int]:
        """Return the rank of the first block that has, or is to have, each of the block's items."""
        if self.collective.rooted:
            nchunks = self.collective.nchunks(self.chunks_per_rank)
            return [self.collective.root] * (nchunks // self.bundle)
        each = self.chunks_per_rank // self.bundle
        return [rank for rank in range(self.lanes.turning.ranks) for _ in range(each)]

    @property
    def bundles(self) -> list[int]:
        """Return the bundles worth a try."""
        if self.collective.name not in ("broadcast", "reduce"):
            return [1]
        return sorted({1, self.chunks_per_rank, self.collective.nchunks(self.chunks_per_rank)})

    def leaving(self) -> list[list[int]]:
        """Return by rank the items that it may take off its host; empty: there is no rule."""
        if not self.sketch.relays:
            return []
        each = self.chunks_per_rank
        owners = [number * self.bundle // each for number in range(len(self.holders))]
        if self.collective.name == "broadcast":
            owners = [self.place(owner) for owner in owners]
        carried = (set(self.sketch.relays.get(rank, ())) for rank in range(self.sketch.ranks))
        return [[n for n, owner in enumerate(owners) if owner in ranks] for ranks in carried]

    def place(self, rank: int) -> int:
        """Return the rank of the root's host at the same place as `rank` on its own host."""
        hosts, root = self.sketch.hosts, self.collective.root
        at_root = self.sketch.ranks_of(hosts[root])
        place = self.sketch.ranks_of(hosts[rank]).index(rank)
        return at_root[place % len(at_root)]

    def variants(self) -> Iterator[Question]:
        """Yield the same question over other lanes: all, near ones alone, one block's alone."""
        whole = unturned(self.wires)
        turned = whole
        everywhere = not self.collective.rooted and self.collective.name != "alltoall"
        if everywhere and not self.sketch.relays:
            turned = turning(self.wires, self.lanes.alphas)
        many = self.wires.ranks > MOST_SINGLE
        for circle in dict.fromkeys((turned,) if many else (whole, turned)):
            out = [n for n, (src, _) in enumerate(self.wires.pairs) if src < circle.ranks]
            close = [n for n in out if near(self.wires.hosts, *self.wires.pairs[n])]
            if many and circle.blocks > 1:
                yield self._over(circle, self._strided(close, circle.ranks))
                continue
            yield self._over(circle, out)
            if len(close) < len(out):
                yield self._over(circle, close)

    def _strided(self, lanes: list[int], size: int) -> list[int]:
        """Return the lanes that lead 0, 1, 2, 4 and so on blocks ahead, if all were too many."""
        pairs = [self.wires.pairs[n] for n in lanes]
        if (
            2 * max(sum(src == rank for src, _ in pairs) for rank in range(size))
            <= MOST_CONNECTIONS
        ):
            return lanes
        blocks = self.wires.ranks // size
        strides = {0, *(1 << power for power in range((blocks - 1).bit_length()))}
        return [n for n, (_, dst) in zip(lanes, pairs, strict=True) if dst // size in strides]

    def _over(self, circle: Turning, used: list[int]) -> Question:
        lanes = Lanes(self.wires, self.lanes.alphas, self.slowed, circle, tuple(used))
        return replace(self, lanes=lanes)
