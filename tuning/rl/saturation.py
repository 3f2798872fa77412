"""Calls that nothing lossless makes faster, though communication is more than C2C predicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuccl.synth import Collective, bound
from tuccl.topology import Topology
from tuccl.tuning.rl.state import State, TrainingJob, communication_volume

_OF_THE_BOUND = 0.95
_MARGIN = 1.1


@dataclass(frozen=True)
class Saturation:
    """A call whose best is near the bound and still slower than predicted.

    Attributes:
        collective: Its name.
        size: The whole array in bytes.
        best_us: Time of the best, the runtime's default included.
        of_the_bound: Time of the bound over that time, at most 1.
        predicted_us: Time of f(N) times the size at the rate of a GPU's own links.
        c2c: Communication to computation as predicted, f(N) / (M I).
    """

    collective: str
    size: int
    best_us: float
    of_the_bound: float
    predicted_us: float
    c2c: float


def lossless_saturated(
    topology: Topology, times_us: Iterable[tuple[Collective, int, float]], job: TrainingJob
) -> tuple[Saturation, ...]:
    """Return the calls that only sending less can speed up.

    Those whose time in us reaches 95 % of the bound and exceeds the prediction by over 10 %.

    Notes:
        The prediction is Shi et al.'s, C2C = f(N) / (M I), which knows the number of ranks but
        not the network: so its bytes move at the rate of a GPU's own links. Its operations cost
        the same everywhere, so that it ranks jobs rather than foretells a step's time.
    """
    calls = []
    for collective, nbytes, us in times_us:
        state = State.of(topology, collective.name, nbytes, job)
        volume = communication_volume(collective.name, topology.ranks)
        predicted_us = volume * nbytes / (state.gpu_gbs * 1e3)
        reached = bound(topology, collective).time_us(nbytes) / us
        if reached >= _OF_THE_BOUND and us > _MARGIN * predicted_us:
            calls.append(
                Saturation(collective.name, nbytes, us, min(reached, 1.0), predicted_us, state.c2c)
            )
    return tuple(calls)
