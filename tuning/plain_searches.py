"""Searches without a model: random, grid and coordinate descent."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from math import gcd
from typing import TypeVar

from tuccl.tuning.search import Search
from tuccl.tuning.space import Dimension, Point

__all__ = ["CoordinateSearch", "GridSearch", "RandomSearch"]

_GOLDEN = 0.6180339887498949
_T = TypeVar("_T")
Wishes = Generator[tuple[Point, int], None, _T]


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
    """Coordinate descent with restarts: one dimension at a time, from the best point so far.

    Ordinals are walked outward in steps of 1, 2, 4... while that helps (AutoCCL's finding is
    that time is unimodal along each), categories are tried one by one. Where no dimension
    helps any more it starts again from a random point.
    """

    name = "coordinate"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the points of one descent after another at full effort."""
        rng = random.Random(self.seed)
        start = self.best or self.space.default
        while not self.exhausted:
            yield start, self.full_effort
            yield from self._descent(start)
            start = self.space.at(rng.randrange(self.space.grid_size))

    def _descent(self, point: Point) -> Wishes[None]:
        improved = True
        while improved:
            improved = False
            for dimension in self.space.dimensions:
                walk = self._walk if dimension.ordinal else self._sweep
                before = point
                point = yield from walk(point, dimension)
                improved = improved or point != before

    def _sweep(self, point: Point, dimension: Dimension) -> Wishes[Point]:
        best = point
        for index in range(dimension.size):
            other = self._moved(point, dimension, index)
            yield other, self.full_effort
            best = min(best, other, key=self.measurements.us)
        return best

    def _walk(self, point: Point, dimension: Dimension) -> Wishes[Point]:
        best = point
        for sign in (1, -1):
            stride = 1
            while True:
                index = self.space.indices(best)[dimension.name] + sign * stride
                other = self._moved(best, dimension, min(max(index, 0), dimension.size - 1))
                yield other, self.full_effort
                if self.measurements.us(other) >= self.measurements.us(best):
                    break
                best, stride = other, 2 * stride
        return best

    def _moved(self, point: Point, dimension: Dimension, index: int) -> Point:
        return self.space.point({**self.space.indices(point), dimension.name: index})
