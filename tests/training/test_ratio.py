"""The choice of the ratio, and monitors of the network."""

from __future__ import annotations

import random

import pytest

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    values_sent,
)
from tuccl.training.compression.monitors import (
    CallMonitor,
    ProbingMonitor,
    ScheduledMonitor,
    has_changed,
)
from tuccl.training.compression.ratio import TriedRatio, choose_ratio

ELEMENTS = 10_000_000
TRIED = [TriedRatio(c, 2000.0, c**0.25) for c in (0.1, 0.033, 0.011, 0.004, 0.001)]


def us_on(link: Link, ratio: float) -> float:
    costs, values = formula_costs(link, 8), values_sent(ELEMENTS, ratio)
    return exchange_us(fastest_exchange(values, 8, costs), values, 8, costs)


def test_a_slower_network_or_more_weight_on_time_sends_less() -> None:
    pytest.importorskip("scipy")
    link = Link(1000.0, 0.125)
    for_time, for_gain = (
        choose_ratio(TRIED, lambda c: us_on(link, c), weights=weights)
        for weights in ((0.9, 0.1), (0.1, 0.9))
    )
    assert 0.001 <= for_time.ratio < for_gain.ratio <= 0.1
    assert for_time.us < for_gain.us and for_time.gain < for_gain.gain
    assert for_time.front > 100


def test_where_time_is_the_same_all_is_sent() -> None:
    pytest.importorskip("scipy")
    assert choose_ratio(TRIED, lambda _: 7.0).ratio == pytest.approx(0.1)
    useless = [TriedRatio(c, 0.0, 0.5) for c in (0.1, 0.01)]
    assert choose_ratio(useless, lambda c: c).ratio == pytest.approx(0.01)


def test_nsga2_finds_what_the_grid_finds() -> None:
    pytest.importorskip("scipy")
    link = Link(1000.0, 0.125)
    by_grid = choose_ratio(TRIED, lambda c: us_on(link, c))
    by_nsga2 = choose_ratio(TRIED, lambda c: us_on(link, c), search="nsga2")
    assert by_nsga2.ratio == pytest.approx(by_grid.ratio, rel=0.05)


@pytest.mark.parametrize("tried", [TRIED[:1], TRIED[:1] * 2, [TriedRatio(0.1, 1, 0), TRIED[1]]])
def test_too_little_to_choose_by_is_refused(tried: list[TriedRatio]) -> None:
    with pytest.raises(InputError, match="ratios tried"):
        choose_ratio(tried, lambda c: c)


def test_a_monitor_of_calls_finds_the_network_that_they_ran_on() -> None:
    draw, link = random.Random(1), Link(700.0, 0.05)
    monitor = CallMonitor(8, Link(1.0, 1.0))
    assert monitor.link(0) == Link(1.0, 1.0)
    for new in (link, Link(70.0, 0.5)):  # and follows it
        for _ in range(40):
            call, nbytes = draw.choice(EXCHANGES), draw.randint(1000, 400_000)
            us = formula_costs(new, 8).of(call)(nbytes)
            monitor.observe(call, nbytes, us * draw.uniform(0.98, 1.02))
        seen = monitor.link(40)
        assert seen.alpha_us == pytest.approx(new.alpha_us, rel=0.1)
        assert seen.gbs == pytest.approx(new.gbs, rel=0.1)
    assert has_changed(link, seen) and not has_changed(seen, seen)


def test_equal_calls_show_the_rate_alone() -> None:
    monitor = CallMonitor(8, Link(100.0, 9.0))
    costs = formula_costs(Link(100.0, 0.2), 8)
    for _ in range(5):
        monitor.observe("allgather", 50_000, costs.of("allgather")(50_000))
    assert monitor.link(5).alpha_us == 100.0
    assert monitor.link(5).gbs == pytest.approx(0.2)


def test_probes_come_every_so_many_steps() -> None:
    asked = []

    def probe(exchange: str, values: int) -> float:
        asked.append(values)
        return exchange_us(exchange, values, 4, formula_costs(Link(50.0, 0.3), 4))

    monitor = ProbingMonitor(probe, 4, every=10)
    for step in range(20):
        assert monitor.link(step).gbs == pytest.approx(0.3)
    assert len(asked) == 4


def test_a_schedule_that_does_not_rise_is_refused() -> None:
    for steps in ((1,), (0, 5, 5), ()):
        with pytest.raises(InputError, match="rise from 0"):
            ScheduledMonitor([(step, Link(1.0, 1.0)) for step in steps])


def test_the_choice_knows_no_unit_and_no_common_time() -> None:
    """Each objective counts by its place along the front: scaled or moved, the choice stays."""
    pytest.importorskip("scipy")
    link = Link(1000.0, 0.125)
    chosen = choose_ratio(TRIED, lambda c: us_on(link, c)).ratio
    slower = [TriedRatio(one.ratio, 50.0 * one.compression_us, one.gain) for one in TRIED]
    assert choose_ratio(slower, lambda c: 50.0 * us_on(link, c)).ratio == pytest.approx(chosen)
    assert choose_ratio(TRIED, lambda c: 1e6 + us_on(link, c)).ratio == pytest.approx(chosen)


def test_times_that_grow_faster_than_bytes_give_no_negative_latency() -> None:
    monitor = CallMonitor(8, Link(100.0, 9.0))
    for nbytes in (50_000, 100_000, 200_000, 400_000):
        monitor.observe("allgather", nbytes, nbytes**1.5 / 1e5)
    assert monitor.link(4).alpha_us >= 0
    assert monitor.link(4).gbs > 0
