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

from tuccl._native import Knobs, MachineClass, Network, Program, SimResult, simulate
from tuccl.emulation import eager_costs
from tuccl.errors import InputError
from tuccl.eval.calibration_free import PROTOCOLS, Free, free_constants
from tuccl.runtime import MSCCL_LOOP, StepLoop
from tuccl.topology import Constant, MachineFile, machine_class

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
        eager_costs(machine) if case.eager else machine,
        -(-case.nbytes // case.program.nchunks) * case.program.nchunks,
        launch=trial.launch,
        process_gpus=trial.process_gpus,
        pass_bytes=case.loop.pass_bytes,
        transfer_slots=case.loop.transfer_slots,
    )


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
    kept = list(values)
    return statistics.fmean(kept) if kept else None


def fit(
    trials: Sequence[Trial],
    machine: MachineFile,
    *,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Return ``machine`` with the constants that explain ``trials`` best.

    A constant keeps its value and source where no table tells anything about it. Each is pulled
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
        f for f in free_constants(emulated) if all(_value(machine, path) > 0 for path in f.paths)
    ]
    seen = _seen(trials, machine, free)
    free = [f for f, told in zip(free, seen, strict=True) if told]
    calls = 0

    def residuals(logs: Sequence[float]) -> list[float]:
        nonlocal calls
        calls += 1
        if progress is not None and calls % (len(free) + 1) == 1:
            progress(f"fit: step {calls // (len(free) + 1) + 1} of at most {_MOST_STEPS}")
        return _residuals(trials, machine, free, [float(x) - 1 for x in logs])

    tops = [min(math.log(20.0), _headroom(machine, f)) for f in free]
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
    fitted = _rounded(_scaled(machine, free, [float(x) - 1 for x in answer.x], f"fit of {names}"))
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
        out.append(errors_of(trial, machine_class(_told(others, machine, progress))))
    return tuple(out)


def _told(
    trials: Sequence[Trial], machine: MachineFile, progress: Callable[[str], None] | None
) -> MachineFile:
    return fit(trials, machine, progress=progress).machine


def _left_out_sizes(
    trial: Trial,
    tied: Sequence[Trial],
    machine: MachineFile,
    progress: Callable[[str], None] | None,
) -> RunErrors:
    parts = []
    for half in (0, 1):
        seen = dataclasses.replace(trial, cases=trial.cases[half::2])
        hidden = dataclasses.replace(trial, cases=trial.cases[1 - half :: 2])
        told = machine_class(_told([seen, *tied], machine, progress))
        times = zip(predict(hidden, told), hidden.cases, strict=True)
        parts += [(us / case.us - 1, case.nbytes) for us, case in times]
    return _errors(trial.name, parts, trial.refused)


def _least_squares() -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError(
            "calibrate needs scipy, which is not installed: pip install 'tuccl[fit]'"
        ) from None
    found: Callable[..., Any] = least_squares
    return found


def _headroom(machine: MachineFile, free: Free) -> float:
    """Logarithm of the largest factor that keeps the constants in their domain."""
    return math.log(free.most / max(_value(machine, path) for path in free.paths))


def _seen(trials: Sequence[Trial], machine: MachineFile, free: Sequence[Free]) -> list[bool]:
    """For each free constant, whether any case's time depends on it."""
    base = _times(trials, machine_class(machine))
    out = []
    for n, f in enumerate(free):
        step = -0.1 if _headroom(machine, f) < 0.1 else 0.1
        logs = [step if k == n else 0.0 for k in range(len(free))]
        moved = _times(trials, machine_class(_scaled(machine, free, logs, "")))
        out.append(any(abs(a / b - 1) > 1e-4 for a, b in zip(moved, base, strict=True)))
    return out


def _residuals(
    trials: Sequence[Trial], machine: MachineFile, free: Sequence[Free], logs: Sequence[float]
) -> list[float]:
    times = _times(trials, machine_class(_scaled(machine, free, logs, "")))
    off = [_softened(deviations) for deviations in _off(trials, times)]
    return off + [x / f.spread for x, f in zip(logs, free, strict=True)]


