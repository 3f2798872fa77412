"""Whether thread blocks can run to their end with as little buffering as a connection may have."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["CREDIT", "Move", "stuck_moves"]

# Transfers that a connection holds before its receiver must take one: 2 under Simple, 8 under LL
# and LL128 (docs/msccl.md). A program that runs with 2 runs with 8.
CREDIT = 2


class Move(NamedTuple):
    """A step as far as messages go: what it receives and sends on, and what it waits for.

    `waits` names (thread block, position) pairs; connections are any hashable keys, None for none.
    """

    recv: object
    send: object
    length: int
    waits: tuple[tuple[int, int], ...]


def stuck_moves(blocks: Sequence[Sequence[Move]]) -> list[tuple[int, int]]:
    """Return the (block, position) of every move that waits for ever; empty if all finish.

    Notes:
        Each move of `length` chunks is cut in as many messages, the finest cut: of any coarser one
        no more are in flight when it runs in the same order, so what finishes here finishes at
        every size. Blocks are deterministic and block only on empty or full connections, a Kahn
        network, so one run in any order decides for all; as it ends with nothing in flight, each
        pass over the next slice finishes as well.
    """
    return _Machine(blocks).run()


class _Machine:
    def __init__(self, blocks: Sequence[Sequence[Move]]) -> None:
        self.blocks = blocks
        self.position = [0] * len(blocks)
        self.pieces = [0] * len(blocks)  # messages of the current move already passed
        self.in_flight: dict[object, int] = defaultdict(int)
        self.asleep: dict[object, list[int]] = defaultdict(list)
        self.ready = deque(range(len(blocks)))

    def run(self) -> list[tuple[int, int]]:
        while self.ready:
            self.advance(self.ready.popleft())
        return [
            (block, at) for block, at in enumerate(self.position) if at < len(self.blocks[block])
        ]

    def advance(self, block: int) -> None:
        """Run `block` as far as it goes."""
        moves = self.blocks[block]
        while self.position[block] < len(moves):
            move = moves[self.position[block]]
            if (missing := self.missing(move)) is not None:
                self.asleep[missing].append(block)
                return
            self.pass_pieces(block, move)
            if self.pieces[block] == move.length:
                self.position[block] += 1
                self.pieces[block] = 0
                self.wake(("done", block))

    def missing(self, move: Move) -> object | None:
        """Return what `move` waits for, as a key to sleep on, or None."""
        for block, at in move.waits:
            if self.position[block] <= at:
                return ("done", block)
        if move.recv is not None and self.in_flight[move.recv] == 0:
            return ("message", move.recv)
        if move.send is not None and self.in_flight[move.send] == CREDIT:
            return ("credit", move.send)
        return None

    def pass_pieces(self, block: int, move: Move) -> None:
        """Pass as many messages of `move` as can pass now (at least one can)."""
        most = move.length - self.pieces[block]
        if move.recv is not None:
            most = min(most, self.in_flight[move.recv])
        if move.send is not None:
            most = min(most, CREDIT - self.in_flight[move.send])
        self.pieces[block] += most
        if move.recv is not None:
            self.in_flight[move.recv] -= most
            self.wake(("credit", move.recv))
        if move.send is not None:
            self.in_flight[move.send] += most
            self.wake(("message", move.send))

    def wake(self, key: object) -> None:
        if key in self.asleep:
            self.ready.extend(self.asleep.pop(key))
