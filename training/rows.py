"""Results of runs: one row for each method and backend, and how sure its time is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from tuccl.runtime.executors.paired_timing import MOST_SPREAD
from tuccl.training.methods import GradientMethod
from tuccl.training.model import Model

_MOST_EFFICIENCY = 1.05
Kind = Literal["sim", "replay", "train"]
Backend = Literal["default", "table", "gloo"]


class TrainingRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A method on a machine, a step at a time.

    Attributes:
        kind: ``sim``: all simulated; ``replay``: computing by timers, calls measured; ``train``:
            all measured.
        label: the survey's six words.
        backend: who carries out calls: a table's programs, the machine's default, Gloo.
        speedup: samples/s over those of one rank alone: of its given time where it did not run.
        exposed: part of the step in which data moves and nothing is computed.
        low_us: of the interval of the steps' times, the 10th percentile; equal where simulated.
        high_us: the 90th.
        by_program: calls of a step that a table's program did.
        by_default: and those that it did not.
        c2c: time of one all-reduce of all gradients over the time of a step alone; 0: not known.
    """

    kind: Kind
    model: str
    method: str
    label: tuple[str, ...]
    backend: Backend
    ranks: int
    step_us: float
    low_us: float
    high_us: float
    samples_per_s: float
    speedup: float
    efficiency: float
    exposed: float
    by_program: int
    by_default: int
    c2c: float = 0.0
    steps: int = 1

    @property
    def comparable(self) -> bool:
        """Return whether the steps' times, and the one alone, can be compared with others.

        They cannot where the 90th percentile is over 1.5 times the 10th, nor where the efficiency
        is over 100 %: then the step alone was disturbed.
        """
        steady = self.high_us <= MOST_SPREAD * self.low_us
        return steady and self.efficiency <= _MOST_EFFICIENCY


def row_of(
    kind: Kind,
    model: Model,
    method: GradientMethod,
    backend: Backend,
    ranks: int,
    steps_us: Sequence[float],
    exposed_us: float,
    calls: tuple[int, int],
    *,
    c2c: float = 0.0,
    alone_us: float = 0.0,
) -> TrainingRow:
    """Return the row of steps of ``steps_us``: their median, and 10th and 90th percentile.

    Args:
        kind: of the run.
        model: for one rank.
        method: that was run.
        backend: of the calls.
        ranks: that took part.
        steps_us: time of each step.
        exposed_us: time of a step in which nothing was computed.
        calls: of a step, by a program and by the default.
        c2c: communication over computing.
        alone_us: of a step on one rank; 0 is the model's.
    """
    ordered = sorted(steps_us)
    last = len(ordered) - 1
    step_us = median(ordered)
    speedup = ranks * (alone_us or model.step_us) / step_us
    label = method.label
    return TrainingRow(
        kind=kind,
        model=model.name,
        method=method.name,
        label=(
            *(label.synchronization, label.compression, label.architecture),
            *(label.scheduling, label.transport, label.fabric),
        ),
        backend=backend,
        ranks=ranks,
        step_us=step_us,
        low_us=ordered[round(0.1 * last)],
        high_us=ordered[round(0.9 * last)],
        samples_per_s=ranks * model.batch / step_us * 1e6,
        speedup=speedup,
        efficiency=speedup / ranks,
        exposed=exposed_us / step_us,
        by_program=calls[0],
        by_default=calls[1],
        c2c=c2c,
        steps=len(ordered),
    )
