"""MRACO's brackets: how many points get how much effort (TuCCL, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bracket", "Rung", "brackets", "highest_bracket"]


@dataclass(frozen=True)
class Rung:
    """``points`` survivors, each measured until ``effort`` repeats of it are pooled."""

    points: int
    effort: int


@dataclass(frozen=True)
class Bracket:
    """One round of successive halving; ``rungs`` in the order they are climbed."""

    s: int
    rungs: tuple[Rung, ...]

    @property
    def cost(self) -> int:
        """Repeats spent when every rung only adds what the rung below has not measured."""
        total, below = 0, 0
        for rung in self.rungs:
            total += rung.points * (rung.effort - below)
            below = rung.effort
        return total


def highest_bracket(most_effort: int, eta: int) -> int:
    """Return s_max = floor(log_eta R_max), in integers.

    >>> highest_bracket(243, 3), highest_bracket(242, 3), highest_bracket(1, 3)
    (5, 4, 0)

    Raises:
        ValueError: the effort is below 1 or the ratio below 2.

    Notes:
        In floating point log(243)/log(3) falls just short of 5, and a bracket is lost.
    """
    if most_effort < 1 or eta < 2:
        raise ValueError(f"effort {most_effort}, ratio {eta}: expected at least 1 and 2")
    s, power = 0, eta
    while power <= most_effort:
        s, power = s + 1, power * eta
    return s


def brackets(most_effort: int, eta: int = 3, *, literal: bool = False) -> tuple[Bracket, ...]:
    """Return one round of brackets, least effort per point first.

    >>> [b.cost for b in brackets(27, 3)]
    [27, 21, 18, 27]
    >>> [(r.points, r.effort) for r in brackets(27, 3)[0].rungs]
    [(13, 1), (4, 3), (1, 9)]

    Notes:
        Algorithm 1 as printed (``literal``) starts bracket s with n_s = ceil(eta^(s_max - s))
        points at R_s = floor(R_max eta^-s): most points meet most effort, and the rungs cost
        far more than the (s_max + 1) R_max that the paper guarantees. The reading kept here
        pairs many points with little effort, as Hyperband does, and gives bracket s as many
        points as R_max pays for, repeats pooled, but no more than eta^s: each bracket costs at
        most R_max, a round at most (s_max + 1) R_max. A bracket ends where no point is left;
        bracket 0 is one point at full effort, the elite's (line 10).
    """
    s_max = highest_bracket(most_effort, eta)
    if literal:
        return tuple(_literal(s, s_max, most_effort, eta) for s in range(s_max + 1))
    return tuple(_affordable(s, most_effort, eta) for s in range(s_max, -1, -1))


def _literal(s: int, s_max: int, most_effort: int, eta: int) -> Bracket:
    points, first = eta ** (s_max - s), most_effort // eta**s
    return Bracket(s, tuple(Rung(-(-points // eta**i), first * eta**i) for i in range(s + 1)))


def _affordable(s: int, most_effort: int, eta: int) -> Bracket:
    bracket = _halving(s, 1, most_effort, eta)
    for points in range(2, eta**s + 1):
        larger = _halving(s, points, most_effort, eta)
        if larger.cost > most_effort:
            break
        bracket = larger
    return bracket


def _halving(s: int, points: int, most_effort: int, eta: int) -> Bracket:
    first = most_effort // eta**s
    rungs = (Rung(points // eta**i, first * eta**i) for i in range(s + 1))
    return Bracket(s, tuple(rung for rung in rungs if rung.points))
