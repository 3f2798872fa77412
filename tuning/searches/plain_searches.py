"""Searches without a model: random, grid and coordinate descent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import gcd

from tuccl.tuning.searches.coordinate_descent import ALL_DIMENSIONS, coordinate_descent
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point

__all__ = ["CoordinateSearch", "GridSearch", "RandomSearch"]

_GOLDEN = 0.6180339887498949


class RandomSearch(Search):
    """Uniform over the distinct legal points, without repetition."""

    name = "random"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield random new points at full effort."""
        rng = random.Random(self.seed)
        while not self.exhausted:
            yield self.space.at(rng.randrange(self.space.grid_size)), self.full_effort


class GridSearch(Search):
    """Every legal point once, spread so that any prefix covers the whole grid thinly.

    Positions advance by a step near grid/phi with no common divisor with the grid: run to the
    end it is the full grid, cut by the budget it is a thinned one. It uses no seed.
    """

    name = "grid"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the grid at full effort."""
        size = self.space.grid_size
        step = max(round(size * _GOLDEN), 1)
        while gcd(step, size) != 1:
            step += 1
        for i in range(size):
            yield self.space.at(i * step % size), self.full_effort


class CoordinateSearch(Search):
    """Coordinate descent with restarts: first from the best point so far, then from random ones.

    Notes:
        AutoCCL finds that time is unimodal along each ordered dimension.
    """

    name = "coordinate"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the points of one descent after another at full effort."""
        rng = random.Random(self.seed)
        start = self.best or self.space.default
        while not self.exhausted:
            yield start, self.full_effort
            descent = coordinate_descent(self.space, self.measurements, start, ALL_DIMENSIONS)
            yield from ((point, self.full_effort) for point in descent)
            start = self.space.at(rng.randrange(self.space.grid_size))
