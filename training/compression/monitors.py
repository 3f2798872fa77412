"""Monitors of the network between ranks: by a schedule, by probes, or by the calls of a job."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from math import fsum
from typing import Protocol

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import Link, call_terms, exchange_terms

_LEAST_RATE, _MOST_RATE = 1e-6, 1e6  # GB/s, which a fit is kept within


_LOW, _MODERATE, _HIGH = 1e3, 8e3, 50e3  # us
SCHEDULES: dict[str, tuple[tuple[int, Link], ...]] = {
    "C1": (
        (0, Link(_LOW, 25 / 8)),
        (12, Link(_LOW, 1 / 8)),
        (24, Link(_HIGH, 1 / 8)),
        (36, Link(_HIGH, 25 / 8)),
    ),
    "C2": (
        (0, Link(_LOW, 25 / 8)),
        (12, Link(_MODERATE, 10 / 8)),
        (20, Link(_HIGH, 1 / 8)),
        (28, Link(_MODERATE, 10 / 8)),
        (36, Link(_LOW, 25 / 8)),
    ),
}
"""Networks over epochs, as the paper shapes them in its figure 6: C1 and C2.

The paper does not say what its moderate network is: 8 ms and 10 Gb/s, of its repository's ramp, are
taken.
"""


def network_schedule(name: str, steps_per_epoch: int = 1) -> tuple[tuple[int, Link], ...]:
    """Return a schedule of the paper by steps; its ResNet50 has epochs twice as long.

    >>> [step for step, _ in network_schedule("C1", 100)]
    [0, 1200, 2400, 3600]

    Raises:
        InputError: there is no such schedule, or an epoch has no step.
    """
    if name not in SCHEDULES or steps_per_epoch < 1:
        raise InputError(
            f"schedule {name[:40]!r} of epochs of {steps_per_epoch} steps: expected one of "
            f"{', '.join(SCHEDULES)}, and a step or more"
        )
    return tuple((epoch * steps_per_epoch, link) for epoch, link in SCHEDULES[name])


class NetworkMonitor(Protocol):
    """The network between ranks as it is believed to be at a step."""

    def link(self, step: int) -> Link:
        """Return latency and rate at ``step``."""
        ...


class ScheduledMonitor:
    """A network that changes at known steps, as experiments shape it.

    >>> monitor = ScheduledMonitor([(0, Link(1e3, 3.1)), (10, Link(5e4, 0.1))])
    >>> monitor.link(9).gbs, monitor.link(10).gbs
    (3.1, 0.1)
    """

    def __init__(self, schedule: Sequence[tuple[int, Link]]) -> None:
        """Follow ``schedule``: from each step on the link beside it.

        Raises:
            InputError: it does not begin at step 0, or its steps do not rise.
        """
        self._steps = [step for step, _ in schedule]
        self._links = [link for _, link in schedule]
        if self._steps[:1] != [0] or self._steps != sorted(set(self._steps)):
            raise InputError("schedule of the network: expected steps that rise from 0")

    def link(self, step: int) -> Link:
        """Return latency and rate at ``step``."""
        return self._links[bisect_right(self._steps, step) - 1]


class ProbingMonitor:
    """A network that is probed every so many steps, by two sizes of one exchange."""

    def __init__(
        self,
        probe: Callable[[str, int], float],
        ranks: int,
        *,
        values: tuple[int, int] = (256, 262_144),
        every: int = 100,
    ) -> None:
        """Call ``probe``, which returns us, for an all-reduce exchange of two sizes.

        Args:
            probe: of an exchange and the values of a rank.
            ranks: that exchange.
            values: the two sizes.
            every: steps between two probes.
        """
        self._probe, self._ranks, self._values, self._every = probe, ranks, values, every
        self._asked: int | None = None
        self._link = Link(0.0, 1.0)

    def link(self, step: int) -> Link:
        """Return latency and rate as last probed; probes when it is time."""
        if self._asked is None or step >= self._asked + self._every:
            self._asked = step
            samples = [
                (*exchange_terms("allreduce", v, self._ranks), self._probe("allreduce", v))
                for v in self._values
            ]
            self._link = _fitted(samples, self._link)
        return self._link


class CallMonitor:
    """A network as the job's own calls show it: a fit to the last of them, nothing is sent.

    A hook whose state has it as ``monitor`` lets it observe.
    """

    def __init__(self, ranks: int, first: Link, *, window: int = 40) -> None:
        """Believe in ``first`` until calls of two kinds were seen.

        Args:
            ranks: that exchange.
            first: what is believed at first.
            window: calls that are fitted.
        """
        self._ranks, self._link = ranks, first
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=window)

    def observe(self, call: str, nbytes: int, us: float) -> None:
        """Take note of a collective on an array of ``nbytes`` bytes in all that took ``us``."""
        self._samples.append((*call_terms(call, nbytes, self._ranks), us))

    def link(self, step: int) -> Link:
        """Return latency and rate that fit the last calls."""
        self._link = _fitted(self._samples, self._link)
        return self._link


def has_changed(before: Link, now: Link, part: float = 0.1) -> bool:
    """Return whether latency or rate is off by more than ``part`` of what it was.

    >>> has_changed(Link(10.0, 1.0), Link(10.5, 1.0)), has_changed(Link(10.0, 1.0), Link(10.0, 0.5))
    (False, True)
    """
    pairs = ((before.alpha_us, now.alpha_us), (before.gbs, now.gbs))
    return any(abs(new - old) > part * old for old, new in pairs)


def _fitted(samples: Sequence[tuple[float, float, float]], believed: Link) -> Link:
    """Return the link whose times are nearest in parts: of (messages, bytes, us) each.

    Where calls are too much alike, or noise is too large, an estimate stays as it was.
    """
    if not samples:
        return believed
    rows = [(m / us, b / us) for m, b, us in samples if us > 0]
    mm, mb, bb = (fsum(x * y for x, y in pairs) for pairs in _products(rows))
    m, b = fsum(x for x, _ in rows), fsum(y for _, y in rows)
    determinant = mm * bb - mb * mb
    alpha, us_per_byte = believed.alpha_us, 1e-3 / believed.gbs
    if determinant > 1e-4 * mm * bb:
        alpha, us_per_byte = (m * bb - b * mb) / determinant, (b * mm - m * mb) / determinant
        if us_per_byte <= 0:  # what the rate takes is lost in noise
            us_per_byte = 1e-3 / believed.gbs
            alpha = (m - us_per_byte * mb) / mm
        alpha = max(alpha, 0.0)
    if bb > 0 and (rest := (b - alpha * mb) / bb) > 0:
        us_per_byte = rest
    return Link(alpha, min(max(1e-3 / us_per_byte, _LEAST_RATE), _MOST_RATE))


def _products(
    rows: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float]], ...]:
    return [(x, x) for x, _ in rows], list(rows), [(y, y) for _, y in rows]