def _softened(deviations: float) -> float:
    """A residual whose square is the soft L1 loss: an odd time must not bend every constant.

    The constants' own residuals stay quadratic: no table may drag one far from what is known.
    """
    return math.copysign(math.sqrt(2 * (math.sqrt(1 + deviations**2) - 1)), deviations)


def _off(trials: Sequence[Trial], times: Sequence[float]) -> list[float]:
    """Errors of times, and of the ties between times, in standard deviations."""
    truths = [case.us for trial in trials for case in trial.cases]
    off = [math.log(us / truth) / _NOISE for us, truth in zip(times, truths, strict=False)]
    tied = times[len(truths) :]
    return off + [math.log(a / b) / _TIE for a, b in zip(tied[::2], tied[1::2], strict=True)]


def _times(trials: Sequence[Trial], machine: MachineClass) -> list[float]:
    """Times of all trials' cases, then of both sides of all their ties."""
    with ThreadPoolExecutor(_THREADS) as pool:
        measured = list(pool.map(lambda t: predict(t, machine), trials))
        tied = list(pool.map(lambda t: _tied(t, machine), trials))
    return [us for times in (*measured, *tied) for us in times]


def _tied(trial: Trial, machine: MachineClass) -> list[float]:
    return [_run(trial, case, machine).gpu_us for pair in trial.ties for case in pair]


_BEFORE = "; before: "


def _fitted(constant: Constant, value: float, source: str) -> Constant:
    """The constant with a fit's value, keeping what it was and why before any fit."""
    before = constant.source.rpartition(_BEFORE)[2]
    prior = constant.value if constant.prior is None else constant.prior
    return Constant(value, f"{source}{_BEFORE}{before}", prior)


def unfitted(machine: MachineFile) -> MachineFile:
    """Return the class with every constant as its sources have it, before any fit."""
    return _mapped(machine, _sourced)


def _sourced(constant: Constant) -> Constant:
    if constant.prior is None:
        return constant
    return Constant(constant.prior, constant.source.rpartition(_BEFORE)[2])


def _rounded(machine: MachineFile) -> MachineFile:
    """The class with its fitted constants to four figures, as a file shows them."""

    def four(constant: Constant) -> Constant:
        if constant.prior is None or constant.value is None:
            return constant
        return msgspec.structs.replace(constant, value=float(f"{constant.value:.4g}"))

    return _mapped(machine, four)


def _mapped(machine: MachineFile, change: Callable[[Constant], Constant]) -> MachineFile:
    holders = [machine.constants, *(getattr(machine.protocols, p) for p in PROTOCOLS)]
    changed = [
        msgspec.structs.replace(
            holder, **{name: change(getattr(holder, name)) for name in holder.__struct_fields__}
        )
        for holder in holders
    ]
    protocols = dict(zip(PROTOCOLS, changed[1:], strict=True))
    return msgspec.structs.replace(
        machine,
        constants=changed[0],
        protocols=msgspec.structs.replace(machine.protocols, **protocols),
    )


def _constant(machine: MachineFile, path: str) -> Constant:
    protocol, _, name = path.rpartition(".")
    holder = getattr(machine.protocols, protocol) if protocol else machine.constants
    found: Constant = getattr(holder, name)
    return found


def _value(machine: MachineFile, path: str) -> float:
    value = _constant(machine, path).value
    return value if value is not None else 0.0


def _scaled(
    machine: MachineFile, free: Sequence[Free], logs: Sequence[float], source: str
) -> MachineFile:
    """The class with each free group's constants multiplied by its factor."""
    changes: dict[str, dict[str, Constant]] = {}
    for f, log in zip(free, logs, strict=True):
        for path in f.paths:
            protocol, _, name = path.rpartition(".")
            value = min(_value(machine, path) * math.exp(log), f.most)
            changes.setdefault(protocol, {})[name] = _fitted(
                _constant(machine, path), value, source
            )
    constants = msgspec.structs.replace(machine.constants, **changes.pop("", {}))
    protocols = msgspec.structs.replace(
        machine.protocols,
        **{
            name: msgspec.structs.replace(getattr(machine.protocols, name), **fields)
            for name, fields in changes.items()
        },
    )
    return msgspec.structs.replace(machine, constants=constants, protocols=protocols)
