"""The order of sends where passes follow each other: modulo scheduling.

The executor walks a program once for each slice of the data, and a thread block begins the next
pass as soon as its own steps are done. So no thread block waits in the long run
if the steps of each fit a window as long as a pass, wherever in time that window lies.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tuccl import planners
from tuccl.synth.model.send import Send


def modulo_order(
    sends: Sequence[Send], blocks: Sequence[Hashable], durations: Sequence[float]
) -> list[int]:
    """Return the numbers of `sends` in an order by which thread blocks wait little for each other.

    Args:
        sends: Each waits for earlier ones.
        blocks: Those with the same one go through one thread block, in turn.
        durations: Part of a pass that each takes.

    Notes:
        List scheduling by the longest chain of sends behind. A thread block whose steps span more
        than a pass, as some come late, begins later in the next round. As in Rau 1994, but with a
        window for each thread block, since it keeps its steps in one order.
    """
    number: dict[Hashable, int] = {}
    sums: dict[tuple[int, int], int] = {}
    return planners.modulo_order(
        [
            (
                number.setdefault(block, len(number)),
                sums.setdefault((send.chunk, send.dst), len(sums)) if send.reduce else -1,
                duration,
                send.after,
            )
            for send, block, duration in zip(sends, blocks, durations, strict=True)
        ]
    )
