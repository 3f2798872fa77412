"""Small changes to a schedule that may make it faster: another order, way, channel, cut or block.

A move takes a schedule and a source of random choices, and returns another schedule or None where it
found nothing to change. It may return a wrong one: `certificate.fault` and the verifier decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from tuccl.sketches import Sketch
from tuccl.synth.model.certificate import Memory
from tuccl.synth.model.schedule import Address, Schedule, Transfer

__all__ = ["MOVES", "Move"]

Move = Callable[[Schedule, Sketch, Random], Schedule | None]

_FURTHEST = 0.25  # a move in the order goes over no more than so much of it
_MOST_CHANNELS = 8


def reorder(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with some transfers earlier or later among the others."""
    chosen = _alike(schedule, rng)
    reach = max(2, int(len(schedule.transfers) * _FURTHEST))
    shift = rng.choice((-1, 1)) * (rng.randrange(reach) + 1.5)
    keyed = [
        (number + (shift if number in chosen else 0), number)
        for number in range(len(schedule.transfers))
    ]
    return _ordered(schedule, [number for _, number in sorted(keyed)])


def exchange(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with two transfers of one connection in each other's place."""
    lane = _lane(rng.choice(schedule.transfers))
    numbers = [n for n, t in enumerate(schedule.transfers) if _lane(t) == lane]
    if len(numbers) < 2:
        return None
    first, second = rng.sample(numbers, 2)
    order = list(range(len(schedule.transfers)))
    order[first], order[second] = second, first
    return _ordered(schedule, order)


def reroute(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with a copy fetched from another rank that has the same by then."""
    number, transfer = rng.choice(list(enumerate(schedule.transfers)))
    if transfer.local or transfer.reduce:
        return None
    memory = Memory(schedule, in_place=False)
    for earlier in schedule.transfers[:number]:
        memory.run(earlier)
    others = [
        (rank, at)
        for rank, at in memory.holders(transfer.src, transfer.src_at, transfer.count)
        if rank not in (transfer.src, transfer.dst) and sketch.link(rank, transfer.dst)
    ]
    if not others:
        return None
    rank, at = rng.choice(sorted(others))
    return _with(schedule, {number: replace(transfer, src=rank, src_at=at)})


def rehang(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with a summand sent straight to where its sum is sent on to."""
    number, transfer = rng.choice(list(enumerate(schedule.transfers)))
    if transfer.local or not transfer.reduce:
        return None
    place = (transfer.dst, transfer.dst_at, transfer.count)
    for later in range(number + 1, len(schedule.transfers)):
        onward = schedule.transfers[later]
        if (onward.src, onward.src_at, onward.count) == place:
            if onward.local or not onward.reduce or not sketch.link(transfer.src, onward.dst):
                return None
            there = replace(transfer, dst=onward.dst, dst_at=onward.dst_at, operand=onward.operand)
            rest = replace(onward, src_at=transfer.operand or onward.src_at, operand=None)
            return _with(schedule, {number: there, later: rest})
    return None


def rechannel(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with some transfers on another channel, perhaps a new one."""
    channel = rng.randrange(min(schedule.channels + 1, _MOST_CHANNELS))
    chosen = [n for n in _alike(schedule, rng) if not schedule.transfers[n].local]
    changed = {n: replace(schedule.transfers[n], channel=channel) for n in chosen}
    return _with(schedule, changed)


def split(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with some transfers of several chunks cut in two."""
    chosen = {n for n in _alike(schedule, rng) if schedule.transfers[n].count > 1}
    if not chosen:
        return None
    parts = (
        half
        for n, t in enumerate(schedule.transfers)
        for half in (_halves(t) if n in chosen else (t,))
    )
    return replace(schedule, transfers=tuple(parts))


def merge(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with two transfers that lie side by side next to each other in its order.

    Lowering joins such neighbours into one step.
    """
    number, transfer = rng.choice(list(enumerate(schedule.transfers)))
    ends = transfer.src_at.shifted(transfer.count), transfer.dst_at.shifted(transfer.count)
    for other, second in enumerate(schedule.transfers):
        alike = _lane(second) == _lane(transfer) and second.reduce == transfer.reduce
        if alike and (second.src_at, second.dst_at) == ends and other != number + 1:
            order = [n for n in range(len(schedule.transfers)) if n != other]
            order.insert(order.index(number) + 1, other)
            return _ordered(schedule, order)
    return None


def part(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with receives and sends kept apart, or no longer."""
    hints = schedule.hints
    split = replace(
        hints, split_send_recv=not hints.split_send_recv, shared_threadblocks=frozenset()
    )
    return replace(schedule, hints=split)


def take_turns(schedule: Schedule, sketch: Sketch, rng: Random) -> Schedule | None:
    """Return `schedule` with the two ways between some ranks in one thread block, or no longer."""
    if not schedule.hints.split_send_recv:
        return None
    lanes = sorted({_lane(t) for t in schedule.transfers if not t.local})
    channel, src, dst = rng.choice(lanes)
    if (channel, dst, src) not in lanes or (
        channel,
        dst,
        src,
    ) in schedule.hints.shared_threadblocks:
        return None
    shared = schedule.hints.shared_threadblocks ^ {(channel, src, dst)}
    return replace(schedule, hints=replace(schedule.hints, shared_threadblocks=shared))


MOVES: dict[str, Move] = {
    "reorder": reorder,
    "exchange": exchange,
    "reroute": reroute,
    "rehang": rehang,
    "rechannel": rechannel,
    "split": split,
    "merge": merge,
    "part": part,
    "take turns": take_turns,
}


def _lane(transfer: Transfer) -> tuple[int, int, int]:
    return transfer.channel, transfer.src, transfer.dst


def _alike(schedule: Schedule, rng: Random) -> set[int]:
    """Return a transfer's number, or with it those that are alike in one regard.

    On a symmetric machine all ranks are busy alike: only what changes on all of them helps.
    """
    ranks = schedule.collective.ranks
    mark = rng.choice(schedule.transfers)
    regards: tuple[Callable[[Transfer], object], ...] = (
        _lane,
        lambda t: (t.dst - t.src) % ranks,
        lambda t: (t.src, t.reduce),
        lambda t: (t.dst, t.reduce),
        lambda t: (t.src_at.buffer, t.dst_at.buffer, t.reduce, t.local),
        id,
    )
    regard = rng.choice(regards)
    return {n for n, t in enumerate(schedule.transfers) if regard(t) == regard(mark)}


def _halves(transfer: Transfer) -> Iterator[Transfer]:
    first = transfer.count // 2
    yield replace(transfer, count=first)
    yield replace(
        transfer,
        src_at=transfer.src_at.shifted(first),
        dst_at=transfer.dst_at.shifted(first),
        operand=_shifted(transfer.operand, first),
        count=transfer.count - first,
    )


def _shifted(address: Address | None, chunks: int) -> Address | None:
    return None if address is None else address.shifted(chunks)


def _ordered(schedule: Schedule, order: list[int]) -> Schedule:
    return replace(schedule, transfers=tuple(schedule.transfers[n] for n in order))


def _with(schedule: Schedule, changed: dict[int, Transfer]) -> Schedule:
    transfers = tuple(changed.get(n, t) for n, t in enumerate(schedule.transfers))
    return replace(schedule, transfers=transfers)
