"""Collectives: the chunks that every rank starts with and must end with.

Chunks have global numbers. All collectives but alltoall number them by their position in the
whole (bigger) buffer, 0..K-1 with K = ranks x chunks per rank. Alltoall's chunk k that rank `src`
has for `dst` is number (src x ranks + dst) x chunks_per_rank + k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from tuccl.errors import InputError
from tuccl.planners import chunk_counts

CollectiveName = Literal[
    "allgather",
    "reduce-scatter",
    "allreduce",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
]
COLLECTIVES: tuple[CollectiveName, ...] = get_args(CollectiveName)
REDUCING = frozenset({"reduce-scatter", "allreduce", "reduce"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
# Their API counts the elements of one rank's part, not of the whole array.
COUNTED_PER_RANK = frozenset({"allgather", "reduce-scatter", "alltoall", "gather", "scatter"})


@dataclass(frozen=True)
class Collective:
    """A collective over `ranks` ranks; `root` matters where there is one.

    Attributes:
        name: One of `COLLECTIVES`.
        ranks: Ranks that run its programs.
        root: The root's rank.
        groups: An allgather in groups, all at once: ranks of each, and how far they are apart. The
            whole buffer is then a group's, and ranks may pass on what another group sends.

    >>> Collective("allgather", 4).nchunks(2)
    8
    >>> list(Collective("allgather", 8, groups=(2, 4)).members(5))
    [1, 5]

    Raises:
        InputError: the name is unknown, or root, ranks or groups are out of range.
    """

    name: str
    ranks: int
    root: int = 0
    groups: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse what no runtime could run."""
        if self.name not in COLLECTIVES:
            raise InputError(
                f"unknown collective {self.name[:40]!r}, expected one of: {', '.join(COLLECTIVES)}"
            )
        if self.ranks < 2:
            raise InputError(f"{self.name} over {self.ranks} ranks: expected at least 2")
        if not 0 <= self.root < self.ranks:
            raise InputError(f"root {self.root}: expected a rank from 0 to {self.ranks - 1}")
        if self.groups is not None:
            size, stride = self.groups
            if self.name != "allgather" or size < 2 or stride < 1 or self.ranks % (size * stride):
                raise InputError(
                    f"{self.name} in groups of {size} of {self.ranks} ranks, {stride} apart: "
                    "expected an allgather, and groups that divide the ranks"
                )

    def members(self, rank: int) -> range:
        """Return the ranks of the group of ``rank``: all where there are no groups."""
        if self.groups is None:
            return range(self.ranks)
        size, stride = self.groups
        first = rank - rank // stride % size * stride
        return range(first, first + size * stride, stride)

    @property
    def reducing(self) -> bool:
        """Return whether contributions are added up."""
        return self.name in REDUCING

    @property
    def rooted(self) -> bool:
        """Return whether one rank is the root."""
        return self.name in ROOTED

    def nchunks(self, chunks_per_rank: int) -> int:
        """Return K, the chunks of the whole buffer (``nchunksperloop`` in MSCCL)."""
        return len(self.members(0)) * chunks_per_rank

    def input_offset(self, chunk: int, rank: int, chunks_per_rank: int) -> int | None:
        """Return where in `rank`'s input `chunk` starts out (its own part of it), or None."""
        c = chunks_per_rank
        if self.name == "alltoall":
            pair, part = divmod(chunk, c)
            src, dst = divmod(pair, self.ranks)
            return dst * c + part if src == rank else None
        if self.name in ("allgather", "gather"):
            return chunk % c if chunk // c == rank else None
        if self.name in ("broadcast", "scatter"):
            return chunk if rank == self.root else None
        return chunk

    def output_offset(self, chunk: int, rank: int, chunks_per_rank: int) -> int | None:
        """Return where in `rank`'s output `chunk` must end up, or None where it need not."""
        c = chunks_per_rank
        if self.name == "alltoall":
            pair, part = divmod(chunk, c)
            src, dst = divmod(pair, self.ranks)
            return src * c + part if dst == rank else None
        if self.name in ("reduce-scatter", "scatter"):
            return chunk % c if chunk // c == rank else None
        if self.name in ("reduce", "gather"):
            return chunk if rank == self.root else None
        if self.groups is not None:
            owner, members = chunk // c, self.members(rank)
            return members.index(owner) * c + chunk % c if owner in members else None
        return chunk

    def needs(self, chunk: int, rank: int, chunks_per_rank: int) -> bool:
        """Return whether `rank` must end with `chunk`."""
        return self.output_offset(chunk, rank, chunks_per_rank) is not None

    def inputs(self, rank: int, chunks_per_rank: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, chunk number) of every chunk of `rank`'s input."""
        c, ranks = chunks_per_rank, len(self.members(rank))
        size = chunk_counts(self.name, self.nchunks(c), ranks, rank, self.root)[0]
        first = rank * c if self.name in ("allgather", "gather") else 0
        if self.name == "alltoall":
            first = rank * self.ranks * c
        yield from ((offset, first + offset) for offset in range(size))

    def outputs(self, rank: int, chunks_per_rank: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, chunk number) of every chunk of `rank`'s output."""
        c = chunks_per_rank
        size = chunk_counts(self.name, self.nchunks(c), self.ranks, rank, self.root)[1]
        if self.name == "alltoall":
            for offset in range(size):
                src, part = divmod(offset, c)
                yield offset, (src * self.ranks + rank) * c + part
            return
        if self.groups is not None:
            members = self.members(rank)
            yield from ((at, members[at // c] * c + at % c) for at in range(self.nchunks(c)))
            return
        first = rank * c if self.name in ("reduce-scatter", "scatter") else 0
        yield from ((offset, first + offset) for offset in range(size))


def collective_on(ranks: int, collective: str | Collective) -> Collective:
    """Return the collective over ``ranks`` ranks that a name stands for; its root is rank 0.

    >>> collective_on(8, "allgather") == Collective("allgather", 8)
    True

    Raises:
        InputError: the name is unknown, or the collective has another number of ranks.
    """
    if isinstance(collective, str):
        return Collective(collective, ranks)
    if collective.ranks != ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a topology of {ranks}: "
            "the numbers must agree"
        )
    return collective
