"""A Gymnasium environment: one call a step, joint knobs and program as the action."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tuccl.errors import InputError, Unavailable
from tuccl.runtime.executors.knob_grid import BUFFERS, CHANNELS, PROTOCOLS, THREADS
from tuccl.synth import searched_methods
from tuccl.tuning.rl.action import SKETCH_KINDS, Action
from tuccl.tuning.rl.state import FEATURES, State
from tuccl.tuning.searches.space import Point, Space

try:
    import gymnasium
    import numpy as np
except ImportError:
    raise Unavailable(
        "Gymnasium is not installed; install it with: pip install 'tuccl[rl]'"
    ) from None

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORST = -10.0
"""Reward of what cannot run; no other reward is lower."""
_METHODS = ("msccl-default-robust", "msccl-default", *searched_methods(unordered=True))
_CHUNKINGS = (1, 2, 4, 8, 16)
_CHOICES: tuple[tuple[Any, ...], ...] = (
    _METHODS,
    SKETCH_KINDS,
    _CHUNKINGS,
    PROTOCOLS,
    CHANNELS,
    THREADS,
    BUFFERS,
)


class Call(Protocol):
    """A call whose points can be timed."""

    @property
    def state(self) -> State:
        """The call, before it is made."""

    @property
    def space(self) -> Space:
        """The legal points."""

    @property
    def default_us(self) -> float:
        """Time in us of the runtime's own default."""

    def us(self, point: Point) -> float:
        """Return the time of ``point`` in us; infinite where it cannot run."""


class TuningEnvironment(gymnasium.Env["NDArray[np.float32]", "NDArray[np.int64]"]):
    """One-step episodes: `reset` draws a call, `step` times one point of it.

    Observations are `State.vector`. An action has an index each for method, kind of sketch,
    chunks a rank, protocol, channels, threads and buffer, the same on every machine; indices that
    together name no legal point stand for the nearest. The reward is
    log(default time / time) with the runtime's own default on the same call, at least -10, which
    is also the reward of what cannot run; ``info`` has the point and its time in us.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, calls: Sequence[Call]) -> None:
        """Take the calls that episodes are drawn from.

        Raises:
            InputError: there is none.
        """
        if not calls:
            raise InputError("environment: expected at least one call")
        self._calls = tuple(calls)
        self._call = self._calls[0]
        self.observation_space = gymnasium.spaces.Box(
            low=np.zeros(len(FEATURES), np.float32),
            high=np.array([feature.most for feature in FEATURES], np.float32),
        )
        self.action_space = gymnasium.spaces.MultiDiscrete([len(c) for c in _CHOICES])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw a call, or take the one of number ``options["call"]``, and return its state."""
        super().reset(seed=seed)
        number = (options or {}).get("call")
        if number is None:
            number = int(self.np_random.integers(len(self._calls)))
        self._call = self._calls[number]
        return self._observation(), {}

    def step(
        self, action: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Time the point that ``action`` stands for, which ends the episode."""
        point = self.action(action).point(self._call.space)
        us = self._call.us(point)
        reward = max(math.log(self._call.default_us / us), _WORST) if us < math.inf else _WORST
        return self._observation(), reward, True, False, {"point": point, "us": us}

    @staticmethod
    def action(indices: Sequence[int] | NDArray[np.int64]) -> Action:
        """Return the action that ``indices`` stand for."""
        return Action(*(values[int(i)] for values, i in zip(_CHOICES, indices, strict=True)))

    def _observation(self) -> NDArray[np.float32]:
        return np.array(self._call.state.vector(), np.float32)
