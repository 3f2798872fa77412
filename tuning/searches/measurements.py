"""Measurements of a search: samples pooled by point, effort and cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from tuccl.tuning.searches.space import Point


class Measurements:
    """Samples in us by point. Repeats of a point are pooled; a point that failed has none.

    The estimate of a point is the median of its samples: robust against stragglers, and its
    logarithm is the median of log time, which is what the searches model.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._samples: dict[Point, list[float]] = {}
        self._effort: dict[Point, int] = {}

    def __contains__(self, point: object) -> bool:
        """Return whether ``point`` was requested before."""
        return point in self._effort

    def __len__(self) -> int:
        """Return the number of distinct points requested."""
        return len(self._effort)

    def add(self, point: Point, samples_us: Sequence[float], effort: int) -> None:
        """Pool ``samples_us`` that cost ``effort`` repeats; no samples: the point cannot run."""
        self._samples.setdefault(point, []).extend(samples_us)
        self._effort[point] = self._effort.get(point, 0) + effort

    def effort(self, point: Point) -> int:
        """Return the repeats spent on ``point``."""
        return self._effort.get(point, 0)

    @property
    def spent(self) -> int:
        """Repeats of all points that ran; what cannot run costs no timing."""
        return sum(len(samples) for samples in self._samples.values())

    def samples(self, point: Point) -> tuple[float, ...]:
        """Return the pooled samples of ``point`` in us."""
        return tuple(self._samples.get(point, ()))

    def us(self, point: Point) -> float:
        """Return the estimated time of ``point`` in us; infinite where it cannot run."""
        samples = self._samples.get(point)
        return median(samples) if samples else math.inf

    def ranked(self, effort: int = 1) -> list[Point]:
        """Return the points that ran with at least ``effort`` repeats, fastest first."""
        points = [p for p, e in self._effort.items() if e >= effort and self._samples[p]]
        return sorted(points, key=self.us)

    def best(self, effort: int = 1, among: Iterable[Point] | None = None) -> Point | None:
        """Return the fastest point with at least ``effort`` repeats, or None."""
        ranked = self.ranked(effort)
        allowed = None if among is None else set(among)
        return next((p for p in ranked if allowed is None or p in allowed), None)
