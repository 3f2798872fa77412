"""Means that follow a series slowly."""

from __future__ import annotations


class SmoothedMean:
    """The mean of the first ``window`` values, from then on moved a part towards each next.

    Notes:
        An exponentially weighted moving average (EWMA); the paper names window and part alone.
    """

    def __init__(self, window: int, part: float) -> None:
        """Begin without a value."""
        self._window, self._part = window, part
        self.count = 0
        self.value = 0.0

    def add(self, value: float) -> float:
        """Take in the next value and return the mean.

        >>> mean = SmoothedMean(2, 0.5)
        >>> [mean.add(x) for x in (1.0, 3.0, 6.0)]
        [1.0, 2.0, 4.0]
        """
        self.count += 1
        part = 1 / self.count if self.count <= self._window else self._part
        self.value += part * (value - self.value)
        return self.value
