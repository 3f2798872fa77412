"""A step that sends a part of the gradient, predicted from the cost of collectives."""

from __future__ import annotations

import msgspec

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import (
    Exchange,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    values_sent,
)
from tuccl.training.costs import Costs
from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.simulated_costs import fitted_line


class SparseStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of AR-Topk: times in us of the exchanges, which one to take, and what it is worth.

    Attributes:
        ratio: part of the gradient that is sent.
        values: that a rank sends.
        dense_us: the all-reduce of the whole gradient.
        allgather_us: all-gather of all ranks' values and indices.
        allreduce_us: broadcast of one rank's indices, and all-reduce of their values.
        exchange: the faster.
        by_formula: the exchange that the paper's formulas name on the fitted link.
        regret: part by which that one is slower.
        step_us: computing and the faster exchange, one after the other.
        source: where the costs are from.
    """

    ratio: float
    values: int
    dense_us: float
    allgather_us: float
    allreduce_us: float
    exchange: Exchange
    by_formula: Exchange
    regret: float
    step_us: float
    source: str


def fitted_link(costs: Costs, ranks: int) -> Link:
    """Return the latency and rate of a ring whose all-reduces take what ``costs`` says.

    Raises:
        InputError: there is but one rank, or larger calls take no longer.
    """
    alpha_us, us_per_byte = fitted_line(costs.of("allreduce"))
    if ranks < 2 or us_per_byte <= 0:
        raise InputError(f"link of {ranks} ranks: expected two or more, and a rate")
    steps = 2 * (ranks - 1)
    return Link(alpha_us / steps, steps / ranks / us_per_byte / 1e3)


def sparse_step(model: Model, ranks: int, costs: Costs, ratio: float) -> SparseStep:
    """Return a step of ``model`` on ``ranks`` ranks; finding the values is not counted.

    Raises:
        InputError: the ratio is not above 0 and at most 1, or a cost is missing.
    """
    elements = model.nbytes // ELEMENT_BYTES
    values = values_sent(elements, ratio)
    both: tuple[Exchange, ...] = ("allgather", "allreduce")
    us = {exchange: exchange_us(exchange, values, ranks, costs) for exchange in both}
    exchange = fastest_exchange(values, ranks, costs, both)
    named = fastest_exchange(values, ranks, formula_costs(fitted_link(costs, ranks), ranks), both)
    return SparseStep(
        ratio=ratio,
        values=values,
        dense_us=costs.of("allreduce")(model.nbytes),
        allgather_us=us["allgather"],
        allreduce_us=us["allreduce"],
        exchange=exchange,
        by_formula=named,
        regret=us[named] / us[exchange] - 1,
        step_us=model.step_us + us[exchange],
        source=costs.label,
    )
