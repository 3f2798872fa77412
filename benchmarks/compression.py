"""Published times of sparse gradients beside the formulas: winners, cells, step times.

    .venv/bin/python benchmarks/compression.py

The times (tuccl.eval.papers.flexible) are of 8 V100 in 8 hosts, their network shaped by
tc. `formula` is the collectives' time by exchanges.formula_costs; what compressing takes is no part
of it. In tables II and III-V that is fitted: one number for a method, model and, in II, ratio, as
the median of what the formula leaves of the published times. The last table simulates the cells of
table VI on 8 hosts of one GPU with these rates and latency: by NCCL's default and by a table of
programs (all-gather allpairs, broadcast recursive, all-reduce ring), and says what the formula's
choice between all-gather and all-reduce loses there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import msgspec
from report import publish

from torch_backend import table_of
from tuccl.cli.output import columns
from tuccl.eval.papers.flexible import (
    COMPUTING_MS,
    EXCHANGE_OF,
    RANKS,
    errors,
    formula_ms,
    published,
    winners,
    with_fitted,
)
from tuccl.runtime import load_table
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.training import simulated_costs
from tuccl.training.compression.exchanges import (
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    regret,
    values_sent,
)
from tuccl.training.compression.monitors import SCHEDULES

RATIOS = (0.1, 0.01, 0.001)


def simulated_rows() -> Iterator[list[object]]:
    """Yield for each calls' maker how often the formula is right, and what it loses."""
    with tempfile.TemporaryDirectory() as folder:
        host = keep_gpus(load_profile("ndv2"), range(1))
        plain = join(host, RANKS)
        methods = {"allreduce": "ring", "allgather": "allpairs", "broadcast": "recursive"}
        table_of(Path(folder, "table"), "for the simulator", plain, methods, 1, 1 << 16)
        tables = {"NCCL's default": None, "table": load_table(Path(folder, "table"))}
        groups = sorted({(c.link, c.parameters, c.ratio) for c in published("VI")}, key=str)
        for name, stored in tables.items():
            costs = {link: simulated_costs(shaped(plain, link), stored) for link, *_ in groups}
            lost = [
                regret(values_sent(parameters, ratio), RANKS, link, costs[link])
                for link, parameters, ratio in groups
            ]
            right = sum(part == 0 for part in lost)
            yield [name, f"{right} of {len(lost)}", f"{fmean(lost):.1%}", f"{max(lost):.1%}"]


def schedule_rows() -> Iterator[list[object]]:
    """Yield the exchanges that the formula names along the schedules C1 and C2, by ratio."""
    sizes = {cell.model: cell.parameters for cell in published("VI")}
    for name, schedule in SCHEDULES.items():
        for epoch, link in schedule:
            costs = formula_costs(link, RANKS)
            for model, size in sizes.items():
                exchanges = [fastest_exchange(values_sent(size, c), RANKS, costs) for c in RATIOS]
                network = f"{link.alpha_us / 1e3:g} ms, {8 * link.gbs:g} Gb/s"
                yield [name, f"from epoch {epoch}", network, model, *exchanges]


def shaped(topology: Topology, link: Link) -> Topology:
    """Return the topology with that rate and latency between hosts."""
    links = tuple(
        msgspec.structs.replace(each, bandwidth=link.gbs, latency=link.alpha_us / 2)
        if each.kind == "network"
        else each
        for each in topology.links
    )
    return msgspec.structs.replace(topology, links=links)


def main() -> None:
    """Print each table's agreement."""
    pairs = winners()
    same = sum(cell.method == exchange for cell, exchange in pairs)
    print(f"table VI: winner named by formula in {same} of {len(pairs)}")
    sixth = list(published("VI"))
    print(f"table VI, exchange: {errors(sixth, [formula_ms(c) for c in sixth])}")

    second = list(published("II"))
    dense = [c for c in second if c.ratio == 1]
    print(f"table II, dense ring: {errors(dense, [formula_ms(c) for c in dense])}")
    sparse = [c for c in second if c.ratio < 1]
    predicted, fitted = with_fitted(sparse, [formula_ms(c) for c in sparse])
    print(f"table II, all-gather with compressing fitted: {errors(sparse, predicted)}")
    for (_, model, ratio), ms in fitted.items():
        print(f"  compressing {model} parameters at {ratio}: {ms:.0f} ms")

    steps = list(published("III-V"))
    known = [COMPUTING_MS[c.model] + formula_ms(c) for c in steps]
    dense_steps = [(c, ms) for c, ms in zip(steps, known, strict=True) if c.ratio == 1]
    cells, ms = map(list, zip(*dense_steps, strict=True))
    print(f"tables III-V, dense steps, nothing fitted: {errors(cells, ms)}")
    sparse_steps = [(c, ms) for c, ms in zip(steps, known, strict=True) if c.ratio < 1]
    cells, ms = map(list, zip(*sparse_steps, strict=True))
    predicted, fitted = with_fitted(cells, ms)
    print(f"tables III-V, sparse steps with compressing fitted: {errors(cells, predicted)}")
    rows = [
        [name, *(f"{fitted[name, model]:.1f}" for model in COMPUTING_MS)] for name in EXCHANGE_OF
    ]
    print(columns(["compressing, ms", *COMPUTING_MS], rows))
    both = [*dense_steps, *zip(cells, predicted, strict=True)]
    cells, ms = map(list, zip(*both, strict=True))
    print(f"tables III-V, all steps: {errors(cells, ms)}")
    print("\nby formula: ResNet50 at ratio 0.1, 5 ms, 1 Gb/s")
    link, values = Link(5000.0, 0.125), values_sent(25_560_000, 0.1)
    rows = [
        [
            ranks,
            *(
                f"{exchange_us(e, values, ranks, formula_costs(link, ranks)) / 1e3:.0f}"
                for e in ("allgather", "allreduce")
            ),
        ]
        for ranks in (2, 3, 4, 5, 6, 7, 8)
    ]
    print(columns(["ranks", "all-gather ms", "AR-Topk ring ms"], rows))
    print("\nby formula: the exchange along the changing networks of figure 6")
    print(columns(["network", "", "", "model", *map(str, RATIOS)], list(schedule_rows())))
    print("\nsimulated: the formula's choice between all-gather and all-reduce in table VI")
    head = ["calls by", "the faster", "mean regret", "largest regret"]
    print(columns(head, list(simulated_rows())))


if __name__ == "__main__":
    publish(main, "Times by formula beside published ones; the last table is simulated")
