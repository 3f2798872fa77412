"""Runs of chunks that move step by step: what they take, and the schedule of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import FanIn, prefers_aside
from tuccl.synth.model.network import Network
from tuccl.synth.model.trace import Trace

__all__ = ["Wave", "bundled", "estimated_us", "joined", "spread_waves", "steps_of", "sum_waves"]

# What a hop costs beside its latency, and a message a NIC (estimates; docs/simulator.md).
_HOP_US = 1.0
_MESSAGE_US = 1.0
# What one thread block, and so one connection, moves of a small message (docs/simulator.md).
_BLOCK_GBS = 4.0


class Wave(NamedTuple):
    """Chunks `first`..`first + length - 1` from `src` to `dst` in a step."""

    step: int
    src: int
    dst: int
    first: int
    length: int


def joined(waves: Iterable[Wave]) -> list[Wave]:
    """Return the waves by step, those of a pair that carry chunks side by side as one.

    >>> joined([Wave(0, 0, 1, 5, 1), Wave(0, 0, 1, 4, 1)])
    [Wave(step=0, src=0, dst=1, first=4, length=2)]
    """
    found: list[Wave] = []
    for wave in sorted(waves):
        last = found[-1] if found else None
        if last and last[:3] == wave[:3] and last.first + last.length == wave.first:
            found[-1] = last._replace(length=last.length + wave.length)
        else:
            found.append(wave)
    return found


def estimated_us(
    waves: Sequence[Wave], wires: Network, sketch: Sketch, chunk_bytes: float
) -> float:
    """Return about how many us the waves take if every step waits for the one before."""
    alphas: dict[int, float] = defaultdict(float)
    busy: dict[int, dict[object, float]] = defaultdict(lambda: defaultdict(float))
    carried = Counter[tuple[int, int, int]]()
    for step, src, dst, _, count in waves:
        carried[step, src, dst] += count * (src != dst)
    for (step, src, dst), count in (+carried).items():
        link = sketch.link(src, dst)
        assert link is not None, "waves go over links"
        alphas[step] = max(alphas[step], link.alpha_us + _HOP_US)
        busy[step][src, dst] += count * chunk_bytes / _BLOCK_GBS / 1e3
        for wire in wires.routes[wires.index[src, dst]]:
            passing = count * chunk_bytes / float(wires.rates[wire]) / 1e3
            busy[step][wire] += passing + _MESSAGE_US * link.inter
    return sum(alpha + max(busy[step].values()) for step, alpha in alphas.items())


def steps_of(waves: Iterable[Wave]) -> int:
    """Return the messages in a row that the waves take."""
    return 1 + max((wave.step for wave in waves), default=-1)


def bundled(trace: Trace, waves: Sequence[Wave], hosts: Sequence[int]) -> None:
    """Have what one rank sends another host's rank in a step lie side by side on both, to go as one.

    What the first has from the start is copied to its place among the others; what the second is
    to keep, if not all, from there.
    """
    bundles: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for step, src, dst, first, length in waves:
        if hosts[src] != hosts[dst]:
            bundles[step, src, dst] += range(first, first + length)
    for (_, src, dst), chunks in sorted(bundles.items()):
        chunks.sort()
        if chunks[-1] - chunks[0] >= len(chunks):
            trace.reserve(chunks, src)
            trace.send_each([chunk for chunk in chunks if trace.holds(chunk, src)], src, src)
        if len({trace.home(chunk, dst) is None for chunk in chunks}) > 1:
            trace.reserve(chunks, dst)


def spread_waves(trace: Trace, waves: Iterable[Wave], channel: int = 0) -> None:
    """Send the waves by step; in a step each rank sends to one after the other."""
    ranks = trace.collective.ranks
    for wave in sorted(joined(waves), key=lambda wave: (wave.step, _turn(wave, ranks))):
        trace.send(wave.first, wave.src, wave.dst, channel, wave.length)


def sum_waves(trace: Trace, waves: Iterable[Wave], nbytes: int) -> None:
    """Run the waves backwards, from `dst` to `src`: what spread from a rank is summed on it."""
    ranks = trace.collective.ranks
    chunk_bytes = nbytes / trace.collective.nchunks(trace.chunks_per_rank)
    meetings: dict[tuple[int, int, int, int], list[Wave]] = defaultdict(list)
    for wave in sorted(joined(waves), key=lambda wave: (-wave.step, _turn(wave, ranks))):
        meetings[-wave.step, wave.src, wave.first, wave.length].append(wave)
    fans = {
        key: FanIn(
            trace,
            key[1],
            key[2],
            key[3],
            aside=prefers_aside(len(met), chunk_bytes * key[3], key[3]),
        )
        for key, met in meetings.items()
    }
    for step in sorted({key[0] for key in meetings}):
        here = [
            (wave, fans[key]) for key, met in meetings.items() if key[0] == step for wave in met
        ]
        for wave, fan in sorted(here, key=lambda entry: _turn(entry[0], ranks)):
            fan.receive(wave.dst)
        for key in sorted(key for key in meetings if key[0] == step):
            fans[key].finish()


def _turn(wave: Wave, ranks: int) -> tuple[int, int, int]:
    """Return the place of a wave in its step: ranks take turns round the circle."""
    return (wave.dst - wave.src) % ranks, wave.src, wave.first
