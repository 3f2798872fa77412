"""Fitting a machine class to measured times."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from tuccl.emulation.sim_executor import eager_costs
from tuccl.errors import InputError
from tuccl.eval.free_constants import (
    FreeConstants,
    free_constants,
    rounded,
    scaled,
    unfitted,
    value_of,
)
from tuccl.program import Knobs, Program
from tuccl.runtime import MSCCL_LOOP, StepLoop
from tuccl.simulation import MachineClass, Network, SimResult, simulate
from tuccl.topology import MachineFile, machine_class

__all__ = [
    "SMALL_BYTES",
    "Case",
    "Fit",
    "RunErrors",
    "Trial",
    "cross_validate",
    "errors_of",
    "fit",
    "predict",
    "unfitted",
]

SMALL_BYTES = 64 << 10
"""Below it times are mostly the host's, and errors are reported apart."""

_NOISE = 0.04  # of a time, by repeated public runs of one machine
_TIE = 0.3  # of the ratio of two times that are held to be equal
_MOST_STEPS = 25
_THREADS = 2


@dataclass(frozen=True)
class Case:
    """A measured call: what ran, on how many bytes, and how long it took in us.

    ``eager``: between ranks on CPUs, by messages that cost what the class has for LL.
    """

    program: Program
    knobs: Knobs
    nbytes: int
    us: float
    loop: StepLoop = MSCCL_LOOP
    chosen: str = ""
    eager: bool = False


@dataclass(frozen=True)
class Trial:
    """Measured calls of one table, on one network: what a fit is held to.

    ``multicast`` is the network of the cases that NVLS runs; ``refused`` are the sizes that no
    program models, each of which counts as wholly wrong; ``ties`` are pairs of cases that take
    about as long as each other, though nobody says how long. ``emulated``: by ranks on this
    machine's cores, of whose costs little is known before.
    """

    name: str
    network: Network
    cases: tuple[Case, ...]
    multicast: Network | None = None
    launch: str = "process"
    process_gpus: int = 1
    refused: tuple[int, ...] = ()
    ties: tuple[tuple[Case, Case], ...] = ()
    emulated: bool = False


class RunErrors(msgspec.Struct, frozen=True):
    """Mean absolute errors of a table, as parts of the measured times; None without sizes.

    Attributes:
        name: The table.
        small: Below 64 KiB.
        large: From 64 KiB on.
        worst: The largest error, at `worst_bytes`, with its sign: below zero is too fast.
    """

    name: str
    small: float | None
    large: float | None
    worst: float
    worst_bytes: int


@dataclass(frozen=True)
class Fit:
    """A machine class fitted to tables, and how well it holds."""

    machine: MachineFile
    errors: tuple[RunErrors, ...]


def predict(trial: Trial, machine: MachineClass) -> list[float]:
    """Return the simulated time in us of each case of ``trial``."""
    return [_run(trial, case, machine).time_us for case in trial.cases]


