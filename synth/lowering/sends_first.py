"""Times of halves where whoever has something to send sends it before it waits to receive."""

from __future__ import annotations

from tuccl.synth.lowering.fusion import Plan
from tuccl.synth.lowering.order import Order, recv_half, send_half
from tuccl.synth.model.schedule import Schedule

__all__ = ["sends_first_plan"]


def sends_first_plan(schedule: Schedule, precedence: Order) -> Plan:
    """Return the plan, without fused steps, in which every half has the earliest time it can have.

    Notes:
        A message is received one unit after it is sent, and all else takes no time: so halves of
        one time go by their number. Program order, dependencies and messages have no cycle then,
        but what is sent early lies in the connection until it is received: with a limited number
        of slots the program may be safe up to some size only, which the verifier tells.
    """
    key = [0.0] * (2 * len(schedule.transfers))
    last: dict[tuple[int, int, int], int] = {}  # the message before on a connection
    for number, transfer in enumerate(schedule.transfers):
        send, recv = send_half(number), recv_half(number)
        lane = (transfer.channel, transfer.src, transfer.dst)
        before = last.get(lane, number)
        if not transfer.local:
            last[lane] = number
            key[send] = max(_ready(key, precedence, send), key[send_half(before)])
            key[recv] = max(key[send] + 1, key[recv_half(before)])
        key[recv] = max(key[recv], _ready(key, precedence, recv))
    return Plan({}, {}, key)


def _ready(key: list[float], precedence: Order, half: int) -> float:
    """Return the time at which all that `half` must come after is done."""
    return max((key[other] for other in precedence.before[half]), default=0.0)
