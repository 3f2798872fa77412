"""Faults of a plan, while they are looked for."""

from __future__ import annotations

from collections import Counter, defaultdict

from tuccl._native import Finding

__all__ = ["Findings"]

SHOWN = 5


class Findings:
    """Errors in order, at most five of a code."""

    def __init__(self) -> None:
        """Begin with none."""
        self._errors: dict[str, list[Finding]] = defaultdict(list)
        self._more: Counter[str] = Counter()
        self.count = 0

    def add(self, code: str, text: str, gpu: int = -1, tb: int = -1, op: int = -1) -> None:
        """Keep what is wrong at a place; -1 where there is no such place."""
        self.count += 1
        if len(self._errors[code]) == SHOWN:
            self._more[code] += 1
            return
        places = (("gpu", gpu), ("tb", tb), ("step", op))
        where = " ".join(f"{what} {number}" for what, number in places if number >= 0)
        self._errors[code].append(Finding(code, f"{where}: {text}" if where else text, gpu, tb, op))

    def errors(self) -> list[Finding]:
        """Return all, the last one of a code with the number of those left out."""
        out: list[Finding] = []
        for code, errors in self._errors.items():
            if more := self._more[code]:
                last = errors[-1]
                text = f"{last.message} (and {more} more)"
                errors = [*errors[:-1], Finding(code, text, last.gpu, last.tb, last.step)]
            out += errors
        return out
