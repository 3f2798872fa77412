"""Contextual bandits: a belief about trained calls, and a linear model of the present one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuccl.runtime.executors.knob_grid import BUFFERS, CHANNELS, PROTOCOLS, THREADS
from tuccl.tuning.rl.state import FEATURES, State
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point, Space

if TYPE_CHECKING:
    import numpy as np

Gains = Sequence[float | None]
"""Gains of one call by action, log(default time / time); None: it cannot run there."""

_LEAST_WEIGHT = 1e-4  # a call that looks unlike may still turn out to be alike
_SIGMA = 0.6  # of log time, between a call and one like it
UNABLE = -2.0
"""Gain of what cannot run."""
EXPLORING = {"conservative": 0.02, "usual": 0.1, "bold": 0.3}
"""Standard deviations of log time by regime (`State.regime`)."""
_PARENTS, _VARIATIONS, _STRANGERS = 5, 24, 24
_RIDGE = 1.0


def distance(a: State, b: State) -> float:
    """Return how unlike two states are, weighing features as `FEATURES` does."""
    pairs = zip(FEATURES, a.vector(), b.vector(), strict=True)
    return math.sqrt(sum((f.weight * (x - y)) ** 2 for f, x, y in pairs))


class Belief:
    """A belief about which trained call the present one is like, and the actions worth a try.

    It begins with the nearness of the states and follows what is observed: a call counts as much
    as it would have foretold the gains, a common factor left aside in part, since a default may
    be better here than there. The next action is the one of the largest expected improvement:
    in each call over what the actions so far reach in it.

    Notes:
        Without observations the actions in their order are a portfolio, the first the best alone
        and each other what adds most to those before (greedy maximum coverage).
    """

    def __init__(self, distances: Sequence[float], gains: Sequence[Gains]) -> None:
        """Take the distance of each trained call and its gains by action."""
        import numpy as np

        self._gains = np.array([[UNABLE if g is None else g for g in row] for row in gains])
        self._prior = np.maximum(np.exp(-0.5 * np.array(distances) ** 2), _LEAST_WEIGHT)
        self._observed: dict[int, float] = {}
        self._tried: list[int] = []

    def observe(self, action: int, gain: float) -> None:
        """Learn the gain of an action here."""
        self._observed[action] = gain

    def next(self) -> tuple[int, float] | None:
        """Return the action to try next and its expected improvement of log time; None: none."""
        import numpy as np

        tried = self._gains[:, self._tried].max(axis=1, initial=0.0)  # the default gains nothing
        improvement = self._weights() @ np.maximum(self._gains - tried[:, None], 0.0)
        improvement[self._tried] = -1.0
        if len(self._tried) == improvement.size:
            return None
        action = int(improvement.argmax())
        self._tried.append(action)
        return action, float(improvement[action])

    def _weights(self) -> np.ndarray:
        """The weight of each trained call."""
        import numpy as np

        logs = np.log(self._prior)
        if self._observed:
            residuals = np.array([*self._observed.values()]) - self._gains[:, list(self._observed)]
            offsets = residuals.mean(axis=1)
            errors = ((residuals - offsets[:, None]) ** 2).sum(axis=1) + offsets**2
            logs -= errors / (2 * _SIGMA**2)
        weights: np.ndarray = np.exp(logs - logs.max())
        weights /= weights.sum()
        return weights


class LinearBandit:
    """Thompson sampling on a linear model of log time over the features of points.

    Candidates are variations of the best points and strangers from anywhere in the grid.
    """

    def __init__(self, space: Space, rng: random.Random, exploring: float) -> None:
        """Begin without samples; ``exploring`` scales how far draws stray from the mean."""
        import numpy as np

        self._space, self._rng = space, rng
        self._exploring = exploring
        self._categories = (
            *space.methods,
            *space.sketches,
            *PROTOCOLS,
            *((p, c) for p in PROTOCOLS for c in CHANNELS),
        )
        size = len(self._categories) + 8
        self._precision = np.eye(size) * _RIDGE
        self._moment = np.zeros(size)
        self._numpy_rng = np.random.default_rng(rng.randrange(1 << 32))

    def learn(self, point: Point, gain: float) -> None:
        """Learn the gain of ``point``, log(default time / time)."""
        features = self._features(point)
        self._precision += features[:, None] * features[None, :]
        self._moment += gain * features

    def propose(self, measurements: Measurements) -> Point:
        """Return the candidate that a draw from the model prefers."""
        import numpy as np

        candidates = [p for p in self._candidates(measurements) if p not in measurements]
        if not candidates:
            return self._space.at(self._rng.randrange(self._space.grid_size))
        mean = np.linalg.solve(self._precision, self._moment)
        root = np.linalg.cholesky(self._precision)
        noise = self._numpy_rng.standard_normal(len(mean))
        draw = mean + self._exploring * np.linalg.solve(root.T, noise)
        features = np.stack([self._features(p) for p in candidates])
        return candidates[int((features @ draw).argmax())]

    def _candidates(self, measurements: Measurements) -> Iterator[Point]:
        rng, space = self._rng, self._space
        parents = measurements.ranked()[:_PARENTS] or [space.default]
        for _ in range(_VARIATIONS):
            varied = self._varied(rng.choice(parents))
            if varied in space:
                yield varied
        for _ in range(_STRANGERS):
            yield space.at(rng.randrange(space.grid_size))

    def _varied(self, point: Point) -> Point:
        rng = self._rng
        match rng.randrange(6):
            case 0:
                return replace(point, choice=rng.choice(self._space.choices))
            case 1:
                same = [p for p in self._space.choices if p.method == point.choice.method]
                return replace(point, choice=rng.choice(same))
            case 2:
                return replace(point, protocol=rng.choice(PROTOCOLS))
            case 3:
                return replace(point, channels=rng.choice(CHANNELS))
            case 4:
                return replace(point, threads=rng.choice(THREADS))
            case _:
                return replace(point, buffer_bytes=rng.choice(BUFFERS))

    def _features(self, point: Point) -> np.ndarray:
        import numpy as np

        names = {
            point.choice.method,
            point.choice.sketch,
            point.protocol,
            (point.protocol, point.channels),
        }
        channels, chunks = (
            math.log2(point.channels) / 4,
            math.log2(point.choice.chunks_per_rank) / 4,
        )
        threads, buffer = point.threads / THREADS[-1], math.log2(point.buffer_bytes) / 24
        numbers = (1.0, channels, channels**2, chunks, threads, threads**2, buffer, buffer**2)
        return np.array([*(float(c in names) for c in self._categories), *numbers])
