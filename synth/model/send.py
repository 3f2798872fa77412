"""Sends, and the order in which they can start: list scheduling over shared resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuccl import planners
from tuccl.synth.model.network import Network


class Send(NamedTuple):
    """Consecutive chunks that one rank sends to another.

    Attributes:
        chunk: First chunk.
        src: Sending rank.
        dst: Receiving rank.
        nchunks: Number of chunks.
        reduce: Whether the receiver adds them to what it has.
        after: Numbers of the sends, all earlier, that bring what it carries.
    """

    chunk: int
    src: int
    dst: int
    nchunks: int = 1
    reduce: bool = False
    after: tuple[int, ...] = ()

    @property
    def flow(self) -> tuple[bool, int, int]:
        """Return whether it reduces, and its ends: what a thread block at either end serves."""
        return self.reduce, self.src, self.dst


def list_schedule(network: Network, sends: Sequence[Send], chunk_bytes: float) -> list[int]:
    """Return the numbers of `sends` in the order in which they can start.

    A chunk keeps each resource of its route busy while its bytes pass, and arrives whole: ranks
    forward nothing sooner. Where several sends wait, the route that has sent least goes first, and
    of a route's sends the one with the longest chain of sends behind it.

    Notes:
        Graham's list scheduling by critical path (1969); the queue is native.

    >>> from fractions import Fraction
    >>> line = Network((0, 0), ((0, 1),), ((0,),), (1.0,), (Fraction(10),))
    >>> list_schedule(line, [Send(0, 0, 1), Send(1, 0, 1)], 1e6)
    [0, 1]
    """
    return planners.start_order(
        network.native,
        [(network.index[send.src, send.dst], send.after) for send in sends],
        chunk_bytes,
    )
