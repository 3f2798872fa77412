import pytest

from baseline_searches import literal_brackets
from tuccl.tuning.searches.brackets import Bracket, brackets, highest_bracket

ROUNDS = [(r, eta) for eta in (2, 3, 4, 10) for r in (1, 2, 3, 16, 20, 27, 64, 81, 243, 1000)]


@pytest.mark.parametrize("eta", [2, 3, 7, 10])
@pytest.mark.parametrize("s", range(7))
def test_the_highest_bracket_is_exact_at_and_around_powers(eta: int, s: int) -> None:
    assert highest_bracket(eta**s, eta) == s
    assert highest_bracket(eta ** (s + 1) - 1, eta) == s


def test_the_case_where_floating_point_loses_a_bracket() -> None:
    assert highest_bracket(243, 3) == 5
    assert highest_bracket(1000, 10) == 3
    assert [b.s for b in brackets(243, 3)] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(("most", "eta"), ROUNDS)
def test_the_papers_guarantees_hold(most: int, eta: int) -> None:
    s_max = highest_bracket(most, eta)
    found = brackets(most, eta)
    assert [b.s for b in found] == (list(range(s_max, 0, -1)) or [0])
    assert sum(b.cost for b in found) <= (s_max + 1) * most  # efficiency
    for bracket in found:
        first = bracket.rungs[0]
        assert 1 <= first.points <= eta**bracket.s
        assert first.effort * eta**bracket.s <= most  # feasibility: R_s eta^s <= R_max
        assert len(bracket.rungs) == bracket.s + 1


@pytest.mark.parametrize(("most", "eta"), ROUNDS)
def test_every_bracket_halves_and_ends_with_one_point_in_full(most: int, eta: int) -> None:
    for bracket in brackets(most, eta):
        assert bracket.rungs[-1].points == 1
        assert bracket.rungs[-1].effort == most
        start = bracket.rungs[0].points
        assert start >= 2 or highest_bracket(most, eta) == 0
        for i, rung in enumerate(bracket.rungs):  # line 9
            assert rung.points == -(-start // eta**i)
        efforts = [rung.effort for rung in bracket.rungs]
        assert efforts == sorted(set(efforts))


@pytest.mark.parametrize(("most", "eta"), ROUNDS)
def test_no_bracket_could_afford_one_point_more(most: int, eta: int) -> None:
    found = brackets(most, eta)
    left = (highest_bracket(most, eta) + 1) * most - sum(b.cost for b in found)
    for bracket in found:
        points = bracket.rungs[0].points + 1
        if points <= eta**bracket.s:
            assert cost(bracket, points, eta) - bracket.cost > left


@pytest.mark.parametrize(("most", "eta"), ROUNDS)
@pytest.mark.parametrize("fixed", [1, 3, 10, 2000])
def test_no_rung_spends_more_on_its_start_than_on_its_repeats(
    most: int, eta: int, fixed: int
) -> None:
    found = brackets(most, eta, fixed)
    assert all(rung.effort >= min(fixed, most) for b in found for rung in b.rungs)
    s_max = len(found) if found[0].s else 0
    starts = max(3 * s_max, s_max + 1)  # of two points and of the survivor
    assert sum(b.cost for b in found) <= (s_max + 1) * most + starts * fixed


def cost(bracket: Bracket, points: int, eta: int) -> int:
    total, below = 0, 0
    for i, rung in enumerate(bracket.rungs):
        total += -(-points // eta**i) * (rung.effort - below)
        below = rung.effort
    return total


@pytest.mark.parametrize(("most", "eta"), [(0, 3), (-1, 3), (27, 1), (27, 0)])
def test_impossible_efforts_are_refused(most: int, eta: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        brackets(most, eta)


@pytest.mark.parametrize(("most", "eta"), ROUNDS)
def test_the_printed_reading_gives_most_points_most_effort(most: int, eta: int) -> None:
    s_max = highest_bracket(most, eta)
    printed = literal_brackets(most, eta)
    assert [b.s for b in printed] == list(range(s_max + 1))
    for bracket in printed:
        assert bracket.rungs[0].points == eta ** (s_max - bracket.s)  # line 3
        assert bracket.rungs[0].effort == most // eta**bracket.s  # line 4
    if s_max > 0:
        assert sum(b.cost for b in printed) > (s_max + 1) * most