def _run(trial: Trial, case: Case, machine: MachineClass) -> SimResult:
    return simulate(
        case.program,
        case.knobs,
        trial.multicast if case.loop.multicast and trial.multicast else trial.network,
        _costs_of(case, machine),
        -(-case.nbytes // case.program.nchunks) * case.program.nchunks,
        launch=trial.launch,
        process_gpus=trial.process_gpus,
        pass_bytes=case.loop.pass_bytes,
        transfer_slots=case.loop.transfer_slots,
    )


def _costs_of(case: Case, machine: MachineClass) -> MachineClass:
    if case.eager:
        return eager_costs(machine)
    return machine.replace(host_channel_us=0.0) if case.loop.launch_plan else machine


def errors_of(trial: Trial, machine: MachineClass) -> RunErrors:
    """Return how far ``machine``'s times of the table are from the measured ones."""
    times = zip(predict(trial, machine), trial.cases, strict=True)
    return _errors(trial.name, [(us / c.us - 1, c.nbytes) for us, c in times], trial.refused)


def _errors(name: str, parts: Sequence[tuple[float, int]], refused: Sequence[int]) -> RunErrors:
    sized = [*parts, *((-1.0, nbytes) for nbytes in refused)]
    worst, at = max(sized, key=lambda pair: abs(pair[0]))
    return RunErrors(
        name,
        _mean(abs(p) for p, nbytes in sized if nbytes < SMALL_BYTES),
        _mean(abs(p) for p, nbytes in sized if nbytes >= SMALL_BYTES),
        worst,
        at,
    )


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values else None


def fit(
    trials: Sequence[Trial],
    machine: MachineFile,
    *,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Return ``machine`` with the constants that explain ``trials`` best.

    A constant keeps its value and source where no table shows anything about it. Each is pulled
    to the value it had by how much that is trusted, so that one table cannot bend what it barely
    sees; all tables of a class share all constants.

    Raises:
        InputError: there is nothing to fit to, or scipy is not installed.

    Notes:
        Maximum a posteriori, with errors of times and constants both taken as relative:
        ``scipy.optimize.least_squares`` (trust region) over logarithms, soft L1 loss on times.
    """
    if not any(trial.cases for trial in trials):
        raise InputError("calibrate: no measured sizes to fit to")
    least_squares = _least_squares()
    emulated = all(trial.emulated for trial in trials)
    free = [
        group
        for group in free_constants(emulated)
        if all(value_of(machine, path) > 0 for path in group.paths)
    ]
    sensitive = _sensitive(trials, machine, free)
    free = [group for group, matters in zip(free, sensitive, strict=True) if matters]
    calls = 0

    def residuals(logs: Sequence[float]) -> list[float]:
        nonlocal calls
        calls += 1
        if progress is not None and calls % (len(free) + 1) == 1:
            progress(f"fit: step {calls // (len(free) + 1) + 1} of at most {_MOST_STEPS}")
        return _residuals(trials, machine, free, [float(x) - 1 for x in logs])

    tops = [min(math.log(20.0), _headroom(machine, group)) for group in free]
    answer = least_squares(
        residuals,
        # Logarithms plus 1: scipy's steps for derivatives are relative.
        [1.0] * len(free),
        bounds=([1 - math.log(20.0)] * len(free), [1 + max(top, 1e-6) for top in tops]),
        diff_step=0.02,
        max_nfev=_MOST_STEPS,
        xtol=1e-4,
        ftol=1e-4,
    )
    names = ", ".join(trial.name for trial in trials)
    fitted = rounded(scaled(machine, free, [float(x) - 1 for x in answer.x], f"fit of {names}"))
    native = machine_class(fitted)
    return Fit(fitted, tuple(errors_of(trial, native) for trial in trials if trial.cases))


def cross_validate(
    trials: Sequence[Trial],
    machine: MachineFile,
    *,
    progress: Callable[[str], None] | None = None,
) -> tuple[RunErrors, ...]:
    """Return each table's errors when the class was fitted without it.

    Of a single table every second size is left out, then the others: its errors are those of
    sizes that the fit did not see.

    Raises:
        InputError: as `fit`.
    """
    measured = [trial for trial in trials if trial.cases]
    tied = [trial for trial in trials if not trial.cases]
    if len(measured) == 1:
        return (_left_out_sizes(measured[0], tied, machine, progress),)
    out = []
    for n, trial in enumerate(measured):
        others = [*measured[:n], *measured[n + 1 :], *tied]
        fitted = fit(others, machine, progress=progress).machine
        out.append(errors_of(trial, machine_class(fitted)))
    return tuple(out)


def _left_out_sizes(
    trial: Trial,
    tied: Sequence[Trial],
    machine: MachineFile,
    progress: Callable[[str], None] | None,
) -> RunErrors:
    parts = []
    for half in (0, 1):
        fitted_half = dataclasses.replace(trial, cases=trial.cases[half::2])
        hidden = dataclasses.replace(trial, cases=trial.cases[1 - half :: 2])
        fitted = fit([fitted_half, *tied], machine, progress=progress).machine
        times = zip(predict(hidden, machine_class(fitted)), hidden.cases, strict=True)
        parts += [(us / case.us - 1, case.nbytes) for us, case in times]
    return _errors(trial.name, parts, trial.refused)


def _least_squares() -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError(
            "calibrate needs scipy, which is not installed: pip install scipy"
        ) from None
    solver: Callable[..., Any] = least_squares
    return solver


def _headroom(machine: MachineFile, group: FreeConstants) -> float:
    """Logarithm of the largest factor that keeps the constants in their domain."""
    return math.log(group.most / max(value_of(machine, path) for path in group.paths))


def _sensitive(
    trials: Sequence[Trial], machine: MachineFile, free: Sequence[FreeConstants]
) -> list[bool]:
    """For each free constant, whether any case's time depends on it."""
    base = _times(trials, machine_class(machine))
    out = []
    for n, group in enumerate(free):
        step = -0.1 if _headroom(machine, group) < 0.1 else 0.1
        logs = [step if k == n else 0.0 for k in range(len(free))]
        moved = _times(trials, machine_class(scaled(machine, free, logs, "")))
        out.append(any(abs(a / b - 1) > 1e-4 for a, b in zip(moved, base, strict=True)))
    return out


def _residuals(
    trials: Sequence[Trial],
    machine: MachineFile,
    free: Sequence[FreeConstants],
    logs: Sequence[float],
) -> list[float]:
    times = _times(trials, machine_class(scaled(machine, free, logs, "")))
    errors = [_soft_l1(deviation) for deviation in _deviations(trials, times)]
    return errors + [x / group.spread for x, group in zip(logs, free, strict=True)]


def _soft_l1(deviation: float) -> float:
    """A residual whose square is the soft L1 loss: an odd time must not bend every constant.

    The constants' own residuals stay quadratic: no table may drag one far from what is known.
    """
    return math.copysign(math.sqrt(2 * (math.sqrt(1 + deviation**2) - 1)), deviation)


def _deviations(trials: Sequence[Trial], times: Sequence[float]) -> list[float]:
    """Errors of times, and of the ties between times, in standard deviations."""
    measured = [case.us for trial in trials for case in trial.cases]
    errors = [math.log(us / truth) / _NOISE for us, truth in zip(times, measured, strict=False)]
    tied = times[len(measured) :]
    return errors + [math.log(a / b) / _TIE for a, b in zip(tied[::2], tied[1::2], strict=True)]


def _times(trials: Sequence[Trial], machine: MachineClass) -> list[float]:
    """Times of all trials' cases, then of both sides of all their ties."""
    with ThreadPoolExecutor(_THREADS) as pool:
        measured = list(pool.map(lambda t: predict(t, machine), trials))
        tied = list(pool.map(lambda t: _tied(t, machine), trials))
    return [us for times in (*measured, *tied) for us in times]


def _tied(trial: Trial, machine: MachineClass) -> list[float]:
    return [_run(trial, case, machine).gpu_us for pair in trial.ties for case in pair]
