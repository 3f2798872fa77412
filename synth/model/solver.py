"""Running CP-SAT: our own clock, an interrupt that keeps the incumbent, progress lines."""

from __future__ import annotations

import faulthandler
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuccl.errors import InputError

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

NO_OR_TOOLS = "OR-Tools is not installed, expected it: pip install 'ortools==9.15.*'"
# CP-SAT's deterministic time runs at 0.06 to 0.5 of the clock on these models (two workers): where
# it ends a stage, it does so on slower machines too, and the answer is the same.
_DETERMINISTIC_PER_SECOND = 0.4
_POLL_S = 0.05
# How long CP-SAT may take to heed its own limit before it is ended.
_GRACE_S = 0.5
# Less than that is not worth a process.
_LEAST_S = 0.02
_ROUNDING = 1e-6  # of a bound that is a whole number of ns


def cp_sat() -> Any:  # noqa: ANN401 - a module
    """Return OR-Tools' CP-SAT module.

    Raises:
        InputError: it is not installed; says how to get it.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise InputError(NO_OR_TOOLS) from None
    return cp_model


@dataclass
class Budget:
    """Limits of a solve, and the listener to its progress.

    Attributes:
        seconds: Wall clock in all.
        seed: Of the solver's random choices.
        workers: Threads.
        report: Is called with a line for each better solution.
        effort: CP-SAT's deterministic time for a run; None: in proportion to the seconds.
        interrupted: Whether the user interrupted: the best solution so far is then the answer.
        clocked: Whether the clock ended part of the search, so that another run may differ.
    """

    seconds: float = 20.0
    seed: int = 0
    workers: int = 2
    report: Callable[[str], None] = lambda line: None
    effort: float | None = None
    interrupted: bool = False
    clocked: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return 0.0 if self.interrupted else self.seconds - (time.monotonic() - self.started)


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    Attributes:
        values: The variables of the best solution by their index; empty where there is none.
        bound: No solution of the model is better.
        proved: Whether the search is over: the solution is the best, or there is none.
    """

    values: Sequence[int]
    bound: int
    proved: bool = False

    def value(self, variable: cp_model.IntVar) -> int:
        """Return the value of a variable in the best solution."""
        return self.values[variable.index]


def _in_us(values: Sequence[int], bound: int) -> str:
    """Return in words how far a run is whose variable 0 is a makespan in ns."""
    solution = f"{values[0] / 1e3:.2f} us, " if values else ""
    return f"{solution}bound of this stage {bound / 1e3:.2f} us"


def run_model(
    model: cp_model.CpModel,
    budget: Budget,
    share: float,
    what: str,
    words: Callable[[Sequence[int], int], str] = _in_us,
) -> Outcome:
    """Return the best solution of `model` found in `share` of the seconds left.

    `words` makes a line for the user of a solution's values and the bound. The solver runs in a
    forked process that sends each better solution: neither an interrupt nor an end of time, nor a
    fault of its own (version 9.15 may abort where it is stopped while it loads a model), can take
    away the best solution so far.
    """
    seconds = max(0.0, budget.left) * share
    began = time.monotonic()
    if seconds < _LEAST_S:
        return Outcome((), 0)
    run = _Run(model, budget, seconds, lambda values, bound: f"{what}: {words(values, bound)}")
    while run.going:
        try:
            run.advance()
        except KeyboardInterrupt:
            budget.interrupted = True
    if not run.proved and time.monotonic() - began >= 0.98 * seconds:
        budget.clocked = True
    return Outcome(run.values, run.bound, run.proved)


class _Run:
    """A forked process that solves, and what it has sent so far."""

    def __init__(
        self,
        model: cp_model.CpModel,
        budget: Budget,
        seconds: float,
        words: Callable[[Sequence[int], int], str],
    ) -> None:
        self.model, self.budget, self.seconds, self.words = model, budget, seconds, words
        self.ends = time.monotonic() + seconds + _GRACE_S
        self.values: Sequence[int] = ()
        self.bound = 0
        self.proved = False
        self.going = True
        self.process: Any = None
        self.receiver: Any = None

    def advance(self) -> None:
        """Start the process, take in what it sends, or end it when it is time."""
        if self.process is None:
            self._start()
        try:
            if self.receiver.poll(_POLL_S):
                self._take(*self.receiver.recv())
        except (EOFError, OSError):
            self.going = False
        if self.budget.interrupted or time.monotonic() > self.ends:
            self.going = False
        if not self.going:
            self.process.kill()
            self.process.join()
            self.receiver.close()

    def _start(self) -> None:
        """Fork with interrupts held back, so that they reach this process and find it whole."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            fork = multiprocessing.get_context("fork")
            self.receiver, sender = fork.Pipe(duplex=False)
            self.process = fork.Process(target=self._solve, args=(sender,), daemon=True)
            with warnings.catch_warnings():
                # Python warns of forking beside threads; the child runs nothing of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
            sender.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _take(self, values: Sequence[int], bound: float, proved: bool) -> None:
        self.values = values or self.values
        if math.isfinite(bound):
            self.bound = max(self.bound, math.floor(bound + _ROUNDING))
        self.proved = self.proved or proved
        self.budget.report(self.words(values, self.bound))

    def _solve(self, sender: Any) -> None:  # noqa: ANN401 - a connection
        """Solve and send: the child's whole life."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its stack traces are of no use to users,
        faulthandler.disable()  # nor are Python's, which may go elsewhere
        module = cp_sat()
        lock = threading.Lock()

        def send(values: Sequence[int], bound: float, proved: bool) -> None:
            with lock:
                sender.send((values, bound, proved))

        class Listener(module.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                send(list(self.response_proto.solution), self.best_objective_bound, False)

        solver = module.CpSolver()
        solver.parameters.max_time_in_seconds = self.seconds
        solver.parameters.max_deterministic_time = (
            self.budget.effort or self.seconds * _DETERMINISTIC_PER_SECOND
        )
        solver.parameters.num_workers = self.budget.workers
        solver.parameters.interleave_search = True
        solver.parameters.random_seed = self.budget.seed
        solver.best_bound_callback = lambda bound: send((), bound, False)
        end = solver.solve(self.model, Listener())
        solved = end in (module.OPTIMAL, module.FEASIBLE)
        values = list(solver.response_proto.solution) if solved else ()
        bound = solver.best_objective_bound if solved else 0.0
        send(values, bound, end in (module.OPTIMAL, module.INFEASIBLE))
