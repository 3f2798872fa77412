"""Times of events where whoever has something to send sends it before it waits to receive."""

from __future__ import annotations

from tuccl.synth.lowering.fusion import Fusion
from tuccl.synth.lowering.order import Order, recv_event, send_event
from tuccl.synth.model.schedule import Schedule


def earliest_sends(schedule: Schedule, precedence: Order) -> Fusion:
    """Return no fused step and for every event the earliest time it can have.

    Notes:
        A message is received one unit after it is sent, and all else takes no time: so events of
        one time go by their number. Program order, dependencies and messages have no cycle then,
        but what is sent early lies in the connection until it is received: with a limited number
        of slots the program may be safe up to some size only, which the verifier computes.
    """
    key = [0.0] * (2 * len(schedule.transfers))
    last: dict[tuple[int, int, int], int] = {}  # the message before on a connection
    for number, transfer in enumerate(schedule.transfers):
        send, recv = send_event(number), recv_event(number)
        connection = (transfer.channel, transfer.src, transfer.dst)
        before = last.get(connection, number)
        if not transfer.local:
            last[connection] = number
            key[send] = max(_ready(key, precedence, send), key[send_event(before)])
            key[recv] = max(key[send] + 1, key[recv_event(before)])
        key[recv] = max(key[recv], _ready(key, precedence, recv))
    return Fusion({}, {}, key)


def _ready(key: list[float], precedence: Order, event: int) -> float:
    """Return the time at which all that `event` must come after is done."""
    return max((key[other] for other in precedence.before[event]), default=0.0)
