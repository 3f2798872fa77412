"""MRACO's brackets: how many points get how much effort (TuCCL, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """``points`` survivors, each measured until ``effort`` repeats of it are pooled."""

    points: int
    effort: int


@dataclass(frozen=True)
class Bracket:
    """One round of successive halving; ``rungs`` in the order they are climbed.

    A timing costs ``fixed`` repeats beside its own: what starts it.
    """

    s: int
    rungs: tuple[Rung, ...]
    fixed: int = 0

    @property
    def cost(self) -> int:
        """Repeats spent when every rung only adds what the rung below has not measured."""
        total, below = 0, 0
        for rung in self.rungs:
            total += rung.points * (self.fixed + rung.effort - below)
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


def brackets(most_effort: int, eta: int = 3, fixed: int = 0) -> tuple[Bracket, ...]:
    """Return one round of brackets, least effort per point first.

    A timing costs ``fixed`` repeats more than it has: fewer repeats than that spare less than half
    of it, so no rung has them.

    >>> [b.cost for b in brackets(27, 3)]
    [39, 33, 36]
    >>> [[(r.points, r.effort) for r in b.rungs] for b in brackets(27, 3, fixed=9)]
    [[(2, 9), (1, 27)]]
    >>> [(r.points, r.effort) for r in brackets(27, 3)[0].rungs]
    [(9, 1), (3, 3), (1, 9), (1, 27)]

    Notes:
        Algorithm 1 as printed starts bracket s with n_s = ceil(eta^(s_max - s))
        points at R_s = floor(R_max eta^-s): most points meet most effort, and the rungs cost
        far more than the (s_max + 1) R_max that the paper guarantees. The reading kept here
        pairs many points with little effort, as Hyperband does. Rung i keeps ceil(n_s eta^-i)
        points (line 9); every bracket begins with two points at least and ends with one at
        R_max (line 10), repeats pooled. That alone costs R_max + R_s a bracket, s_max R_max
        and less than another R_max a round; what is left of (s_max + 1) R_max buys further
        points, up to eta^s, where they are cheapest first. Bracket 0 would be one point at
        R_max without any halving: it stands only where R_max is below eta and there is no other.
    """
    s_max = highest_bracket(max(most_effort // fixed, 1) if fixed else most_effort, eta)
    if s_max == 0:
        return (Bracket(0, (Rung(1, most_effort),), fixed),)
    smallest = [_halving(s, 2, most_effort, eta, fixed) for s in range(s_max, 0, -1)]
    budget_left = (s_max + 1) * (most_effort + fixed) - sum(bracket.cost for bracket in smallest)
    largest: list[Bracket] = []
    for bracket in smallest:
        largest.append(_largest(bracket, bracket.cost + budget_left, most_effort, eta))
        budget_left -= largest[-1].cost - bracket.cost
    return tuple(largest)


def _largest(bracket: Bracket, affordable: int, most_effort: int, eta: int) -> Bracket:
    """``bracket`` with as many points as ``affordable`` repeats pay for, but one at the end."""
    for points in range(bracket.rungs[0].points + 1, eta**bracket.s + 1):
        larger = _halving(bracket.s, points, most_effort, eta, bracket.fixed)
        if larger.cost > affordable:
            break
        bracket = larger
    return bracket


def _halving(s: int, points: int, most_effort: int, eta: int, fixed: int) -> Bracket:
    first = most_effort // eta**s
    efforts = [*(first * eta**i for i in range(s)), most_effort]
    rungs = [Rung(-(-points // eta**i), r) for i, r in enumerate(efforts)]
    if fixed:  # a lone survivor starts once
        rungs = [rung for rung in rungs[:-1] if rung.points > 1] + rungs[-1:]
    return Bracket(s, tuple(rungs), fixed)
