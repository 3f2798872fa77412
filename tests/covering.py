"""Few choices that try every pair of values of a set of factors."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Choice = dict[str, Any]
_REFUSED = 1000  # more than any number of pairs that a value may still have to try


class Covering:
    """Gives choices out, one value a factor, until each pair of values was tried or refused.

    >>> covering = Covering({"a": (1, 2), "b": (3, 4), "c": (5, 6)}, random.Random(0))
    >>> sum(1 for _ in covering) < 2 * 2 * 2
    True
    """

    def __init__(
        self,
        factors: Mapping[str, Sequence[Any]],
        rng: random.Random,
        loose: Collection[frozenset[str]] = (),
    ) -> None:
        """Prepare to try each pair but of factors that are ``loose`` to each other."""
        self._values = [(name, value) for name, values in factors.items() for value in values]
        names = [name for name, _ in self._values]
        self._blocks = {name: np.array([n == name for n in names]).nonzero()[0] for name in factors}
        self._rng = rng
        # Of each two values: do they still have to be tried, and do they not go together?
        self._left = np.array(
            [[a != b and frozenset((a, b)) not in loose for b in names] for a in names]
        )
        self._wanted = self._left.copy()
        self._refused = np.zeros_like(self._left)

    def __iter__(self) -> Iterator[Choice]:
        while self._left.any():
            chosen = self._drawn()
            self._left[np.ix_(chosen, chosen)] = False
            yield dict(self._values[n] for n in sorted(chosen))

    def refuse(self, choice: Choice, first: str, second: str) -> None:
        """Note that ``choice`` could not be tried: its values of two factors do not go together.

        Where that was known, the second's value goes with nothing else of the choice either.
        """
        chosen = {name: self._values.index((name, choice[name])) for name in self._blocks}
        one, other = chosen[first], chosen[second]
        others = [n for n in chosen.values() if n != other] if self._refused[one, other] else [one]
        self._refused[other, others] = self._refused[others, other] = True
        all_of = list(chosen.values())
        self._left[np.ix_(all_of, all_of)] = True
        self._left &= self._wanted & ~self._refused

    def _drawn(self) -> list[int]:
        """Return a choice around a pair that is left, each further value the best at its turn."""
        pairs = np.argwhere(self._left)
        chosen = [int(n) for n in pairs[self._rng.randrange(len(pairs))]]
        taken = {self._values[n][0] for n in chosen}
        for name in self._rng.sample(sorted(self._blocks), len(self._blocks)):
            if name in taken:
                continue
            block = self._blocks[name]
            worth = self._left[np.ix_(block, chosen)].sum(1)
            worth = worth - _REFUSED * self._refused[np.ix_(block, chosen)].sum(1)
            best = block[worth == worth.max()]
            chosen.append(int(best[self._rng.randrange(len(best))]))
        return chosen
