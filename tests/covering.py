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
        self._tried = self._left.copy()  # what was left before the last choice
        self._refused = np.zeros_like(self._left)

    def __iter__(self) -> Iterator[Choice]:
        while self._left.any():
            chosen = np.array(sorted(self._drawn()))
            self._tried = self._left.copy()
            self._left[np.ix_(chosen, chosen)] = False
            yield dict(self._values[n] for n in chosen)

    def refuse(self, choice: Choice, first: str, second: str) -> None:
        """Note that the last choice could not be tried: two factors' values do not go together.

        Where that was known already, they go with nothing else of the choice either.
        """
        chosen = np.array([self._values.index(item) for item in choice.items()])
        pair = np.array([self._values.index((name, choice[name])) for name in (first, second)])
        self._left = self._tried
        if self._refused[pair[0], pair[1]]:
            self._left[np.ix_(pair, chosen)] = self._left[np.ix_(chosen, pair)] = False
        self._refused[pair, pair[::-1]] = True
        self._left &= ~self._refused
        if self._refused[np.ix_(self._blocks[first], self._blocks[second])].all():
            self._left[:] = False

    def _drawn(self) -> list[int]:
        """Return a choice around a pair that is left, each further value the best at its turn."""
        pairs = np.argwhere(self._left)
        chosen = [int(n) for n in pairs[self._rng.randrange(len(pairs))]]
        taken = {self._values[n][0] for n in chosen}
        for name in self._rng.sample(sorted(self._blocks), len(self._blocks)):
            if name in taken:
                continue
            block, with_all = self._blocks[name], np.array(chosen)
            worth = self._left[np.ix_(block, with_all)].sum(1)
            worth = worth - _REFUSED * self._refused[np.ix_(block, with_all)].sum(1)
            best = block[worth == worth.max()]
            chosen.append(int(best[self._rng.randrange(len(best))]))
        return chosen
