"""Linear programs, solved by OR-Tools' GLOP."""

from __future__ import annotations

from collections.abc import Mapping

from tuccl.errors import InputError
from tuccl.synth.model.solver import NO_OR_TOOLS


class LinearProgram:
    """Non-negative variables, by number, and rows that hold sums of them to a most."""

    def __init__(self) -> None:
        """Begin without variables.

        Raises:
            InputError: OR-Tools is not installed.
        """
        try:
            from ortools.linear_solver import pywraplp
        except ImportError:
            raise InputError(NO_OR_TOOLS) from None
        self._solver = pywraplp.Solver.CreateSolver("GLOP")

    def variable(self) -> int:
        """Return the number of a new variable."""
        return int(self._solver.NumVar(0.0, self._solver.infinity(), "").index())

    def at_most(self, most: float, terms: Mapping[int, float]) -> int:
        """Add a row: the sum of factors times variables is at most ``most``; return its number."""
        row = self._solver.Constraint(-self._solver.infinity(), most)
        for number, factor in terms.items():
            row.SetCoefficient(self._solver.variable(number), factor)
        return int(row.index())

    def minimum(self, variable: int) -> tuple[float, list[float]]:
        """Return the least value of a variable, and of each row what 1 more of its most gains.

        Raises:
            InputError: no values keep all rows.
        """
        self._solver.Minimize(self._solver.variable(variable))
        if self._solver.Solve() != self._solver.OPTIMAL:
            raise InputError("a linear program has no solution, expected one")
        gains = [-row.dual_value() for row in self._solver.constraints()]
        return self._solver.Objective().Value(), gains
