"""A comparison as values: a row for each size and default, and what it takes to read them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles

import msgspec

from tuccl.eval.columns import BandwidthRow
from tuccl.runtime import (
    BEST_BASELINES,
    NCCL_VERSION,
    Executor,
    LookupTable,
    StepLoop,
    TimedProgram,
    Timing,
)
from tuccl.runtime.executors.paired_timing import is_comparable
from tuccl.synth import BoundKind, Collective
from tuccl.tuning import beats

# Slower than a baseline by more than this share is a regression.
REGRESSION = 0.01
_FEWEST_SAMPLES = 5
_ROOT_WORDS = {"broadcast": "from", "scatter": "from", "reduce": "to", "gather": "to"}


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, size and baseline; times in us out of place, ``_ip`` in place.

    ``speedup`` is the baseline's time over the tuned one, ``fraction_of_bound`` the least time
    that any algorithm could take over the tuned time. ``chosen`` is what the table picks;
    ``on`` says what both were timed on. ``root`` is -1 for collectives that have none. Where
    times have noise both are medians of ``rounds`` runs in turns, ``spread`` is how far the middle
    half of the tuned ones lies apart, as a part of their median, and a regression is one by more
    than the noise. A row is not ``comparable`` where the 90th percentile of either's times is more
    than 1.5 times the 10th; then it is no regression. ``bound`` names the bound that covers what
    the table picks: over links alone, or with reduction and multicast inside switches.
    ``sms`` are those that what the table picks occupies, 0: not known.
    """

    collective: str
    size: int
    baseline: str
    baseline_us: float
    baseline_chosen: str
    tuned_us: float
    speedup: float
    chosen: str
    fraction_of_bound: float
    on: str
    regression: bool
    baseline_us_ip: float | None = None
    tuned_us_ip: float | None = None
    speedup_ip: float | None = None
    root: int = -1
    rounds: int = 1
    spread: float = 0.0
    comparable: bool = True
    bound: BoundKind = "links"
    sms: int = 0
    baseline_sms: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Every row, and what it takes to read them; times are in us.

    ``label`` says whether times are simulated or measured, and on what; ``tuned`` holds the
    tuned times in nccl-tests' columns; ``bound_us`` the least time per (collective, size) in the
    order of ``tuned``, by the bound that ``bounds`` names; ``notes`` what could not be compared,
    and why; ``nccl_version`` is the NCCL whose choice ``nccl`` and the table's own defaults are,
    where NCCL can run, "" on nccl-tests.
    """

    table: str
    topology: str
    ranks: int
    label: str
    on: str
    baselines: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    tuned: tuple[BandwidthRow, ...]
    bound_us: tuple[float, ...]
    bounds: tuple[BoundKind, ...]
    notes: tuple[str, ...]
    regressions: int
    nccl_version: str = NCCL_VERSION

    @property
    def wrong(self) -> int:
        """Wrong elements of the tuned programs, where they were checked."""
        return sum(row.wrong or 0 for row in self.tuned)

    @property
    def how(self) -> str:
        """Either simulated or measured, the word for the times."""
        return "simulated" if self.on == "sim" else "measured"

    @property
    def calls(self) -> tuple[tuple[str, int], ...]:
        """Each collective with each of its roots (-1 where it has none), in the order compared."""
        return tuple(dict.fromkeys((row.collective, row.root) for row in self.tuned))

    def distinct_baselines(self, call: tuple[str, int] | None = None) -> dict[str, str]:
        """Return the baselines of ``call`` (None: of all calls) that have rows, by what to show.

        Of baselines that take the same time everywhere the first stands for all.
        """
        times: dict[str, list[object]] = {}
        for row in self.rows:
            if call in (None, (row.collective, row.root)):
                key = (row.collective, row.root, row.size, row.baseline_us)
                times.setdefault(row.baseline, []).append(key)
        equal: dict[tuple[object, ...], list[str]] = {}
        for baseline in self.baselines:
            if baseline in times:
                equal.setdefault(tuple(times[baseline]), []).append(baseline)
        return {" = ".join(names): names[0] for names in equal.values()}


def call_name(collective: str, root: int) -> str:
    """Return what to call a collective in a heading.

    >>> call_name("allgather", -1), call_name("broadcast", 3)
    ('allgather', 'broadcast from rank 3')
    """
    return collective if root < 0 else f"{collective} {_ROOT_WORDS[collective]} rank {root}"


def bound_over(loop: StepLoop) -> BoundKind:
    """Return the bound that covers what a kernel runs: NCCL's own choice may reduce in switches.

    >>> bound_over(StepLoop(multicast=True)), bound_over(StepLoop())
    ('switches', 'links')
    """
    of_nccl = (loop.runtime_choice and not loop.library) and (
        loop.nccl is None or loop.nccl.algorithm not in ("Ring", "Tree", "PAT")
    )
    return "switches" if loop.multicast or of_nccl else "links"


def provenance(table: LookupTable, executor: Executor) -> tuple[str, ...]:
    """Return notes if the table was tuned on something else than ``executor``."""
    here = executor.context
    if table.context and here and (why := table.context.difference(here)):
        return (f"a job here would refuse the table: {why}; all times here are new",)
    if table.tuned_on in ("", executor.label):
        return ()
    return (f"tuned elsewhere ({table.tuned_on}); all times here are new",)


def comparison_row(
    call: Collective,
    nbytes: int,
    kind: str,
    default: TimedProgram,
    tuned: Timing,
    chosen: str,
    bound_us: float,
    bound: BoundKind,
    sms: int = 0,
) -> ComparisonRow:
    """Return the row of one size against one default; ``bound_us`` is the lower bound ``bound``.

    Raises:
        ValueError: one of them has no out-of-place time.
    """
    base_us, tuned_us = default.timing.time_us, tuned.time_us
    base_ip, tuned_ip = default.timing.time_us_ip, tuned.time_us_ip
    if base_us is None or tuned_us is None:
        raise ValueError("a row needs both out-of-place times")
    speedup_ip = base_ip / tuned_ip if base_ip is not None and tuned_ip is not None else None
    samples = (default.timing.samples_us, tuned.samples_us)
    comparable = all(map(is_comparable, samples))
    slower = _is_slower(default.timing.samples_us, tuned.samples_us, base_us / tuned_us)
    if speedup_ip is not None:
        slower |= _is_slower(default.timing.samples_us_ip, tuned.samples_us_ip, speedup_ip)
    return ComparisonRow(
        collective=call.name,
        size=nbytes,
        baseline=kind,
        baseline_us=base_us,
        baseline_chosen=default.name,
        tuned_us=tuned_us,
        speedup=base_us / tuned_us,
        chosen=chosen,
        fraction_of_bound=bound_us / tuned_us,
        on=tuned.on,
        regression=slower and comparable and kind not in BEST_BASELINES,
        baseline_us_ip=base_ip,
        tuned_us_ip=tuned_ip,
        speedup_ip=speedup_ip,
        root=call.root if call.rooted else -1,
        rounds=len(tuned.samples_us),
        spread=_spread(tuned.samples_us),
        comparable=comparable,
        bound=bound,
        sms=sms,
        baseline_sms=default.sms,
    )


def _is_slower(base_us: Sequence[float], tuned_us: Sequence[float], speedup: float) -> bool:
    """Return whether the tuned time is longer by more than the tolerance and the noise."""
    noisy = len(base_us) > 1 and len(tuned_us) > 1
    return speedup < 1.0 - REGRESSION and (not noisy or beats(base_us, tuned_us))


def _spread(samples_us: Sequence[float]) -> float:
    """Return the distance between the quartiles, as a part of the median."""
    if len(samples_us) < _FEWEST_SAMPLES:
        return 0.0
    low, middle, high = quantiles(samples_us, n=4)
    return (high - low) / middle
