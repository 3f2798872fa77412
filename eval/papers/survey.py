"""The survey's 252 training throughputs, simulated, and the crossovers between its methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.topology import Topology, join, load_profile
from tuccl.training import (
    GRADIENT_METHODS,
    Costs,
    TrainingRun,
    reference_model,
    simulate_training,
    simulated_costs,
)
from tuccl.training.methods import SURVEY
from tuccl.training.reference_models import REFERENCE_MODELS

# GB/s of a port: RDMA's nominal (the sockets are slower), TCP over it fitted, 10 GbE nominal.
NETWORKS = {"100gb-ib-rdma": 12.5, "100gb-ip-over-ib-tcp": 2.45, "10gbe-tcp": 1.25}
NAMES = {"100gb-ib-rdma": "IB", "100gb-ip-over-ib-tcp": "IPoIB", "10gbe-tcp": "10GbE"}
HOSTS = (1, 2, 4, 8)
_PAGE = Path(__file__).resolve().parents[2] / "results" / "training_survey.md"


class Key(NamedTuple):
    """A cell but for its method."""

    model: str
    network: str
    gpus: int


def cluster(hosts: int, gbs: float, sockets_gbs: float | None = None) -> Topology:
    """Return the survey's machine with ports of ``gbs``, and another rate between sockets."""
    host = load_profile("rtx2080tix4")
    if sockets_gbs is not None:
        links = tuple(
            msgspec.structs.replace(link, bandwidth=sockets_gbs) if link.kind == "cpu" else link
            for link in host.links
        )
        host = msgspec.structs.replace(host, links=links)
    return join(host, hosts, down_gbs=gbs)


class SharedWire(Costs):
    """Costs of servers whose pushes and answers share one rate, as if hosts were half duplex."""

    def wire(self, call: str) -> str:
        """Return what the call occupies."""
        return "both ways" if call in ("push", "pull") else super().wire(call)


def simulate(
    network: str, hosts: int, methods: Sequence[str], *, shared: bool = False
) -> dict[Key, dict[str, TrainingRun]]:
    """Return the runs by cell and the survey's names of ``methods``.

    ``shared``: servers' messages both ways share one rate.
    """
    costs = simulated_costs(cluster(hosts, NETWORKS[network]), servers=hosts, version="2.4")
    if shared:
        costs = SharedWire(costs.by_call, costs.alpha_us, costs.label, costs.has_program)
    return {
        Key(name, network, 4 * hosts): {
            method: simulate_training(
                reference_model(name), GRADIENT_METHODS[SURVEY[method]], 4 * hosts, costs
            )
            for method in methods
        }
        for name in REFERENCE_MODELS
    }


@cache
def _recorded() -> Mapping[tuple[str, str, int], list[float]]:
    """The measured speed-ups of each cell by method, as results/training_survey.md repeats them."""
    if not _PAGE.exists():
        return {}
    cells = {}
    for line in _PAGE.read_text().splitlines():
        words = re.split(r"\s{2,}", line.strip())
        if len(words) == 3 + len(SURVEY) and words[0] in REFERENCE_MODELS and words[2].isdigit():
            measured = [float(each.split()[0]) for each in words[3:]]
            cells[words[0], words[1], int(words[2])] = measured
    return cells


@cache
def _speedups() -> Mapping[Key, dict[str, float]]:
    """The simulated speed-up over one GPU of each cell by method."""
    return {
        key: {method: run.row.speedup for method, run in runs.items()}
        for network, hosts in product(NETWORKS, HOSTS)
        for key, runs in simulate(network, hosts, list(SURVEY)).items()
    }


def cells(progress: Progress) -> FigureData:
    """Rebuild the survey's Fig. 4: 252 speed-ups, simulated, beside the measured ones."""
    progress("simulating 252 cells")
    rows: list[Row] = []
    off: list[float] = []
    for key, by_method in _speedups().items():
        measured = _measured(key)
        off += [abs(by_method[method] / value - 1) for method, value in measured.items()]
        pairs = ((speedup, measured.get(method)) for method, speedup in by_method.items())
        values: Row = tuple(value for pair in pairs for value in pair)
        rows.append((key.model, NAMES[key.network], key.gpus, *values))
    names = tuple(name for method in SURVEY for name in (method, f"{method} measured"))
    drawn = ("BSP-A2A", "MG-WFBP", "WFBP-PS")
    ys = tuple(name for method in drawn for name in (method, f"{method} measured"))
    chart = Chart("GPUs", ys, "speed-up over one GPU", ("model", "network"), log=True)
    notes: tuple[str, ...] = ("Measured speed-ups stand in results/training_survey.md.",)
    if off:
        error = f"Error of {len(off)} cells: median {median(off):.1%}, largest {max(off):.1%}."
        notes = (*notes, error)
    return FigureData(("model", "network", "GPUs", *names), tuple(rows), notes, chart)


def _measured(key: Key) -> dict[str, float]:
    values = _recorded().get((key.model, NAMES[key.network], key.gpus), [])
    return dict(zip(SURVEY, values, strict=False))


def crossovers(progress: Progress) -> FigureData:
    """Find where parameter servers and all-to-all change places, with and without pipelining."""
    progress("simulating 252 cells")
    rows: list[Row] = []
    for key, by_method in _speedups().items():
        of_cell = _measured(key)
        named = (_best(by_method), _best(of_cell)) if of_cell else (_best(by_method), None)
        pairs = (("BSP-A2A", "BSP-PS"), ("WFBP-A2A", "WFBP-PS"))
        ratios = tuple(
            values[a2a] / values[ps] if values else None
            for a2a, ps in pairs
            for values in (by_method, of_cell)
        )
        rows.append((key.model, NAMES[key.network], key.gpus, *ratios, *named))
    columns = ("model", "network", "GPUs")
    ys = ("BSP A2A/PS", "BSP A2A/PS measured", "WFBP A2A/PS", "WFBP A2A/PS measured")
    chart = Chart("GPUs", ys, "A2A over PS", ("model", "network"))
    return FigureData((*columns, *ys, "best", "best measured"), tuple(rows), (), chart)


def _best(values: Mapping[str, float]) -> str:
    return max(values, key=lambda name: values[name])
