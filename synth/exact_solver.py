"""Running CP-SAT: our own clock, an interrupt that keeps the incumbent, progress lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuccl.errors import InputError

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Budget", "Outcome", "cp_sat", "run_model"]

# CP-SAT's deterministic time runs at 0.06 to 0.5 of the clock on these models (two workers): where
# it ends a stage, it does so on slower machines too, and the answer is the same.
_DETERMINISTIC_PER_SECOND = 0.4
_PATIENCE_S = 0.05


def cp_sat() -> Any:  # noqa: ANN401 - a module
    """Return OR-Tools' CP-SAT module.

    Raises:
        InputError: it is not installed; says how to get it.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise InputError(
            "method taccl: OR-Tools is not installed, expected it: pip install tuccl[solver]"
        ) from None
    return cp_model


@dataclass
class Budget:
    """What a solve may spend, and whom it tells.

    Attributes:
        seconds: Wall clock in all.
        seed: Of the solver's random choices.
        workers: Threads.
        report: Is told, in a line, what is being solved and each better plan.
        interrupted: Whether the user asked to stop: the best found so far is then the answer.
        clocked: Whether the clock ended part of the search, so that another run may differ.
    """

    seconds: float = 20.0
    seed: int = 0
    workers: int = 2
    report: Callable[[str], None] = lambda line: None
    interrupted: bool = False
    clocked: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return 0.0 if self.interrupted else self.seconds - (time.monotonic() - self.started)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        value: Returns the value of a variable in the best solution; None where none was found.
        bound: No solution of the model is better.
        optimal: Whether that solution is proved to be best.
        infeasible: Whether there is provably none.
    """

    value: Callable[[Any], int] | None
    bound: int
    optimal: bool
    infeasible: bool


def run_model(
    model: cp_model.CpModel, budget: Budget, share: float, what: str, unit: float = 1e3
) -> Outcome:
    """Return the best solution of `model` found in `share` of the seconds left.

    The solver runs in a thread of its own, so that an interrupt is seen at once: it ends the
    search and is remembered in `budget`.
    """
    solver = cp_sat().CpSolver()
    seconds = max(0.0, budget.left) * share
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = seconds * _DETERMINISTIC_PER_SECOND
    solver.parameters.num_workers = budget.workers
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = budget.seed
    solver.parameters.catch_sigint_signal = False
    status: list[Any] = []

    def tell(bound: float) -> None:
        budget.report(f"{what}: bound {bound / unit:.2f} us")

    solver.best_bound_callback = tell
    runner = threading.Thread(
        target=lambda: status.append(solver.solve(model, _listener(budget, what, unit))),
        daemon=True,
    )
    began = time.monotonic()
    runner.start()
    _wait(runner, solver, budget, seconds)
    names = cp_sat()
    [end] = status or [names.UNKNOWN]
    found = end in (names.OPTIMAL, names.FEASIBLE)
    if end not in (names.OPTIMAL, names.INFEASIBLE) and time.monotonic() - began >= 0.98 * seconds:
        budget.clocked = True
    return Outcome(
        value=solver.value if found else None,
        bound=int(solver.best_objective_bound) if end != names.UNKNOWN or found else 0,
        optimal=end == names.OPTIMAL,
        infeasible=end == names.INFEASIBLE,
    )


def _wait(
    runner: threading.Thread, solver: cp_model.CpSolver, budget: Budget, seconds: float
) -> None:
    """Wait for the end of the run, and see that the clock and the user are heeded."""
    ends = time.monotonic() + seconds + 0.5
    while runner.is_alive():
        try:
            runner.join(_PATIENCE_S)
        except KeyboardInterrupt:
            budget.interrupted = True
        if budget.interrupted or time.monotonic() > ends:
            solver.stop_search()


def _listener(budget: Budget, what: str, unit: float) -> cp_model.CpSolverSolutionCallback:
    module = cp_sat()

    class Listener(module.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
        def on_solution_callback(self) -> None:
            best, bound = self.objective_value / unit, self.best_objective_bound / unit
            budget.report(f"{what}: {best:.2f} us, bound {bound:.2f} us")

    return Listener()
