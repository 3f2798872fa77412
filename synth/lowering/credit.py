"""Deadlock: thread blocks are run with as little buffering as a connection may have."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

# Transfers that a connection holds before its receiver must take one: 2 under Simple, 8 under LL
# and LL128 (docs/reference/msccl.md). A program that runs with 2 runs with 8.
CREDIT = 2


class MessageStep(NamedTuple):
    """A step as far as messages go: what it receives and sends on, and what it waits for.

    `waits` names (thread block, position) pairs; connections are any hashable keys, None for none.
    """

    recv: object
    send: object
    length: int
    waits: tuple[tuple[int, int], ...]


def stuck_steps(blocks: Sequence[Sequence[MessageStep]]) -> list[tuple[int, int]]:
    """Return the (block, position) of every step that waits for ever; empty if all finish.

    Notes:
        Each step of `length` chunks is cut in as many messages, the finest cut: of any coarser one
        no more are in flight when it runs in the same order, so what finishes here finishes at
        every size. Blocks are deterministic and block only on empty or full connections, a Kahn
        network, so one run in any order decides for all; as it ends with nothing in flight, each
        pass over the next slice finishes as well.
    """
    return _Machine(blocks).run()


class _Machine:
    def __init__(self, blocks: Sequence[Sequence[MessageStep]]) -> None:
        self.blocks = blocks
        self.position = [0] * len(blocks)
        self.passed = [0] * len(blocks)  # messages of the current step already passed
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
        steps = self.blocks[block]
        while self.position[block] < len(steps):
            step = steps[self.position[block]]
            if (missing := self.missing(step)) is not None:
                self.asleep[missing].append(block)
                return
            self.pass_messages(block, step)
            if self.passed[block] == step.length:
                self.position[block] += 1
                self.passed[block] = 0
                self.wake(("done", block))

    def missing(self, step: MessageStep) -> object | None:
        """Return what `step` waits for, as a key to sleep on, or None."""
        for block, at in step.waits:
            if self.position[block] <= at:
                return ("done", block)
        if step.recv is not None and self.in_flight[step.recv] == 0:
            return ("message", step.recv)
        if step.send is not None and self.in_flight[step.send] == CREDIT:
            return ("credit", step.send)
        return None

    def pass_messages(self, block: int, step: MessageStep) -> None:
        """Pass as many messages of `step` as can pass now (at least one can)."""
        most = step.length - self.passed[block]
        if step.recv is not None:
            most = min(most, self.in_flight[step.recv])
        if step.send is not None:
            most = min(most, CREDIT - self.in_flight[step.send])
        self.passed[block] += most
        if step.recv is not None:
            self.in_flight[step.recv] -= most
            self.wake(("credit", step.recv))
        if step.send is not None:
            self.in_flight[step.send] += most
            self.wake(("message", step.send))

    def wake(self, key: object) -> None:
        if key in self.asleep:
            self.ready.extend(self.asleep.pop(key))
