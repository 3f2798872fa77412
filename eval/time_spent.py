"""Time of the thread blocks and proxies of a simulated run, by cause."""

from __future__ import annotations

import math

import msgspec

from tuccl.runtime import TracedRun
from tuccl.simulation import TRACE_CAUSES

# What each cause of the simulator's record means to the one who reads it.
CAUSES = {
    "work": "move payload at their own rate",
    "setup": "fixed costs of transfers, slices, flags and messages",
    "link": "move payload slower: a link is full",
    "data": "wait for data that is not sent yet",
    "flight": "wait for what is on its way (latency)",
    "credit": "wait for a FIFO slot at the receiver",
    "dependency": "wait for another thread block",
    "proxy": "wait for their own proxy to free a slot",
    "turn": "wait for the rank's other messages in the proxy",
}


class TimeSpent(msgspec.Struct, frozen=True, kw_only=True):
    """Time in us by cause, summed over all thread blocks or all proxies of a run.

    ``whole_us`` is their number times the time the blocks ran; what is missing to it is the
    time after each one's last step. Causes are those of `CAUSES`.
    """

    of: str
    count: int
    whole_us: float
    us: dict[str, float]


def time_spent(run: TracedRun) -> tuple[TimeSpent, ...]:
    """Return the time in us that thread blocks, and proxies where there are any, spent by cause.

    >>> from tuccl.program import Knobs
    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> [blocks] = time_spent(SimExecutor(host).trace(program, Knobs(), 1 << 30))
    >>> blocks.of, max(blocks.us, key=blocks.us.__getitem__)
    ('thread blocks', 'work')
    """
    trace = run.trace
    gpus, spent = [block.gpu for block in trace.blocks], trace.spent_us
    # Ranks beyond the topology's stand for a switch.
    busy = [i for i, gpu in enumerate(gpus) if gpu < run.topology.ranks and any(spent[i])]
    proxies = [len(gpus) + i for i, c in enumerate(trace.connections) if c.net]
    both = (("thread blocks", busy), ("proxies", proxies))
    return tuple(_sum(run, of, tracks) for of, tracks in both if tracks)


def _sum(run: TracedRun, of: str, tracks: list[int]) -> TimeSpent:
    spent = run.trace.spent_us
    sums = [math.fsum(column) for column in zip(*(spent[i] for i in tracks), strict=True)]
    us = {cause: value for cause, value in zip(TRACE_CAUSES, sums, strict=True) if value > 0}
    return TimeSpent(of=of, count=len(tracks), whole_us=len(tracks) * run.trace.end_us, us=us)


def spent_text(spent: tuple[TimeSpent, ...]) -> str:
    """Return ``spent`` as text: for each kind of track its causes, longest first."""
    lines = []
    for s in spent:
        lines.append(f"# what {s.count} {s.of} spend their time on (simulated)")
        done = s.whole_us - math.fsum(s.us.values())
        causes = [(us, CAUSES[cause]) for cause, us in s.us.items()]
        causes.append((done, "done: nothing left to do"))
        lines += [
            f"{us / s.whole_us:>7.1%}  {text}"
            for us, text in sorted(causes, reverse=True)
            if us > 0.0005 * s.whole_us
        ]
    return "\n".join(lines)
