"""Fused steps (rcs, rrs, rrcs): receives that are sent on by the step that receives them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from tuccl.synth.lowering.order import NONE, Order, recv_event, send_event
from tuccl.synth.model.schedule import Schedule

Connection = tuple[int, int, int]  # channel, sending rank, receiving rank
_Pair = tuple[Connection, Connection]


@dataclass
class Fusion:
    """Fused steps, and the time of every event.

    Attributes:
        forward: Receiving transfer -> the transfer that its step sends on.
        partner: Incoming connection -> the outgoing connection that shares its thread block.
        key: Time of each event: an event comes after all that it must follow, a message is never
            received before it is sent, and each connection's messages keep one order at both ends.
    """

    forward: dict[int, int]
    partner: dict[Connection, Connection]
    key: list[float]


def fuse_receives(schedule: Schedule, precedence: Order, banned: frozenset[int] | None) -> Fusion:
    """Return which receives to fuse with a later send; none if `banned` is None.

    Notes:
        Event 2t or 2t + 1 of transfer t starts at time 2t: the schedule's own order, under which
        every message is received when it is sent, so nothing can block whatever the credit. A
        fused step must have one time for both its events. It may lie anywhere from the receive's
        time to the send's, after all that the send needs and before all that needs what was
        received; sends then only move earlier and receives later, so the times stay a proof that
        program order, dependencies and messages have no cycle. Buffering is needed though, from
        the send's time to the receive's: `credit` checks that there is enough, and `banned`
        names the receives that it found to wait for ever.
    """
    transfers = schedule.transfers
    key = [float(event // 2 * 2) for event in range(2 * len(transfers))]
    if banned is None:
        return Fusion({}, {}, key)
    candidates = _candidates(schedule, precedence, banned)
    partner = _matching(candidates)
    neighbours = _neighbours(schedule)
    forward: dict[int, int] = {}
    fusable = sorted(
        (
            pair
            for ends, pairs in candidates.items()
            if partner.get(ends[0]) == ends[1]
            for pair in pairs
        ),
        reverse=True,
    )
    sent: set[int] = set()
    for received, forwarded in fusable:
        if received in forward or forwarded in sent:
            continue
        time = _common_time(received, forwarded, key, precedence, neighbours)
        if time is not None:
            key[recv_event(received)] = key[send_event(forwarded)] = time
            forward[received] = forwarded
            sent.add(forwarded)
    used = {_connection(schedule, received) for received in forward}
    return Fusion(forward, {end: partner[end] for end in used}, key)


def _connection(schedule: Schedule, number: int) -> Connection:
    transfer = schedule.transfers[number]
    return transfer.channel, transfer.src, transfer.dst


def _candidates(
    schedule: Schedule, precedence: Order, banned: frozenset[int]
) -> dict[_Pair, list[tuple[int, int]]]:
    """Return the (receive, send) that could be one step, by the connections they use."""
    candidates: dict[_Pair, list[tuple[int, int]]] = defaultdict(list)
    for number, transfer in enumerate(schedule.transfers):
        origin = precedence.source[number]
        if origin == NONE or transfer.local or origin // 2 in banned:
            continue
        received = schedule.transfers[origin // 2]
        if not received.local and received.channel == transfer.channel:
            ends = _connection(schedule, origin // 2), _connection(schedule, number)
            candidates[ends].append((origin // 2, number))
    return candidates


def _matching(candidates: dict[_Pair, list[tuple[int, int]]]) -> dict[Connection, Connection]:
    """Return which connections share a thread block: those with most to fuse first."""
    weight = Counter({ends: len({r for r, _ in pairs}) for ends, pairs in candidates.items()})
    partner: dict[Connection, Connection] = {}
    taken: set[Connection] = set()
    for (incoming, outgoing), _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        if incoming not in partner and outgoing not in taken:
            partner[incoming] = outgoing
            taken.add(outgoing)
    return partner


def _neighbours(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return for each transfer the one before and after it on its connection (or NONE)."""
    connections: dict[Connection, list[int]] = defaultdict(list)
    for number, transfer in enumerate(schedule.transfers):
        if not transfer.local:
            connections[_connection(schedule, number)].append(number)
    neighbours = {}
    for connection in connections.values():
        padded = [NONE, *connection, NONE]
        for k, number in enumerate(connection):
            neighbours[number] = (padded[k], padded[k + 2])
    return neighbours


def _common_time(
    received: int,
    forwarded: int,
    key: list[float],
    precedence: Order,
    neighbours: dict[int, tuple[int, int]],
) -> float | None:
    """Return a time at which both events may run, as late as may be, or None."""
    recv, send = recv_event(received), send_event(forwarded)
    earlier = (precedence.before[recv] | precedence.before[send]) - {recv}
    later = (precedence.after[recv] | precedence.after[send]) - {send}
    low = max((key[event] for event in earlier), default=-1.0)
    high = min((key[event] for event in later), default=float("inf"))
    for number, event in ((received, recv_event), (forwarded, send_event)):
        previous, following = neighbours[number]
        low = max(low, key[event(previous)] if previous != NONE else low)
        high = min(high, key[event(following)] if following != NONE else high)
    low = max(low, key[recv])
    if key[send] < high:
        return key[send] if key[send] > low else None
    middle = (low + high) / 2
    return middle if low < middle < high else None
