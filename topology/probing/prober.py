"""Contract of what runs probes between endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

Pair = tuple[int, int]


class PairTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of one pair of endpoints that nothing else loads, both ways.

    Attributes:
        round_trips_us: of small messages.
        forth: (bytes, us) of messages from the first endpoint to the second.
        back: the same in the other direction.
        method: how they were taken, in a few words.
    """

    round_trips_us: tuple[float, ...]
    forth: tuple[tuple[int, float], ...]
    back: tuple[tuple[int, float], ...]
    method: str


class Load(Protocol):
    """Flows that run at the same time, as long as their context is open."""

    def rates(self) -> tuple[float, ...]:
        """Return what each flow's receiver gets in GB/s, in the order of the flows."""
        ...

    def keep(self, flows: Sequence[Pair]) -> None:
        """End all flows but these."""
        ...

    def round_trips(self, pairs: Sequence[Pair]) -> tuple[float, ...]:
        """Return the shortest round trip of small messages between each pair meanwhile, in us."""
        ...


class Prober(Protocol):
    """Runs probes between endpoints, which are numbered from 0.

    Raises:
        TucclError: from any method, if an endpoint cannot be reached or does not answer.
    """

    def pair(self, src: int, dst: int) -> PairTimes:
        """Return timed messages between two endpoints, alone, after a warm-up."""
        ...

    def load(self, flows: Sequence[Pair]) -> AbstractContextManager[Load]:
        """Return the load of ``flows``, from first to second endpoint over all NICs of both."""
        ...
