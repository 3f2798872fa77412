"""The survey's figure of 252 training throughputs beside their simulation, and its claims.

    .venv/bin/python benchmarks/training_survey.py [CELLS.tsv] [--fit]

Cells: HKBU-HPML/ddl-benchmarks, results of 2020-05-29 (Shi et al., "A Quantitative Survey of
Communication Optimizations in Distributed Deep Learning", IEEE Network 35(3), 2021): samples/s of
4 to 32 RTX 2080 Ti, by default from ../shared/data. Simulated are 1 to 8 hosts of the profile
rtx2080tix4 under NCCL 2.4's choice. Its rate between sockets and the rate of TCP over InfiniBand
are fitted to the BSP-A2A cells alone (--fit prints how well others fit); 10 GbE runs at its nominal
rate; all other cells are predicted. A winner is named as `tuccl train --advise` names it: of
steps within 3 %, the one that needs no servers, then a barrier, then fewer calls.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import median

from report import ROOT, publish

from tuccl.cli.output import columns
from tuccl.eval.papers.survey import HOSTS, NAMES, NETWORKS, Key, cluster, simulate
from tuccl.training import (
    GRADIENT_METHODS,
    TrainingRun,
    reference_model,
    simulate_training,
    simulated_costs,
)
from tuccl.training.methods import SURVEY
from tuccl.training.reference_models import REFERENCE_MODELS
from tuccl.training.simulation import best_run

CELLS = ROOT.parent / "shared/data/training/ddl_benchmarks_fig4.tsv"
FITTED = "BSP-A2A"


Cells = dict[Key, dict[str, float]]


def read_cells(path: Path) -> Cells:
    """Return the measured samples/s by cell and method."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    cells: Cells = {}
    for row in csv.DictReader(lines, delimiter="\t"):
        key = Key(row["model"], row["network"], int(row["gpus"]))
        cells.setdefault(key, {})[row["method"]] = float(row["mean"])
    return cells


def fit(cells: Cells) -> None:
    """Print the largest error over BSP-A2A cells for rates around the ones that were taken."""
    rows = []
    for network, rates in (
        ("100gb-ib-rdma", [(12.5, s) for s in (5.6, 5.8, 6.0, 6.2, 6.4)]),
        ("100gb-ip-over-ib-tcp", [(r, 6.0) for r in (2.3, 2.4, 2.45, 2.5, 2.6)]),
    ):
        for gbs, sockets in rates:
            errors = []
            for hosts in HOSTS:
                costs = simulated_costs(cluster(hosts, gbs, sockets), version="2.4")
                for name in REFERENCE_MODELS:
                    run = simulate_training(
                        reference_model(name), GRADIENT_METHODS["bsp"], 4 * hosts, costs
                    )
                    measured = cells[Key(name, network, 4 * hosts)][FITTED]
                    errors.append(abs(run.row.samples_per_s / measured - 1))
            rows.append([NAMES[network], sockets, gbs, f"{max(errors):.1%}"])
    print(columns(["network", "sockets GB/s", "port GB/s", "largest error"], rows) + "\n")


def print_cells(cells: Cells, runs: dict[Key, dict[str, TrainingRun]]) -> None:
    """Print speed-ups, measured and simulated, and how far throughput is off, cell by cell."""
    rows = []
    for key, measured in cells.items():
        single = REFERENCE_MODELS[key.model].samples_per_s
        row: list[object] = [key.model, NAMES[key.network], key.gpus]
        for method in SURVEY:
            speed = runs[key][method].row.samples_per_s
            row.append(
                f"{measured[method] / single:.2f} {speed / single:.2f} "
                f"{speed / measured[method] - 1:+.0%}"
            )
        rows.append(row)
    print("Speed-up measured, simulated, and the error of the simulated throughput")
    print(columns(["model", "network", "GPUs", *SURVEY], rows) + "\n")


