"""All-to-all of many hosts: inside hosts, then over rails; every host does the same, rotated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, permutations

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import Address, LoweringHints, Schedule, Transfer

# Thread blocks that a GPU should need, and those that can run at once where it needs more.
_FEW_BLOCKS, _MOST_BLOCKS = 64, 128
# Pairs of distances, one the other's way back, that share a channel: it has 32 peers at most.
_PAIRS_PER_CHANNEL = 15


def rail_alltoall(problem: Problem) -> Schedule | None:
    """Return the schedule in which a rank talks to its host and its rail alone.

    What a host has for one rank of another is gathered on the rank of the same local rank, and
    crosses as one message to where it must end. None where hosts differ in size, or a link of a
    host or a rail is missing.

    Raises:
        Infeasible: a rank has more peers than thread blocks.
    """
    if not _has_rails(problem.sketch):
        return None
    hosts = problem.sketch.nhosts
    shape = _Shape(hosts, problem.sketch.ranks // hosts, problem.chunks_per_rank)
    if shape.peers > _MOST_BLOCKS:
        raise Infeasible(
            f"hierarchical2: alltoall over {hosts} hosts: a rank has {shape.peers} peers on its "
            f"host and rail, and a GPU runs {_MOST_BLOCKS} thread blocks at once; use fewer hosts"
        )
    return Schedule(
        problem.collective,
        problem.nchunks,
        tuple(shape.transfers()),
        (shape.scratch,) * problem.collective.ranks,
        "hierarchical2",
        problem.chunks_per_rank,
        hints=LoweringHints(split_send_recv=True, shared_threadblocks=frozenset(shape.shared())),
    )


def _has_rails(sketch: Sketch) -> bool:
    """Return whether hosts are equal, of consecutive ranks, and joined along every rail."""
    hosts = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    if len({len(ranks) for ranks in hosts}) > 1 or sketch.relays:
        return False
    sets = (*hosts, *zip(*hosts, strict=True))
    return list(chain(*hosts)) == list(range(sketch.ranks)) and all(
        sketch.link(*pair) is not None for ranks in sets for pair in permutations(ranks, 2)
    )


class _Shape:
    """`hosts` hosts of `size` ranks, `each` chunks for each pair of ranks."""

    def __init__(self, hosts: int, size: int, each: int) -> None:
        self.hosts, self.size, self.each = hosts, size, each
        self.ranks = range(hosts * size)
        self.peers = hosts + size - 2

    @property
    def scratch(self) -> int:
        """Return the chunks that a rank gathers from its host."""
        return (self.hosts - 1) * self.size * self.each

    def transfers(self) -> Iterator[Transfer]:
        """Yield what is gathered for each distance between hosts, what stays, and what crosses."""
        for ahead in (*range(1, self.hosts), 0):
            for rank in self.ranks:
                yield from self.gathered(rank, ahead)
        for ahead in range(1, self.hosts):
            for rank in self.ranks:
                yield self.crossing(rank, ahead)

    def gathered(self, rank: int, ahead: int) -> Iterator[Transfer]:
        """Yield what `rank` has for the host so many ahead, each to the rank that takes it there.

        What it has for its own host is in place then.
        """
        host, local = divmod(rank, self.size)
        target = (host + ahead) % self.hosts * self.size
        for step in range(self.size):
            to = (local + step) % self.size
            source = Address("i", (target + to) * self.each)
            place = (
                Address("s", ((ahead - 1) * self.size + local) * self.each)
                if ahead
                else Address("o", rank * self.each)
            )
            channel = self.inner_channel(step) if step else 0
            there = host * self.size + to
            yield Transfer(rank, there, source, place, self.each, channel=channel)

    def crossing(self, rank: int, ahead: int) -> Transfer:
        """Return what `rank` sends to the host so many ahead."""
        host, local = divmod(rank, self.size)
        return Transfer(
            rank,
            (host + ahead) % self.hosts * self.size + local,
            Address("s", (ahead - 1) * self.size * self.each),
            Address("o", host * self.size * self.each),
            self.size * self.each,
            channel=self.rail_channel(ahead),
        )

    def rail_channel(self, ahead: int) -> int:
        return (min(ahead, self.hosts - ahead) - 1) // _PAIRS_PER_CHANNEL

    def inner_channel(self, step: int) -> int:
        return (self.hosts // 2 + min(step, self.size - step) - 1) // _PAIRS_PER_CHANNEL

    def shared(self) -> Iterator[tuple[int, int, int]]:
        """Yield the connections whose thread block also serves the way back.

        Those of rails, then those inside hosts, if separate ones would be too many. The farthest
        hosts' keep theirs: both ways set out at once there, and a rotation would swap them.
        """
        blocks = 2 * self.peers
        if blocks > _FEW_BLOCKS:
            for ahead in range(1, self.hosts):
                if 2 * ahead != self.hosts:
                    for rank in range(self.hosts * self.size):
                        to = self.crossing(rank, ahead).dst
                        yield self.rail_channel(ahead), rank, to
            blocks -= self.hosts - 2
        if blocks > _MOST_BLOCKS:
            for first in range(0, self.hosts * self.size, self.size):
                for one, other in permutations(range(self.size), 2):
                    yield self.inner_channel((other - one) % self.size), first + one, first + other
