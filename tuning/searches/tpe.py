"""The sampler inside MRACO: Optuna's multivariate tree-structured Parzen estimator."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING

from tuccl.tuning.searches.space import Point, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

_STARTUP_TRIALS = 10
_SAME_AGAIN = 4


def silence_optuna() -> None:
    """Let Optuna log warnings and errors only: its progress is not ours."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the dimensions of ``space`` as Optuna's distributions.

    Ordinals are integer indices, never categories, so that the estimator sees their order.
    """
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        d.name: IntDistribution(0, d.size - 1) if d.ordinal else CategoricalDistribution(d.values)
        for d in space.dimensions
    }


def optuna_params(space: Space, point: Point) -> dict[str, str | int]:
    """Return the parameters under which Optuna knows ``point``: names of categories, indices."""
    indices = space.indices(point)
    return {
        d.name: indices[d.name] if d.ordinal else d.values[indices[d.name]]
        for d in space.dimensions
    }


def log_us(time_us: float) -> float:
    """Return the natural logarithm of a time in us: what the model is fitted to."""
    return math.log(time_us)


class Proposal:
    """A point that the estimator proposed, until its result is known."""

    def __init__(self, point: Point, trial: Trial) -> None:
        """Tie ``point`` to its trial."""
        self.point = point
        self.trial = trial


class Tpe:
    """Proposes points of a space, learning from log time.

    Points that are being measured count as bad ones meanwhile (constant liar), so a batch
    spreads out. A point that fell out of a bracket stays in the model with its last estimate,
    behind those measured in full.
    """

    def __init__(self, space: Space, seed: int) -> None:
        """Start with an empty history."""
        import optuna

        silence_optuna()
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
        self._space = space
        self._distributions = distributions(space)
        self._study = optuna.create_study(sampler=sampler)

    def propose(self) -> Proposal:
        """Return a new proposal; its point may have been measured before."""
        trial = self._study.ask(self._distributions)
        return Proposal(self._space.point(self._indices(trial)), trial)

    def propose_new(self, *known: Container[Point]) -> Proposal | None:
        """Return a proposal whose point is not ``known``; None: it repeats itself."""
        for _ in range(_SAME_AGAIN):
            proposal = self.propose()
            if not any(proposal.point in each for each in known):
                return proposal
            self.discard(proposal)
        return None

    def adopt(self, point: Point) -> Proposal:
        """Return a proposal of ``point``, which another rule chose."""
        self._study.enqueue_trial(optuna_params(self._space, point))
        return Proposal(point, self._study.ask(self._distributions))

    def _indices(self, trial: Trial) -> dict[str, int]:
        return {
            d.name: trial.params[d.name] if d.ordinal else d.values.index(trial.params[d.name])
            for d in self._space.dimensions
        }

    def learn(self, point: Point, time_us: float) -> None:
        """Add a point that was measured in full without having been proposed."""
        import optuna

        self._study.add_trial(
            optuna.trial.create_trial(
                params=optuna_params(self._space, point),
                distributions=self._distributions,
                value=log_us(time_us),
            )
        )

    def reached(self, proposal: Proposal, time_us: float, effort: int) -> None:
        """Note the estimate of a proposal after ``effort`` repeats."""
        if math.isfinite(time_us):
            proposal.trial.report(log_us(time_us), step=effort)

    def complete(self, proposal: Proposal, time_us: float) -> None:
        """Close a proposal that was measured in full; infinite: it cannot run."""
        if math.isfinite(time_us):
            self._study.tell(proposal.trial, log_us(time_us))
        else:
            self.drop(proposal)

    def drop(self, proposal: Proposal) -> None:
        """Close a proposal that fell out of its bracket."""
        import optuna

        self._study.tell(proposal.trial, state=optuna.trial.TrialState.PRUNED)

    def discard(self, proposal: Proposal) -> None:
        """Close a proposal without learning from it."""
        import optuna

        self._study.tell(proposal.trial, state=optuna.trial.TrialState.FAIL)