def print_errors(cells: Cells, runs: dict[Key, dict[str, TrainingRun]]) -> None:
    """Print the errors by method: of the fitted and of the predicted."""

    def errors(method: str) -> list[float]:
        return [abs(runs[k][method].row.samples_per_s / cells[k][method] - 1) for k in cells]

    rows = [
        [m, "fitted" if m == FITTED else "predicted", f"{median(e):.1%}", f"{max(e):.1%}"]
        for m in SURVEY
        for e in [errors(m)]
    ]
    others = [error for m in SURVEY if m != FITTED for error in errors(m)]
    rows.append(["all predicted", "predicted", f"{median(others):.1%}", f"{max(others):.1%}"])
    print(columns(["method", "cells", "median error", "largest"], rows) + "\n")


def winners(
    cells: Cells, runs: dict[Key, dict[str, TrainingRun]]
) -> tuple[list[list[object]], int]:
    """Return the named winner of each cell and what it loses, and how many lose at most 3 %."""
    rows: list[list[object]] = []
    within = 0
    for key, measured in cells.items():
        by_name = {id(run): name for name, run in runs[key].items()}
        winner = by_name[id(best_run(list(runs[key].values())))]
        best = max(measured, key=lambda name: measured[name])
        loss = 1 - measured[winner] / measured[best]
        within += loss <= 0.03
        rows.append([key.model, NAMES[key.network], key.gpus, winner, best, f"{loss:.1%}"])
    return rows, within


def print_winners(cells: Cells, runs: dict[Key, dict[str, TrainingRun]]) -> None:
    """Print the named winner of each cell, and what it loses on the measured best."""
    rows, within = winners(cells, runs)
    print(columns(["model", "network", "GPUs", "named", "measured best", "loss"], rows))
    print(f"named winner within 3 % of the measured best in {within} of {len(rows)} cells\n")


def print_servers(cells: Cells, runs: dict[Key, dict[str, TrainingRun]]) -> None:
    """Print why servers over TCP simulate too fast: cells of another network, and half the rate."""
    doubtful = {
        (key, method)
        for key in cells
        for method in ("BSP-PS", "WFBP-PS")
        if key.network == "100gb-ip-over-ib-tcp"
        and _several_hosts(key)
        and abs(cells[key][method] / cells[key._replace(network="10gbe-tcp")][method] - 1) < 0.02
    }
    faster = max(
        cells[key]["ByteScheduler-PS"]
        / cells[key._replace(network="10gbe-tcp")]["ByteScheduler-PS"]
        for key, _ in doubtful
    )
    print(
        f"{len(doubtful)} cells of BSP-PS and WFBP-PS over IPoIB are those over 10 GbE within 2 %, "
        f"where ByteScheduler-PS, a flag apart, is up to {faster:.1f} times as fast: measured over "
        "the other network, it seems. The largest errors are theirs."
    )
    shared = dict(runs)
    for network in ("10gbe-tcp", "100gb-ip-over-ib-tcp"):
        for hosts in HOSTS:
            shared |= simulate(network, hosts, list(SURVEY), shared=True)
    rows = []
    for name, each in (("each way its own", runs), ("shared over TCP", shared)):
        errors = {
            (key, m): abs(each[key][m].row.samples_per_s / cells[key][m] - 1)
            for key in cells
            for m in SURVEY
            if m != FITTED
        }
        servers = [
            error
            for (key, m), error in errors.items()
            if key.network == "10gbe-tcp"
            and _several_hosts(key)
            and GRADIENT_METHODS[SURVEY[m]].is_server
        ]
        rest = [error for cell, error in errors.items() if cell not in doubtful]
        row = [name, median(servers), median(errors.values()), median(rest), max(rest)]
        rows.append([*(x if isinstance(x, str) else f"{x:.1%}" for x in row)])
        rows[-1].append(f"{winners(cells, each)[1]} of {len(cells)}")
    header = ["rate of pushes and answers", "servers over 10 GbE, median error", "all, median"]
    header += ["without those cells, median", "largest", "winners within 3 %"]
    print(columns(header, rows))
    print(
        "Servers over 10 GbE took about as long as if pushes and answers shared a host's rate, "
        "though NCCL reaches it both ways at once there. No source of BytePS says so (of TCP it "
        "says that from 25 Gb/s on one connection does not fill the network), so it is not taken.\n"
    )


