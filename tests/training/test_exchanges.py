"""Exchanges of sparse gradients by formula: the paper's table and its inequalities."""

from __future__ import annotations

import csv
import math
import random
from collections import defaultdict
from pathlib import Path

import pytest

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    is_worth_compressing,
    regret,
    values_sent,
)
from tuccl.training.costs import Costs, linear

PUBLISHED = Path(__file__).resolve().parents[2] / "eval/papers/flexible_communication.tsv"


def test_the_formula_names_every_published_winner() -> None:
    cells: defaultdict[tuple[float, float, float], dict[str, float]] = defaultdict(dict)
    with PUBLISHED.open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["table"] == "VI":
                key = (float(row["parameters"]), float(row["gbps"]), float(row["ratio"]))
                cells[key][row["method"]] = float(row["ms"])
    assert len(cells) == 36
    for (parameters, gbps, ratio), ms in cells.items():
        costs = formula_costs(Link(1000.0, gbps / 8), 8)
        named = fastest_exchange(values_sent(int(parameters), ratio), 8, costs)
        assert ms[named] == min(ms.values()), (parameters, gbps, ratio)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_the_choice_is_that_of_the_published_inequalities(ranks: int) -> None:
    draw, log, n = random.Random(ranks), math.log2(ranks), ranks
    for _ in range(300):
        values = draw.randint(1, 10_000_000)
        link = Link(10 ** draw.uniform(0, 5), 10 ** draw.uniform(-3, 1.5))
        x = link.alpha_us / (values * 4 / (link.gbs * 1e3))
        costs = formula_costs(link, ranks)
        us = {exchange: exchange_us(exchange, values, ranks, costs) for exchange in EXCHANGES}
        ring_before_gather = x < 1 - 1 / n - log / (2 * (n - 1))
        tree_before_gather = x < (n - 1) / log - 1.5
        assert (us["allreduce"] < us["allgather"]) == ring_before_gather
        assert (us["tree-allreduce"] < us["allgather"]) == tree_before_gather
        if n > 2:
            ring_before_tree = x < (log - (n - 1) / n) / ((n - 1) - log)
            assert (us["allreduce"] < us["tree-allreduce"]) == ring_before_tree
        assert us[fastest_exchange(values, ranks, costs)] == min(us.values())


def test_a_table_may_show_that_the_formula_chose_badly() -> None:
    link, values = Link(1000.0, 1.25), 4_000_000
    formula = formula_costs(link, 8)
    assert regret(values, 8, link, formula) == 0
    table = Costs(
        {"allreduce": linear(1e6, 0), "broadcast": linear(5, 0), "allgather": linear(10, 0)}, 1.0
    )
    assert regret(values, 8, link, table) == pytest.approx((1e6 + 5) / 10 - 1)
    assert fastest_exchange(values, 8, table) == "allgather"


def test_compression_is_worth_it_on_slow_networks_only() -> None:
    slow, fast = (formula_costs(Link(100.0, gbs), 8) for gbs in (0.1, 1000.0))
    assert is_worth_compressing(10_000_000, 0.1, 8, slow, 1000.0)
    assert not is_worth_compressing(10_000_000, 0.1, 8, fast, 1000.0)


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.5, math.nan])
def test_a_wrong_ratio_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match="compression ratio"):
        values_sent(1000, ratio)


def test_links_that_cannot_be_are_refused() -> None:
    for alpha_us, gbs in ((-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0)):
        with pytest.raises(InputError, match="link of"):
            Link(alpha_us, gbs)
