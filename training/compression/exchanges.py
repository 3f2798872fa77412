"""Methods to exchange sparse gradients, and their times: by formula or by a table's programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tuccl.errors import InputError
from tuccl.training.costs import Cost, Costs
from tuccl.training.model import ELEMENT_BYTES

# What carries the values: an all-gather, with every rank's own indices, or an all-reduce after a
# broadcast of one rank's indices.
Exchange = Literal["allgather", "allreduce", "tree-allreduce"]
EXCHANGES: tuple[Exchange, ...] = get_args(Exchange)
INDEX_BYTES = 4


@dataclass(frozen=True)
class Link:
    """Network between ranks: latency of a message in us, and the rate in GB/s of each rank."""

    alpha_us: float
    gbs: float

    def __post_init__(self) -> None:
        """Refuse what no network has.

        Raises:
            InputError: the latency is below 0, or the rate is not above it.
        """
        if not (0 <= self.alpha_us < 1e12 and 0 < self.gbs < 1e12):
            raise InputError(
                f"link of {self.alpha_us:g} us and {self.gbs:g} GB/s: expected a latency from 0 "
                "up and a rate above 0"
            )


def values_sent(elements: int, ratio: float) -> int:
    """Return k, the values that a rank sends of ``elements``: at least one.

    >>> values_sent(1000, 0.1), values_sent(5, 0.01)
    (100, 1)

    Raises:
        InputError: the ratio is not above 0 and at most 1.
    """
    if not 0 < ratio <= 1:
        raise InputError(f"compression ratio {ratio:g}: expected above 0 and at most 1")
    return max(1, int(ratio * elements))


def formula_costs(link: Link, ranks: int) -> Costs:
    """Return what collectives of ``ranks`` ranks take on ``link``.

    A size is that of the whole array. Trees and broadcasts are not pipelined, unlike NCCL's: a
    table's times are those to go by where there is one.

    Notes:
        Table I of the paper: a the latency, b the time of a byte, M bytes, N ranks, log2 rounded
        up. Ring 2(N-1)a + 2(N-1)/N Mb, tree 2 log N (a + Mb), broadcast log N (a + Mb),
        all-gather a log N + (N-1)/N Mb, parameter server 2a + 2(N-1)Mb.
    """
    if ranks < 1:
        raise InputError(f"{ranks} ranks: expected at least 1")

    def cost(call: str) -> Cost:
        messages, part = _TERMS[call](ranks, (ranks - 1).bit_length())
        return lambda nbytes: messages * link.alpha_us + part * nbytes / (link.gbs * 1e3)

    by_call = {call: cost(call) for call in _TERMS}
    return Costs(by_call, 2 * (ranks - 1) * link.alpha_us, "by formula")


# By call: messages one after another, and what part of the array passes one by one, of the ranks
# and log2 of them.
_TERMS: dict[str, Callable[[int, int], tuple[int, float]]] = {
    "allreduce": lambda ranks, _: (2 * (ranks - 1), 2 * (ranks - 1) / ranks),
    "tree-allreduce": lambda _, rounds: (2 * rounds, 2 * rounds),
    "broadcast": lambda _, rounds: (rounds, rounds),
    "allgather": lambda ranks, rounds: (rounds, (ranks - 1) / ranks),
    "parameter-server": lambda ranks, _: (2, 2 * (ranks - 1)),
}


def call_terms(call: str, nbytes: int, ranks: int) -> tuple[float, float]:
    """Return the messages and the bytes that by formula pass one after another in a call.

    >>> call_terms("allgather", 640, 8)
    (3, 560.0)
    """
    messages, part = _TERMS[call](ranks, (ranks - 1).bit_length())
    return messages, part * nbytes


def exchange_terms(exchange: Exchange, values: int, ranks: int) -> tuple[float, float]:
    """Return the same of an exchange of ``values`` values a rank."""
    terms = [call_terms(call, nbytes, ranks) for call, nbytes in _calls(exchange, values, ranks)]
    return sum(messages for messages, _ in terms), sum(nbytes for _, nbytes in terms)


def _calls(exchange: str, values: int, ranks: int) -> list[tuple[str, int]]:
    """Return the calls of an exchange with their bytes."""
    nbytes, indices = values * ELEMENT_BYTES, values * INDEX_BYTES
    if exchange == "allgather":
        return [(exchange, (nbytes + indices) * ranks)]
    return [("broadcast", indices), (exchange, nbytes)]


def exchange_us(exchange: str, values: int, ranks: int, costs: Costs) -> float:
    """Return what it takes to exchange ``values`` values a rank in us, of 4 bytes each.

    Notes:
        Equations 4a and 4b; the all-gather carries values and indices of all ranks.
    """
    return sum(costs.of(call)(nbytes) for call, nbytes in _calls(exchange, values, ranks))


def fastest_exchange(
    values: int, ranks: int, costs: Costs, exchanges: Sequence[Exchange] = EXCHANGES
) -> Exchange:
    """Return the exchange that takes least, of those that have a cost; of equals the first.

    >>> fastest_exchange(4_000_000, 8, formula_costs(Link(1000.0, 1.25), 8))
    'allreduce'
    """
    priced = [exchange for exchange in exchanges if exchange in costs.by_call]
    if not priced:
        raise InputError(f"costs {costs.label[:60]}: none of {', '.join(exchanges)} has one")
    return min(priced, key=lambda exchange: exchange_us(exchange, values, ranks, costs))


def regret(values: int, ranks: int, link: Link, costs: Costs) -> float:
    """Return by what part of the least time the choice by formula is slower, going by ``costs``."""
    both: tuple[Exchange, ...] = ("allgather", "allreduce")
    by_formula = fastest_exchange(values, ranks, formula_costs(link, ranks), both)
    least = min(exchange_us(exchange, values, ranks, costs) for exchange in both)
    return exchange_us(by_formula, values, ranks, costs) / least - 1


def is_worth_compressing(
    elements: int, ratio: float, ranks: int, costs: Costs, compression_us: float
) -> bool:
    """Return whether compressing and the fastest exchange take less than the dense all-reduce.

    Notes:
        Equations 1b and 3: else gradients are better sent whole.
    """
    values = values_sent(elements, ratio)
    exchange = fastest_exchange(values, ranks, costs)
    dense = min(
        costs.of(call)(elements * ELEMENT_BYTES)
        for call in ("allreduce", "tree-allreduce")
        if call in costs.by_call
    )
    return compression_us + exchange_us(exchange, values, ranks, costs) < dense