def print_claims(cells: Cells, runs: dict[Key, dict[str, TrainingRun]]) -> None:
    """Print what the survey says in words beside what its cells and the simulation say."""
    simulated = {
        key: {name: run.row.samples_per_s for name, run in of.items()} for key, of in runs.items()
    }
    rows = []
    for claim, first, others, where in CLAIMS:
        row: list[object] = [claim]
        for values in (cells, simulated):
            cases = [k for k in values if where(k)]
            held = [k for k in cases if all(values[k][first] >= values[k][o] for o in others)]
            verdict = "holds" if len(held) == len(cases) else "refuted"
            row.append(f"{verdict}, {len(held)} of {len(cases)}")
        rows.append(row)
    print(columns(["claim of the survey", "its cells", "simulated"], rows))
    ties = [
        cells[k]["ByteScheduler-PS"] / cells[k]["WFBP-PS"] - 1
        for k in cells
        if k.model == "ResNet-50" and k.network == "100gb-ib-rdma"
    ]
    print(
        f"ByteScheduler-PS leads WFBP-PS on ResNet-50 over IB by {median(ties):.1%} in the median: "
        "a tie, so that the crossover of partitioning and fusing is weak"
    )


def _several_hosts(key: Key) -> bool:
    return key.gpus > 4


def _bert(key: Key) -> bool:
    return key.model != "ResNet-50" and (key.model, key.gpus) != ("BERT-Base", 8)


_OTHERS = tuple(name for name in SURVEY if name != "MG-WFBP")
CLAIMS = (
    ("BSP-A2A always beats BSP-PS", "BSP-A2A", ("BSP-PS",), _several_hosts),
    (
        "... over InfiniBand",
        "BSP-A2A",
        ("BSP-PS",),
        lambda k: _several_hosts(k) and k.network == "100gb-ib-rdma",
    ),
    ("WFBP turns it: PS wins", "WFBP-PS", ("WFBP-A2A",), _several_hosts),
    ("... at 32 GPUs", "WFBP-PS", ("WFBP-A2A",), lambda k: k.gpus == 32),
    ("MG-WFBP is best on BERT but BERT-Base at 8", "MG-WFBP", _OTHERS, _bert),
    (
        "... over InfiniBand",
        "MG-WFBP",
        _OTHERS,
        lambda k: _bert(k) and k.network == "100gb-ib-rdma",
    ),
    (
        "ByteScheduler-PS is best on ResNet-50",
        "ByteScheduler-PS",
        tuple(name for name in SURVEY if name != "ByteScheduler-PS"),
        lambda k: _several_hosts(k) and k.model == "ResNet-50",
    ),
    (
        "ByteScheduler-A2A never beats MG-WFBP",
        "MG-WFBP",
        ("ByteScheduler-A2A",),
        _several_hosts,
    ),
)


def main() -> int | None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="?", type=Path, default=CELLS)
    parser.add_argument("--fit", action="store_true", help="print how well other rates fit")
    args = parser.parse_args()
    if not args.cells.exists():
        print(f"{args.cells}: not here; name the survey's cells")
        return 2
    cells = read_cells(args.cells)
    if args.fit:
        fit(cells)
    runs: dict[Key, dict[str, TrainingRun]] = {}
    for network in NETWORKS:
        for hosts in HOSTS:
            runs |= simulate(network, hosts, list(SURVEY))
    print_cells(cells, runs)
    print_errors(cells, runs)
    print_winners(cells, runs)
    print_servers(cells, runs)
    print_claims(cells, runs)
    print(
        "\nNot predicted: Horovod's and BytePS' own time a call, the slower GPU while NCCL runs "
        "beside it, unlike optimizers (BERT: SGD on PS, AdamW on A2A, Adam with ByteScheduler). "
        "At 4 GPUs BytePS uses no server: those cells are not PS."
    )
    return None


if __name__ == "__main__":
    publish(main, "Simulated, beside published measurements")
