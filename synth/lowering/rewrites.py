"""Schedules rewritten before lowering: runs merged or cut, copies shared out, more channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tuccl.synth.lowering.order import NONE, Order
from tuccl.synth.model.schedule import Address, Schedule, Transfer

MOST_COUNT = 71  # MSCCL_MAX_COUNT is 72, and 72 itself is refused


def merge_runs(schedule: Schedule) -> Schedule:
    """Return `schedule` with neighbours in its order joined where they lie side by side.

    Only transfers that stand next to each other are joined: a method that pipelines chunks emits
    other transfers in between, and keeps its pipeline.
    """
    merged: list[Transfer] = []
    for transfer in schedule.transfers:
        if merged and _continues(merged[-1], transfer):
            merged[-1] = replace(merged[-1], count=merged[-1].count + transfer.count)
        else:
            merged.append(transfer)
    return replace(schedule, transfers=tuple(merged))


def _continues(first: Transfer, second: Transfer) -> bool:
    same = (first.src, first.dst, first.channel, first.reduce) == (
        second.src,
        second.dst,
        second.channel,
        second.reduce,
    )
    return (
        same
        and first.src_at.shifted(first.count) == second.src_at
        and first.dst_at.shifted(first.count) == second.dst_at
        and (first.operand is None) == (second.operand is None)
        and (first.operand is None or first.operand.shifted(first.count) == second.operand)
        # Within a buffer, a local move may read what the one before it wrote.
        and (not first.local or first.src_at.buffer != first.dst_at.buffer)
        and first.count + second.count <= MOST_COUNT
    )


def cut_runs(schedule: Schedule) -> Schedule:
    """Return `schedule` with no transfer of more chunks than a step can count."""
    if all(t.count <= MOST_COUNT for t in schedule.transfers):
        return schedule
    parts = tuple(
        _part(t, start, min(MOST_COUNT, t.count - start))
        for t in schedule.transfers
        for start in range(0, t.count, MOST_COUNT)
    )
    return replace(schedule, transfers=parts)


def _part(transfer: Transfer, start: int, count: int) -> Transfer:
    """Return chunks `start`..`start + count - 1` of `transfer`."""
    if count == transfer.count:
        return transfer
    return replace(
        transfer,
        src_at=transfer.src_at.shifted(start),
        dst_at=transfer.dst_at.shifted(start),
        operand=transfer.operand.shifted(start) if transfer.operand else None,
        count=count,
    )


def in_place_moves(schedule: Schedule) -> Schedule:
    """Return `schedule` without the copies that move nothing when it runs in place."""
    return replace(
        schedule,
        transfers=tuple(t for t in schedule.transfers if not _is_onto_itself(schedule, t)),
    )


def _is_onto_itself(schedule: Schedule, transfer: Transfer) -> bool:
    def memory(at: Address) -> tuple[str, int]:
        name = schedule.collective.memory_in_place
        return name(transfer.dst, at.buffer, at.offset, schedule.chunks_per_rank)

    moves = transfer.src != transfer.dst or transfer.reduce
    return not moves and memory(transfer.src_at) == memory(transfer.dst_at)


def share_copies(schedule: Schedule) -> Schedule:
    """Return `schedule` with no thread block copying more than the busiest connection carries.

    What a rank copies from its input to its output waits for nothing; in one thread block it would
    hold up an out-of-place call whose messages are spread over several.
    """
    busiest = [1] * schedule.collective.ranks
    connections: Counter[tuple[int, int, int]] = Counter()
    for t in schedule.transfers:
        if not t.local:
            connection = (t.channel, t.src, t.dst)
            connections[connection] += t.count
            for rank in (t.src, t.dst):
                busiest[rank] = max(busiest[rank], connections[connection])
    copied: Counter[int] = Counter()
    for t in schedule.transfers:
        copied[t.src] += t.count if _is_output_copy(t) else 0
    parts = {rank: -(-total // busiest[rank]) for rank, total in copied.items()}
    return replace(
        schedule,
        transfers=tuple(
            share
            for t in schedule.transfers
            for share in (_shares(t, parts[t.src]) if _is_output_copy(t) else (t,))
        ),
    )


def _is_output_copy(transfer: Transfer) -> bool:
    buffers = transfer.src_at.buffer, transfer.dst_at.buffer
    return transfer.local and not transfer.reduce and buffers == ("i", "o")


def _shares(transfer: Transfer, parts: int) -> Iterator[Transfer]:
    """Yield `transfer` in `parts` parts; a local transfer's channel names its thread block."""
    edges = [transfer.count * part // parts for part in range(parts + 1)]
    for part, (start, end) in enumerate(pairwise(edges)):
        if end > start:
            yield replace(_part(transfer, start, end - start), channel=part)


def sums_via_scratch(schedule: Schedule) -> Schedule:
    """Return `schedule` with sums that are received first stored in scratch, then added.

    For a runtime without steps that receive and reduce.
    """
    scratch = list(schedule.scratch)
    transfers: list[Transfer] = []
    for t in schedule.transfers:
        if t.local or not t.reduce:
            transfers.append(t)
            continue
        slot = Address("s", scratch[t.dst])
        scratch[t.dst] += t.count
        transfers.append(replace(t, dst_at=slot, reduce=False, operand=None))
        transfers.append(replace(t, src=t.dst, src_at=slot))
    return replace(schedule, transfers=tuple(transfers), scratch=tuple(scratch))


def spread_chains(schedule: Schedule, precedence: Order, parts: int) -> Schedule:
    """Return `schedule` with the routes of chunks dealt out over `parts` times the channels.

    What a rank passes on stays on the channel it came by, so that it can still be fused.
    """
    started: Counter[tuple[int, int, int]] = Counter()
    spread: list[int] = []
    for number, transfer in enumerate(schedule.transfers):
        origin = precedence.source[number]
        if origin != NONE:  # a sum is made in passing, so this holds through local steps too
            spread.append(spread[origin // 2])
        else:
            # Not all that starts on one rank, nor all that starts at one time, takes one channel.
            connection = (transfer.channel, transfer.src, transfer.dst)
            spread.append((transfer.src + started[connection]) % parts)
            started[connection] += 1
    transfers = tuple(
        replace(t, channel=t.channel * parts + (0 if t.local else w))
        for t, w in zip(schedule.transfers, spread, strict=True)
    )
    return replace(schedule, transfers=transfers)


def spread_peers(schedule: Schedule, parts: int) -> Schedule:
    """Return `schedule` with each rank's peers dealt out over `parts` times the channels."""
    ranks = schedule.collective.ranks
    transfers = tuple(
        replace(t, channel=t.channel * parts + (t.dst - t.src) % ranks * parts // ranks)
        for t in schedule.transfers
    )
    return replace(schedule, transfers=transfers)
