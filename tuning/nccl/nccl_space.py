"""NCCL's own configurations as points of a search space."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from tuccl.runtime.baseline.nccl_best import CHANNELS
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.nccl.knobs import NcclAlgorithm, NcclKnobs
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space

_OWN = 1 << 20  # stands for as many channels as NCCL takes by itself
_SCALE = 64
_PREFIX = "nccl-"


@dataclass(frozen=True)
class _NcclGrid(KnobGrid):
    """Channels alone: NCCL has its own rule for threads and one buffer for a process."""

    threads: tuple[int, ...] = (512,)
    buffers: tuple[int, ...] = (4 << 20,)

    def legal_threads(self, protocol: str, channels: int) -> tuple[int, ...]:
        return self.threads

    def legal_buffers(self, protocol: str) -> tuple[int, ...]:
        return self.buffers


class NcclSpace(Space):
    """NCCL's algorithms and protocols with its own channels and with each of `CHANNELS`.

    Methods of its choices are NCCL's algorithms, like "nccl-Ring"; all have the sketch "nccl". The
    channels of its points are 64ths of the NICs of a host: what a policy learns of them holds on
    other machines. On one host they are 64 times NCCL's.
    """

    def __init__(
        self,
        configurations: Iterable[NcclKnobs],
        nbytes: int,
        default: tuple[str, str],
        nics: int = 1,
        most_channels: int | None = None,
    ) -> None:
        """Take what may be tried for calls of ``nbytes`` bytes.

        Args:
            configurations: Algorithms and protocols, as `nccl_configurations` returns them.
            nbytes: The size of a call.
            default: The algorithm and protocol that searches begin with, if that may be tried.
            nics: NICs of a host, of several hosts.
            most_channels: The communicator's: a tuner cannot give more. None: not known.
        """
        most = most_channels or CHANNELS[-1]
        self._counts = {round(c * _SCALE / nics): c for c in CHANNELS if c <= most} | {_OWN: 0}
        grid = _NcclGrid(channels=tuple(self._counts))
        channels: dict[ScheduleChoice, dict[str, tuple[int, ...]]] = {}
        points: dict[tuple[str, str], Point] = {}
        for knobs in configurations:
            choice = ScheduleChoice("nccl", _PREFIX + knobs.algorithm, 1)
            channels.setdefault(choice, {})[knobs.protocol] = grid.channels
            own = Point(choice, knobs.protocol, _OWN, *grid.threads, *grid.buffers)
            points[knobs.algorithm, knobs.protocol] = own
        first = points.get(default) or next(iter(points.values()))
        super().__init__({**channels}, first, grid=grid, nbytes=nbytes)

    def knobs(self, point: Point) -> NcclKnobs:
        """Return the configuration that ``point`` stands for."""
        return NcclKnobs(
            algorithm=cast("NcclAlgorithm", point.choice.method.removeprefix(_PREFIX)),
            protocol=cast("Literal['LL', 'LL128', 'Simple']", point.protocol),
            channels=self._counts[point.channels],
        )
