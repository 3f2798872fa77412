"""The choice of the exchange against measured times, on 8 emulated hosts of a rank each.

    sudo .venv/bin/python benchmarks/compression_exchanges.py [--models ResNet18,...] [--rounds 3]

The cells of the published table VI: 4 models, 3 rates, 3 ratios at a latency of 1 ms. Models have
2 MB each here and rates are scaled by as much, so that times stay what they would be; the latency
is as it was. Exchanges run by a table's programs: all-gather by `allpairs`, broadcast by
`recursive`, all-reduce by `ring` and, as the tree, by `recursive` (halving and doubling, no tree of
whole arrays). `by costs` is the switch that goes by collectives timed one by one on the same
network, `by formula` the paper's between all-gather and ring. A time is that of the slowest rank, a
figure the median of the rounds. Run it alone; it needs root.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from report import publish

from torch_backend import table_of
from tuccl.cli.output import columns
from tuccl.emulation import Emulation, set_rate
from tuccl.eval.papers.flexible import FILE as PUBLISHED
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.training.compression.exchanges import (
    EXCHANGES,
    Link,
    exchange_us,
    fastest_exchange,
    formula_costs,
    values_sent,
)

RANKS, ALPHA_US, ELEMENTS = 8, 1000.0, 500_000
RATIOS = (0.1, 0.01, 0.001)
SIZES = tuple(1 << power for power in (10, 13, 16, 19))  # beyond by a straight line
TABLES = {
    "ring": {"allreduce": "ring", "allgather": "allpairs", "broadcast": "recursive"},
    "recursive": {"allreduce": "recursive"},
}
LIMIT_S = 3600
TIE = 0.05  # of a time: less is no difference here


def networks(models: list[str]) -> Iterator[tuple[str, float, float]]:
    """Yield models, published rates in Gb/s and scaled ones in Mb/s."""
    seen = set()
    with PUBLISHED.open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            key = row["model"], float(row["gbps"])
            if row["table"] == "VI" and row["model"] in models and key not in seen:
                seen.add(key)
                yield *key, key[1] * 1e3 * ELEMENTS / int(row["parameters"])


def cluster() -> Topology:
    """Return 8 hosts of a GPU and a NIC each."""
    return join(keep_gpus(load_profile("ndv2"), range(1)), RANKS)


def main() -> None:
    """Measure all networks on one cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="ResNet18,ResNet50,AlexNet,ViT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    todo = list(networks(args.models.split(",")))
    if args.rank is not None:
        return measure(args.rank, todo, args.rounds)
    topology = cluster()
    with tempfile.TemporaryDirectory() as folder:
        for name, methods in TABLES.items():
            table_of(Path(folder, name), name, topology, methods, 1, 1 << 16)
        nominal = Emulation(topology).cluster.latencies[0].latency_us
        with Emulation(topology, latency_scale=ALPHA_US / nominal) as emulation:
            run(emulation, folder, todo, args)


def run(
    emulation: Emulation,
    folder: str,
    todo: list[tuple[str, float, float]],
    args: argparse.Namespace,
) -> None:
    """Start the ranks, and give the cluster its rates as they get on."""
    environment = {
        **os.environ,
        **emulation.environment,
        "TUCCL_TABLE": str(Path(folder, "ring")),
        "FOLDER": folder,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, __file__, "--models", args.models, "--rounds", str(args.rounds)]
    print(f"# {RANKS} ranks, {emulation.cluster.name}, {ALPHA_US:g} us, {os.cpu_count()} cores")
    sys.stdout.flush()
    output = subprocess.PIPE
    ranks = [
        subprocess.Popen(
            [*emulation.prefix(rank), *command, "--rank", str(rank)],
            env=environment,
            stdout=output if rank == 0 else None,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for number, (_, _, mbps) in enumerate(todo):
            for port in emulation.cluster.ports:
                set_rate(port.src, port.dst, mbps * 1e6, emulation.id)
            Path(folder, f"shaped-{number}").touch()
            wait_for(Path(folder, f"done-{number}"), ranks)
        text, _ = ranks[0].communicate(timeout=LIMIT_S)
        print(text, end="")
        codes = [rank.wait(LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        sys.exit(f"exit codes by rank: {codes}")


def wait_for(file: Path, ranks: list[subprocess.Popen[str]] | None = None) -> None:
    """Return once the file is there; exit where a rank has ended before."""
    begin = time.monotonic()
    while not file.exists():
        if time.monotonic() - begin > LIMIT_S or any(r.poll() for r in ranks or ()):
            sys.exit(f"{file.name} did not come: a rank ended or hangs")
        time.sleep(0.05)


def measure(rank: int, todo: list[tuple[str, float, float]], rounds: int) -> None:
    """Be a rank: measure exchanges in each network, and print what was chosen."""
    import torch
    import torch.distributed as dist

    import tuccl.torch
    from tuccl.training.compression.measuring import exchange_probe, measured_costs

    torch.set_num_threads(1)
    folder = Path(os.environ["FOLDER"])
    store = f"file://{folder}/store"
    dist.init_process_group("tuccl", init_method=store, rank=rank, world_size=RANKS)
    tree = dist.new_group(pg_options=tuccl.torch.Options((folder / "recursive",)))
    probe = exchange_probe(repeats=rounds, tree_group=tree)
    rows, hits, form_hits, formula_hits, regrets = [], 0, 0, 0, []
    for number, (model, gbps, mbps) in enumerate(todo):
        wait_for(folder / f"shaped-{number}")
        dist.barrier()
        costs = measured_costs(sizes=SIZES, repeats=rounds, tree_group=tree)
        formula = formula_costs(Link(ALPHA_US, mbps / 8e3), RANKS)
        for ratio in RATIOS:
            values = values_sent(ELEMENTS, ratio)
            us = {exchange: probe(exchange, values) for exchange in EXCHANGES}
            chosen = fastest_exchange(values, RANKS, costs)
            named = fastest_exchange(values, RANKS, formula, EXCHANGES[:2])
            least, of_two = min(us.values()), min(us[e] for e in EXCHANGES[:2])
            hits += us[chosen] <= (1 + TIE) * least
            same_form = [e for e in EXCHANGES if (e == "allgather") == (chosen == "allgather")]
            form_hits += min(us[e] for e in same_form) <= (1 + TIE) * least
            formula_hits += us[named] <= (1 + TIE) * of_two
            regrets.append(us[named] / least - 1)
            off = [us[e] / exchange_us(e, values, RANKS, formula) for e in EXCHANGES[:2]]
            rows.append(
                [
                    *(model, f"{gbps:g}", f"{mbps:.1f}", f"{ratio:g}"),
                    *(f"{us[e] / 1e3:.1f}" for e in EXCHANGES),
                    *(f"{part:.2f}" for part in off),
                    *(chosen, named),
                ]
            )
        dist.barrier()
        if rank == 0:
            (folder / f"done-{number}").touch()
    if rank == 0:
        head = ["model", "Gb/s", "scaled Mb/s", "ratio", *(f"{e} ms" for e in EXCHANGES)]
        print(columns([*head, "/ formula", "/ formula", "by costs", "by formula"], rows))
        print(
            f"measured: by costs the fastest of three, or within {TIE:.0%} of it, in {hits} of "
            f"{len(rows)}, and the faster form, all-gather or all-reduce, in {form_hits}; "
            f"by formula the faster of all-gather and ring in {formula_hits}; "
            f"regret of the formula against three: mean {sum(regrets) / len(regrets):.1%}, "
            f"largest {max(regrets):.1%}; calls {dist.group.WORLD.counts}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    publish(main, "Measured")
