"""Sends of ranges of chunks by step: their estimated time, and their transfers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import FanIn, prefers_scratch
from tuccl.synth.model.network import Network
from tuccl.synth.model.trace import Trace

# Costs of a hop beside its latency, and of a message on a NIC (estimates).
_HOP_US = 1.0
_MESSAGE_US = 1.0
# Rate of one thread block, and so of one connection, for small messages.
_BLOCK_GBS = 4.0


class RangeSend(NamedTuple):
    """Chunks `first`..`first + length - 1` from `src` to `dst` in a step."""

    step: int
    src: int
    dst: int
    first: int
    length: int


def merge_adjacent(sends: Iterable[RangeSend]) -> list[RangeSend]:
    """Return the sends by step, those of a pair that carry chunks side by side as one.

    >>> merge_adjacent([RangeSend(0, 0, 1, 5, 1), RangeSend(0, 0, 1, 4, 1)])
    [RangeSend(step=0, src=0, dst=1, first=4, length=2)]
    """
    merged: list[RangeSend] = []
    for send in sorted(sends):
        last = merged[-1] if merged else None
        if last and last[:3] == send[:3] and last.first + last.length == send.first:
            merged[-1] = last._replace(length=last.length + send.length)
        else:
            merged.append(send)
    return merged


def estimate_us(
    sends: Sequence[RangeSend], network: Network, sketch: Sketch, chunk_bytes: float
) -> float:
    """Return about how many us the sends take if every step waits for the one before."""
    alphas: dict[int, float] = defaultdict(float)
    busy: dict[int, dict[object, float]] = defaultdict(lambda: defaultdict(float))
    rates = [float(rate) for rate in network.rates]
    carried = Counter[tuple[int, int, int]]()
    for step, src, dst, _, count in sends:
        carried[step, src, dst] += count * (src != dst)
    for (step, src, dst), count in (+carried).items():
        link = sketch.link(src, dst)
        assert link is not None, "sends go over links"
        alphas[step] = max(alphas[step], link.alpha_us + _HOP_US)
        busy[step][src, dst] += count * chunk_bytes / _BLOCK_GBS / 1e3
        for resource in network.routes[network.index[src, dst]]:
            transfer_us = count * chunk_bytes / rates[resource] / 1e3
            busy[step][resource] += transfer_us + _MESSAGE_US * link.inter
    return sum(alpha + max(busy[step].values()) for step, alpha in alphas.items())


def step_count(sends: Iterable[RangeSend]) -> int:
    """Return the messages in a row that the sends take."""
    return 1 + max((send.step for send in sends), default=-1)


def pack_messages(trace: Trace, sends: Sequence[RangeSend], hosts: Sequence[int]) -> None:
    """Lay chunks that a rank sends to one of another host in a step side by side, as one message.

    Chunks that the sender has from the start are copied next to the others; the receiver copies
    from there those that it is to keep, if not all.
    """
    messages: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for step, src, dst, first, length in sends:
        if hosts[src] != hosts[dst]:
            messages[step, src, dst] += range(first, first + length)
    for (_, src, dst), chunks in sorted(messages.items()):
        chunks.sort()
        if chunks[-1] - chunks[0] >= len(chunks):
            trace.reserve(chunks, src)
            trace.send_each([chunk for chunk in chunks if trace.holds(chunk, src)], src, src)
        if len({trace.output_address(chunk, dst) is None for chunk in chunks}) > 1:
            trace.reserve(chunks, dst)


def add_sends(trace: Trace, sends: Iterable[RangeSend], channel: int = 0) -> None:
    """Send the sends by step; in a step each rank sends to one after the other."""
    ranks = trace.collective.ranks
    for send in sorted(merge_adjacent(sends), key=lambda send: (send.step, _order(send, ranks))):
        trace.send(send.first, send.src, send.dst, channel, send.length)


def add_reductions(trace: Trace, sends: Iterable[RangeSend], nbytes: int) -> None:
    """Run the sends backwards, from `dst` to `src`: a multicast from a rank is a sum on it."""
    ranks = trace.collective.ranks
    chunk_bytes = nbytes / trace.collective.nchunks(trace.chunks_per_rank)
    ordered = sorted(merge_adjacent(sends), key=lambda send: (-send.step, _order(send, ranks)))
    for _, group in groupby(ordered, key=lambda send: send.step):
        step = list(group)
        senders = Counter((send.src, send.first, send.length) for send in step)
        sums = {
            (rank, first, length): FanIn(
                trace,
                rank,
                first,
                length,
                via_scratch=prefers_scratch(count, chunk_bytes * length, length),
            )
            for (rank, first, length), count in senders.items()
        }
        for send in step:
            sums[send.src, send.first, send.length].receive(send.dst)
        for key in sorted(sums):
            sums[key].finish()


def _order(send: RangeSend, ranks: int) -> tuple[int, int, int]:
    """Return the place of a send in its step: ranks take turns, the next rank first."""
    return (send.dst - send.src) % ranks, send.src, send.first
