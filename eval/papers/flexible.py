"""Flexible communication's tables and figures by its formulas, beside its published times."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Exchange,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    values_sent,
)
from tuccl.training.compression.monitors import SCHEDULES

FILE = Path(__file__).with_name("flexible_communication.tsv")
RANKS = 8
COMPUTING_MS = {"ResNet18": 10.0, "ResNet50": 25.0, "AlexNet": 3.5, "ViT": 45.5}
DENSE = {"dense ring": "allreduce", "dense tree": "tree-allreduce"}
EXCHANGE_OF: dict[str, Exchange] = {
    "LWTopk": "allgather",
    "MSTopk": "allgather",
    "STAR": "tree-allreduce",
    "VAR": "tree-allreduce",
}
"""LWTopk and MSTopk exchange by all-gather, STAR and VAR by tree there."""
_TABLES = {
    "III": ("dense ring", "LWTopk", "MSTopk"),
    "IV": ("dense tree", "STAR", "VAR"),
    "V": ("STAR", "VAR", "LWTopk"),
}


class Cell(NamedTuple):
    """A published time."""

    table: str
    model: str
    parameters: int
    link: Link
    ratio: float
    method: str
    ms: float


def published(table: str) -> Iterator[Cell]:
    """Yield the cells of a table, by its number in the paper."""
    with FILE.open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["table"] == table:
                link = Link(float(row["alpha_ms"]) * 1e3, float(row["gbps"]) / 8)
                size = int(row["parameters"])
                ratio, ms = float(row["ratio"]), float(row["ms"])
                yield Cell(table, row["model"], size, link, ratio, row["method"], ms)


def formula_ms(cell: Cell) -> float:
    """Return what the collectives of a cell take in ms by formula."""
    costs = formula_costs(cell.link, RANKS)
    if cell.ratio == 1:
        return costs.of(DENSE.get(cell.method, cell.method))(cell.parameters * 4) / 1e3
    values = values_sent(cell.parameters, cell.ratio)
    exchange = EXCHANGE_OF.get(cell.method, cell.method)
    vote = costs.of("allgather")(4 * RANKS) if cell.method == "VAR" else 0.0
    return (exchange_us(exchange, values, RANKS, costs) + vote) / 1e3


def winners() -> list[tuple[Cell, Exchange]]:
    """Return the fastest cell of each network, model and ratio of table VI, and the formula's."""
    groups = defaultdict(list)
    for cell in published("VI"):
        groups[cell.model, cell.link, cell.ratio].append(cell)
    return [
        (
            min(cells, key=lambda cell: cell.ms),
            fastest_exchange(
                values_sent(cells[0].parameters, ratio), RANKS, formula_costs(link, RANKS)
            ),
        )
        for (_, link, ratio), cells in groups.items()
    ]


def errors(cells: Sequence[Cell], predicted_ms: Sequence[float]) -> str:
    """Return the median and the largest part by which predictions are off, and those within 5 %."""
    off = [abs(ms / cell.ms - 1) for cell, ms in zip(cells, predicted_ms, strict=True)]
    near = sum(error <= 0.05 for error in off)
    return f"median {median(off):.1%}, largest {max(off):.1%}, {near} of {len(off)} within 5 %"


Fitted = dict[tuple[str | float, ...], float]


def with_fitted(cells: Sequence[Cell], known: Sequence[float]) -> tuple[list[float], Fitted]:
    """Return predictions: what is known and what compressing takes, fitted; and the latter."""
    left = defaultdict(list)

    def key(cell: Cell) -> tuple[str | float, ...]:
        ratio = (cell.ratio,) if cell.table == "II" else ()
        return (cell.method, cell.model, *ratio)

    for cell, ms in zip(cells, known, strict=True):
        left[key(cell)].append(cell.ms - ms)
    fitted = {name: max(median(rest), 0.0) for name, rest in left.items()}
    predicted = [ms + fitted[key(cell)] for cell, ms in zip(cells, known, strict=True)]
    return predicted, fitted


_NETWORK = ("latency ms", "Gb/s")
_COLUMNS = ("model", *_NETWORK, "ratio", "method", "case", "paper ms", "here ms", "error %")


