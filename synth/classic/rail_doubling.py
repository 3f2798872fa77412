"""Doubling along each rail, for many hosts: each rank carries a piece of every so many hosts."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.errors import Infeasible
from tuccl.synth.classic.local_routes import equal_hosts, require_links
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Address, LoweringHints, Schedule, Transfer

DOUBLING_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce"})

# The part that a rail carries on average of what the busiest one does, at least: for parts of few
# bytes that cost more to start than to carry, and from so many bytes on.
_EVEN_FEW, _EVEN, _MANY_BYTES = 0.85, 0.99, 1 << 20
# Parts of a message, each on a channel of its own: one thread block fills no fast NIC.
_MOST_PARTS = 4
# Messages of a thread block beside the copy of what a rank has for itself.
_MOST_STEPS = 56


def hierarchical_doubling(
    problem: Problem, options: Options = DEFAULT_OPTIONS, *, split: bool = False
) -> Schedule:
    """Return a schedule whose rails carry pieces of hosts' blocks in a logarithm of messages.

    A block is what the ranks of one host contribute, in k pieces. Local rank p of a host is in
    charge of piece p modulo k of the hosts that are 1 + p // k + n s behind, where s is the number
    of local ranks over k. The first (n = 0) comes from its own host; number n comes from the rank
    in charge s 2^j hosts behind, 2^j the largest power of two in n. Who takes a piece passes it on
    to the ranks of its host too. Sums go the same paths backwards.

    The smallest k with which rails carry nearly the same makes the fewest messages. With `split`
    up to four parts of a message go at once, on channels of their own.

    Notes:
        On a rail that is recursive doubling (Bruck et al. 1997), whose round j has 2^j messages.

    Raises:
        Infeasible: hosts are few or differ in size, or the sketch lacks a link.
    """
    return _Shape(problem, _MOST_PARTS if split else 1).schedule()


class _Shape:
    """`hosts` hosts of `size` ranks, `each` chunks of a rank's part."""

    def __init__(self, problem: Problem, most_parts: int) -> None:
        sketch = problem.sketch
        self.problem, self.each, self.ranks = problem, problem.chunks_per_rank, sketch.ranks
        self.hosts, self.size = sketch.nhosts, sketch.ranks // sketch.nhosts
        if not equal_hosts(sketch):
            raise Infeasible(
                "hierarchical-doubling: hosts differ in size or have a relay rule; use packing"
            )
        if self.hosts < 3 or self.size == 1:
            raise Infeasible(
                f"hierarchical-doubling: {self.hosts} hosts of {self.size}; use recursive"
            )
        self.stride = self._stride()
        self.pieces, self.count = self.size // self.stride, self.stride * self.each
        self.turns = len(self.distances(0))
        self.nparts = max(n for n in range(1, most_parts + 1) if self.count % n == 0)
        self.method = "hierarchical-doubling" + "+split" * (most_parts > 1)
        self.to_output = problem.collective.name == "allreduce"
        self.ways = 1 + (1 + self.to_output) * self.turns // _MOST_STEPS

    def _stride(self) -> int:
        others = self.hosts - 1
        even = _EVEN if self.problem.nbytes >= _MANY_BYTES * self.ranks else _EVEN_FEW
        strides = (s for s in range(self.size, 0, -1) if self.size % s == 0)
        return next(s for s in strides if others >= even * s * -(-others // s))

    def distances(self, place: int) -> range:
        """Return how far behind the hosts are whose pieces a place is in charge of, by turn."""
        return range(1 + place // self.pieces, self.hosts, self.stride)

    def schedule(self) -> Schedule:
        """Return the schedule."""
        name = self.problem.collective.name
        sums = self.sums() if name != "allgather" else ()
        copies = self.copies() if name != "reduce-scatter" else ()
        scratch = (self.turns + 1) * self.count if name == "reduce-scatter" else 0
        schedule = Schedule(
            self.problem.collective,
            self.problem.nchunks,
            (*sums, *copies),
            (scratch,) * self.size,
            self.method,
            self.each,
            hints=LoweringHints(split_send_recv=True),
            period=self.size,
        )
        require_links(self.problem.sketch, sorted(schedule.sent), "hierarchical-doubling")
        return schedule

    def copies(self) -> Iterator[Transfer]:
        """Yield the moves that spread each rank's part, which an allreduce has in the output."""
        for rank in range(self.size):
            own = Address("o", rank * self.each)
            at = own if self.to_output else Address("i", 0)
            for to in self.others(rank) if self.to_output else (rank, *self.others(rank)):
                yield Transfer(rank, to, at, own, self.each)
        for turn in range(self.turns + 1):
            for rank, home in self.in_charge(turn):
                at = Address("o", self.piece(home, rank))
                yield from self.moves(self.source(rank, home, turn), rank, at, at)
            for rank, home in self.in_charge(turn - 1):
                at = Address("o", self.piece(home, rank))
                for other in self.others(rank):
                    yield from self.moves(rank, other, at, at, turn=turn)

    def sums(self) -> Iterator[Transfer]:
        """Yield the moves that sum each rank's part on it."""
        turns = range(self.turns - 1, -1, -1)
        for turn in turns:
            for rank, home in self.in_charge(turn):
                taken = operand = Address("i", self.piece(home, rank))
                at = self.partial(home, rank, turn)
                for other in self.others(rank):
                    yield from self.moves(other, rank, taken, at, operand, turn)
                    operand = at
        for turn in turns:
            for rank, home in self.in_charge(turn):
                at = self.partial(home, rank, turn - _back(turn))
                operand = at if turn else Address("i", self.piece(home, rank))
                taken, to = self.partial(home, rank, turn), self.source(rank, home, turn)
                yield from self.moves(rank, to, taken, at, operand)
        for rank in range(self.size):
            at = Address("o", rank * self.each if self.to_output else 0)
            operand = self.at_home(rank, rank)
            for other in self.others(rank):
                add = None if operand == at else operand
                yield Transfer(other, rank, self.at_home(other, rank), at, self.each, True, add)
                operand = at

    def in_charge(self, turn: int) -> Iterator[tuple[int, int]]:
        """Yield each rank of the first host with the host whose piece it takes in a turn."""
        for place in range(self.size):
            for distance in self.distances(place)[turn : turn + 1]:
                yield place, self.hosts - distance

    def source(self, rank: int, home: int, turn: int) -> int:
        """Return the rank that `rank` has a piece from: at the piece's own host in turn 0."""
        if turn == 0:
            return home * self.size + rank % self.size
        return (rank - _back(turn) * self.stride * self.size) % self.ranks

    def others(self, rank: int) -> Iterator[int]:
        """Yield the other ranks of a rank's host, the next ones first."""
        first = rank - rank % self.size
        for ahead in range(1, self.size):
            yield first + (rank - first + ahead) % self.size

    def piece(self, home: int, rank: int) -> int:
        """Return the first chunk of the piece of a host's block that a rank is in charge of."""
        return (home * self.size + rank % self.pieces * self.stride) * self.each

    def partial(self, home: int, rank: int, turn: int) -> Address:
        """Return where a rank sums the piece that it takes in a turn; -1: of its own host."""
        if self.to_output:
            return Address("o", self.piece(home, rank))
        return Address("s", (turn + 1) * self.count)

    def at_home(self, rank: int, owner: int) -> Address:
        """Return where a rank has its sum of the part of a rank of its host."""
        home = rank // self.size
        into = owner * self.each - self.piece(home, rank)
        if self.distances(rank % self.size) and 0 <= into < self.count:
            return self.partial(home, rank, -1).shifted(into)
        return Address("i", owner * self.each)

    def moves(
        self,
        src: int,
        dst: int,
        taken: Address,
        at: Address,
        operand: Address | None = None,
        turn: int = 0,
    ) -> Iterator[Transfer]:
        """Yield the moves of a piece, to be added to what `dst` has at `operand` if there is one.

        Turns share the channels of messages inside a host: a thread block has few steps.
        """
        count = self.count // self.nparts
        for part in range(self.nparts):
            first = part * count
            add = None if operand is None or operand == at else operand.shifted(first)
            places = taken.shifted(first), at.shifted(first)
            channel = part * self.ways + turn % self.ways
            yield Transfer(src, dst, *places, count, operand is not None, add, channel)


def _back(turn: int) -> int:
    """Return by how many turns who has a piece before took it sooner.

    >>> [_back(turn) for turn in range(8)]
    [1, 1, 2, 2, 4, 4, 4, 4]
    """
    return 1 << max(turn.bit_length() - 1, 0)
