"""Convergence of a search: Eq. 5 of TuCCL."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tuccl.tuning.searches.space import Point, Space

_BINS = 4


class Convergence:
    """Watches what is sampled and how good the best is, window by window.

    Notes:
        Eq. 5 stops when the best gained less than 1 % over the last window and the sampling
        distributions of the last two windows differ by a Kullback-Leibler divergence under
        0.1. The distribution is the empirical one of the points sampled in a window, each
        dimension by itself in at most four bins, the divergence averaged over dimensions.
    """

    def __init__(
        self, space: Space, window: int = 20, least_gain: float = 0.01, most_kl: float = 0.1
    ) -> None:
        """Watch a search of ``space`` in windows of ``window`` sampled points."""
        self._space = space
        self._window = window
        self._least_gain = least_gain
        self._most_kl = most_kl
        self._points: list[Point] = []
        self._best_us: list[float] = []

    def add(self, point: Point, best_us: float) -> None:
        """Note that ``point`` was sampled, after which the best takes ``best_us``."""
        self._points.append(point)
        self._best_us.append(best_us)

    @property
    def converged(self) -> bool:
        """True if both of Eq. 5's conditions hold over the last two windows."""
        if len(self._points) < 2 * self._window:
            return False
        before, now = self._best_us[-self._window - 1], self._best_us[-1]
        if not math.isfinite(before) or (before - now) / before >= self._least_gain:
            return False
        last, previous = self._points[-self._window :], self._points[-2 * self._window :]
        return divergence(self._space, last, previous[: self._window]) < self._most_kl


def divergence(space: Space, p: Sequence[Point], q: Sequence[Point]) -> float:
    """Return the mean over dimensions of D_KL(p || q) in nats, counts smoothed by one."""
    ps, qs = [space.indices(x) for x in p], [space.indices(x) for x in q]
    total, used = 0.0, 0
    for dimension in space.dimensions:
        if dimension.size > 1:
            bins = min(_BINS, dimension.size) if dimension.ordinal else dimension.size
            binned_p = Counter(i[dimension.name] * bins // dimension.size for i in ps)
            binned_q = Counter(i[dimension.name] * bins // dimension.size for i in qs)
            total += _kl(binned_p, binned_q, bins)
            used += 1
    return total / used if used else 0.0


def _kl(p: Counter[int], q: Counter[int], bins: int) -> float:
    n_p, n_q = p.total() + bins, q.total() + bins
    return sum(
        (p[b] + 1) / n_p * math.log((p[b] + 1) / n_p / ((q[b] + 1) / n_q)) for b in range(bins)
    )