def _data(cells: Sequence[Cell], here: Sequence[float]) -> FigureData:
    rows = tuple(
        (
            cell.model,
            cell.link.alpha_us / 1e3,
            cell.link.gbs * 8,
            cell.ratio,
            cell.method,
            cell.method if cell.ratio == 1 else f"{cell.method} {cell.ratio:g}",
            cell.ms,
            ms,
            100 * (ms / cell.ms - 1),
        )
        for cell, ms in zip(cells, here, strict=True)
    )
    chart = Chart("case", ("paper ms", "here ms"), "ms", ("model", *_NETWORK), "bars", log=True)
    return FigureData(_COLUMNS, rows, (f"Error: {errors(cells, here)}.",), chart)


def table2(_: Progress) -> FigureData:
    """Rebuild Table II: the dense ring by formula; all-gather with compressing fitted."""
    cells = list(published("II"))
    known = [formula_ms(cell) for cell in cells]
    sparse = [(c, ms) for c, ms in zip(cells, known, strict=True) if c.ratio < 1]
    of_sparse = iter(with_fitted(*map(list, zip(*sparse, strict=True)))[0])
    here = [ms if c.ratio == 1 else next(of_sparse) for c, ms in zip(cells, known, strict=True)]
    return _data(cells, here)


def steps(_: Progress, table: str) -> FigureData:
    """Rebuild the step times of Table III, IV or V.

    They are published computing, the exchange by formula, and for sparse ones compressing, fitted.
    """
    cells = [c for c in published("III-V") if c.method in _TABLES[table]]
    known = [COMPUTING_MS[c.model] + formula_ms(c) for c in cells]
    predicted, _fitted = with_fitted(cells, known)
    pairs = zip(cells, known, predicted, strict=True)
    return _data(cells, [bare if c.ratio == 1 else ms for c, bare, ms in pairs])


def table6(_: Progress) -> FigureData:
    """Rebuild Table VI: exchanges by formula, and the winner of each network, model and ratio."""
    cells = list(published("VI"))
    data = _data(cells, [formula_ms(cell) for cell in cells])
    pairs = winners()
    same = sum(cell.method == exchange for cell, exchange in pairs)
    notes = (*data.notes, f"The formula names the paper's winner in {same} of {len(pairs)} cases.")
    return FigureData(data.columns, data.rows, notes, data.chart)


def fig5(_: Progress) -> FigureData:
    """Rebuild Fig. 5: all-gather and AR-Topk by ring from 2 to 8 ranks."""
    sizes = {cell.model: cell.parameters for cell in published("VI")}
    link = Link(5000.0, 0.125)
    rows: tuple[Row, ...] = tuple(
        (
            model,
            ranks,
            *(
                exchange_us(e, values_sent(size, 0.1), ranks, formula_costs(link, ranks)) / 1e3
                for e in ("allgather", "allreduce")
            ),
        )
        for model, size in sizes.items()
        for ranks in range(2, 9)
    )
    ys = ("all-gather ms", "AR-Topk ring ms")
    return FigureData(("model", "ranks", *ys), rows, (), Chart("ranks", ys, "ms", ("model",)))


def fig6(_: Progress) -> FigureData:
    """Rebuild Fig. 6: the networks C1 and C2 over epochs, and the exchange that suits each."""
    sizes = {cell.model: cell.parameters for cell in published("VI")}
    rows: list[Row] = []
    for name, schedule in SCHEDULES.items():
        for epoch, link in schedule:
            costs = formula_costs(link, RANKS)
            best = (
                fastest_exchange(values_sent(size, 0.01), RANKS, costs) for size in sizes.values()
            )
            rows.append((name, epoch, link.alpha_us / 1e3, link.gbs * 8, *best))
    columns = ("schedule", "from epoch", "latency ms", "Gb/s", *sizes)
    chart = Chart("from epoch", ("latency ms", "Gb/s"), "ms, Gb/s", ("schedule",))
    return FigureData(columns, tuple(rows), (), chart)


def shares(trace: Sequence[tuple[Link, float]], parameters: int) -> list[float]:
    """Return the part of steps, each with a link and a ratio, in which each exchange is fastest."""
    named = [
        fastest_exchange(values_sent(parameters, ratio), RANKS, formula_costs(link, RANKS))
        for link, ratio in trace
    ]
    return [named.count(exchange) / len(named) for exchange in EXCHANGES]
