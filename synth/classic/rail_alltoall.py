"""All-to-all of many hosts: inside hosts, then over rails; every host does the same, rotated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.local_routes import equal_hosts
from tuccl.synth.lowering.limits import limits_of
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import Address, LoweringHints, Schedule, Transfer

# Thread blocks that a GPU should need, and those that can run at once where it needs more.
_FEW_BLOCKS, _MOST_BLOCKS = 64, 128
# Multiprocessors of an A100: thread blocks that any GPU of these sizes runs at once.
_RESIDENT_BLOCKS = 108
# Pairs of distances, one the other's way back, that share a channel: it has 32 peers at most.
_PAIRS_PER_CHANNEL = 15
_PEERS_PER_CHANNEL = 32
# Senders that one message waits for, each a step.
_MOST_AWAITED = 60


def rail_alltoall(problem: Problem) -> Schedule | None:
    """Return the schedule in which a rank talks to its host and its rail alone.

    What a host has for one rank of another is gathered on the rank of the same local rank, and
    crosses as one message to where it must end. None where hosts differ in size, or a link of a
    host or a rail is missing.

    Raises:
        Infeasible: a rank has more peers than thread blocks.
    """
    if not equal_hosts(problem.sketch):
        return None
    shape = _Shape(problem)
    if shape.peers > _MOST_BLOCKS:
        raise Infeasible(
            f"hierarchical2: alltoall over {shape.hosts} hosts: a rank has {shape.peers} peers on "
            f"its host and rail, and a GPU runs {_MOST_BLOCKS} thread blocks at once; use "
            "hierarchical3 or fewer hosts"
        )
    return shape.schedule("hierarchical2") if _has_rails(problem.sketch) else None


def host_pair_alltoall(problem: Problem) -> Schedule:
    """Return the schedule in which one rank of a host carries all that it has for another.

    The sketch has `equal_hosts`. Local rank d modulo the ranks of a host is in charge of the host d
    further: the others hand it their chunks, it sends them as one message to its rail's rank there,
    and that one spreads them. A rank has that many times fewer peers on its rail. Distances that do
    not come out even go as `rail_alltoall` has them, so that all rails carry the same.

    Raises:
        Infeasible: hosts are no more than the ranks of one, or a rank needs too many thread blocks.
    """
    shape = _HostPairs(problem)
    if not shape.turns or shape.size == 1:
        raise Infeasible(
            f"hierarchical3: alltoall over {shape.hosts} hosts of {shape.size} is what "
            "hierarchical2 does"
        )
    if shape.blocks > _MOST_BLOCKS:
        raise Infeasible(
            f"hierarchical3: alltoall over {shape.hosts} hosts: a rank needs {shape.blocks} thread "
            f"blocks, and a GPU runs {_MOST_BLOCKS} at once; use fewer hosts"
        )
    return shape.schedule("hierarchical3")


def _has_rails(sketch: Sketch) -> bool:
    """Return whether ranks are joined to all of their host and of their rail."""
    hosts = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    sets = (*hosts, *zip(*hosts, strict=True))
    return all(sketch.link(*pair) for ranks in sets for pair in permutations(ranks, 2))


class _Shape:
    """`hosts` hosts of `size` ranks, `each` chunks for each pair of ranks."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hosts, self.each = problem.sketch.nhosts, problem.chunks_per_rank
        self.size = problem.sketch.ranks // self.hosts
        self.ranks = range(self.size)  # of the first host: the others do the same
        self.parts = -(-self.size // _MOST_AWAITED)

    def schedule(self, method: str) -> Schedule:
        """Return the schedule, in the name of `method`."""
        return Schedule(
            self.problem.collective,
            self.problem.nchunks,
            tuple(self.transfers()),
            (self.scratch,) * self.size,
            method,
            self.each,
            hints=LoweringHints(split_send_recv=True, shared_threadblocks=frozenset(self.shared())),
            period=self.size,
        )

    @property
    def peers(self) -> int:
        """Return the ranks that one talks to."""
        return self.hosts + self.size - 2

    @property
    def scratch(self) -> int:
        """Return the chunks that a rank gathers from its host."""
        return self.gathered_at(self.hosts)

    def gathered_at(self, ahead: int) -> int:
        """Return the place in scratch of what a rank gathers for the host so many ahead."""
        return (ahead - 1) * self.size * self.each

    def transfers(self) -> Iterator[Transfer]:
        """Yield what is gathered for each distance between hosts, what stays, and what crosses."""
        for ahead in (*range(1, self.hosts), 0):
            for rank in self.ranks:
                yield from self.gathered(rank, ahead)
        for ahead in range(1, self.hosts):
            for rank in self.ranks:
                yield from (self.crossing(rank, ahead, part) for part in range(self.parts))

    def gathered(self, rank: int, ahead: int) -> Iterator[Transfer]:
        """Yield what `rank` has for the host so many ahead, each to the rank that takes it there.

        What it has for its own host is in place then.
        """
        for step in range(self.size):
            to = (rank + step) % self.size
            source = Address("i", (ahead * self.size + to) * self.each)
            place = (
                Address("s", self.gathered_at(ahead) + rank * self.each)
                if ahead
                else Address("o", rank * self.each)
            )
            channel = self.inner_channel(step, ahead)
            yield Transfer(rank, to, source, place, self.each, channel=channel)

    def crossing(self, rank: int, ahead: int, part: int = 0) -> Transfer:
        """Return what `rank` sends to the host so many ahead, of some ranks of its host."""
        first, end = (self.size * n // self.parts * self.each for n in (part, part + 1))
        return Transfer(
            rank,
            ahead * self.size + rank,
            Address("s", self.gathered_at(ahead) + first),
            Address("o", first),
            end - first,
            channel=self.rail_channel(ahead, part),
        )

    def rail_channel(self, ahead: int, part: int = 0) -> int:
        first = part * (1 + self.inner_channel(self.size // 2))
        return first + (min(ahead, self.hosts - ahead) - 1) // _PAIRS_PER_CHANNEL

    def inner_channel(self, step: int, ahead: int = 0) -> int:
        if not step:
            return 0
        return (self.hosts // 2 + min(step, self.size - step) - 1) // _PAIRS_PER_CHANNEL

    def shared(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the connections whose thread block also serves the way back.

        Those of rails, then those inside hosts, if separate ones would be too many. The farthest
        hosts' keep theirs: both ways set out at once there, and a rotation would swap them.
        """
        blocks = 2 * self.peers
        if blocks > _FEW_BLOCKS:
            for ahead in range(1, self.hosts):
                if 2 * ahead != self.hosts:
                    for part in range(self.parts):
                        channel = self.rail_channel(ahead, part)
                        for rank in self.ranks:
                            to = self.crossing(rank, ahead).dst
                            yield channel, to, rank, to
            blocks -= self.hosts - 2
        if blocks > _MOST_BLOCKS:
            for one, other in permutations(self.ranks, 2):
                yield self.inner_channel((other - one) % self.size), one, other, one


class _HostPairs(_Shape):
    """The same, but of two hosts one rank each is in charge, as far as that comes out even.

    What is handed on has channels of its own, and so has what is spread; rails share them.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.turns = (self.hosts - 1) // self.size
        self.paired = self.turns * self.size
        self.rails = self.turns + self.hosts - 1 - self.paired
        self.message = self.size**2 * self.each
        # Of a thread block, beside the copy of what a rank has for itself.
        self.most_steps = limits_of("executor", problem.sketch.ranks).steps - 1
        self.first_spread = 1 + self.rails // self.most_steps

    @property
    def blocks(self) -> int:
        """Return the thread blocks that send, as many as receive: shared if that is too many."""
        channels = self.first_spread - (-self.paired // self.most_steps)
        return self.rails + channels * (self.size - 1)

    def gathered_at(self, ahead: int) -> int:
        return 2 * self.turns * self.message + (ahead - 1 - self.paired) * self.size * self.each

    def transfers(self) -> Iterator[Transfer]:
        """Yield what is handed on and gathered, what stays, what crosses, and what is spread."""
        for ahead in range(1, self.paired + 1):
            for rank in self.ranks:
                yield self.handed(rank, ahead)
        for ahead in (*range(self.paired + 1, self.hosts), 0):
            for rank in self.ranks:
                yield from self.gathered(rank, ahead)
        for ahead in range(1, self.hosts):
            for rank in self.senders(ahead):
                yield self.crossing(rank, ahead)
        for ahead in range(1, self.paired + 1):
            for rank in self.senders(ahead):
                yield from self.spread(rank, ahead)

    def senders(self, ahead: int) -> Iterable[int]:
        """Return the ranks that send to the host so many ahead."""
        return (ahead % self.size,) if ahead <= self.paired else self.ranks

    def turn(self, ahead: int) -> int:
        """Return the number of the rail's peer so many hosts ahead; the own host's is the last."""
        if ahead > self.paired:
            return self.turns + ahead - self.paired - 1
        return (ahead - 1) // self.size if ahead else self.rails

    def handed(self, rank: int, ahead: int) -> Transfer:
        """Return what `rank` has for the host so many ahead, to the rank in charge."""
        count = self.size * self.each
        return Transfer(
            rank,
            ahead % self.size,
            Address("i", ahead * count),
            Address("s", self.turn(ahead) * self.message + rank * count),
            count,
            channel=self.inner_channel(1, ahead),
        )

    def crossing(self, rank: int, ahead: int, part: int = 0) -> Transfer:
        if ahead > self.paired:
            return super().crossing(rank, ahead)
        to = rank + ahead * self.size
        source, place = (
            Address("s", (first + self.turn(ahead)) * self.message) for first in (0, self.turns)
        )
        channel = self.rail_channel(ahead)
        return Transfer(rank, to, source, place, self.message, channel=channel)

    def spread(self, rank: int, ahead: int) -> Iterator[Transfer]:
        """Yield what `rank` has from the host so many back, each to the rank that it is for."""
        first = (self.hosts - ahead) * self.size
        message = (self.turns + self.turn(ahead)) * self.message
        for step in range(self.size):
            to = (rank + step) % self.size
            for sender in range(self.size):
                steps = self.turn(ahead) * self.size + sender
                channel = self.first_spread + steps // self.most_steps if step else 0
                source = Address("s", message + (sender * self.size + to) * self.each)
                place = Address("o", (first + sender) * self.each)
                yield Transfer(rank, to, source, place, self.each, channel=channel)

    def inner_channel(self, step: int, ahead: int = 0) -> int:
        return self.turn(ahead) // self.most_steps

    def rail_channel(self, ahead: int, part: int = 0) -> int:
        return self.turn(ahead) // max(2, (_PEERS_PER_CHANNEL - self.size + 1) // 2 * 2)

    def shared(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the blocks that serve two distances of a rank, one each way, if need be.

        One block sends to the first and then receives from the second, another receives from the
        first and then sends to the second: if each sent first, all would wait for each other.
        """
        if 2 * self.blocks <= _RESIDENT_BLOCKS:
            return
        for rank in self.ranks:
            its = [ahead for ahead in range(1, self.hosts) if rank in self.senders(ahead)]
            for one, other in zip(its[::2], its[1::2], strict=False):
                for to, back in ((one, other), (other, one)):
                    source = rank + (self.hosts - back) * self.size
                    yield self.rail_channel(one), source, rank, rank + to * self.size
