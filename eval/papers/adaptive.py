"""Flexible communication's adaptive run: real training on CPU ranks, as one module of them.

`python -m tuccl.eval.papers.adaptive FOLDER RANK` is a rank. The data are synthetic: ten noisy
classes of a fixed random net, so that nothing has to be fetched. The network is only believed: the
rates of C1 and C2, scaled so that the small net's gradients take what ResNet18's do.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

from tuccl.errors import TucclError, Unavailable
from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.eval.papers.flexible import published, shares
from tuccl.training.compression.exchanges import Link
from tuccl.training.compression.monitors import SCHEDULES, ScheduledMonitor

if TYPE_CHECKING:
    import torch

RANKS, SEEDS, EPOCHS, STEPS = 4, 2, 50, 6
_BATCH = 32
_TRAIN, _TEST = RANKS * STEPS * _BATCH, 2000
_RESNET18 = 11_690_000
_LIMIT_S = 900
_FIXED = {"STAR 0.1": 0.1, "STAR 0.01": 0.01, "STAR 0.001": 0.001, "VAR 0.01": 0.01}
METHODS = ("dense", *_FIXED, *SCHEDULES)


class Trained(msgspec.Struct, frozen=True):
    """A run: accuracy on test data, and by step the ratio and the rank whose indices were used."""

    method: str
    seed: int
    accuracy: float
    ratios: list[float]
    roots: list[int]
    decisions: int


@cache
def trained() -> tuple[Trained, ...]:
    """Train by every method from every seed on ranks of this machine.

    Raises:
        Unavailable: PyTorch is not installed.
        TucclError: a rank failed.
    """
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("the adaptive run trains under PyTorch: pip install torch")
    with tempfile.TemporaryDirectory(prefix="tuccl-adaptive-") as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-m", "tuccl.eval.papers.adaptive", folder]
        ranks = [
            subprocess.Popen(
                [*command, str(rank)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for rank in range(RANKS)
        ]
        try:
            words = [rank.communicate(timeout=_LIMIT_S)[1] for rank in ranks]
        except subprocess.TimeoutExpired:
            raise TucclError(f"adaptive run: no end after {_LIMIT_S} s") from None
        finally:
            for rank in ranks:
                rank.kill()
        for rank, said in zip(ranks, words, strict=True):
            if rank.returncode:
                raise TucclError(f"adaptive run: a rank failed: {said.decode()[-300:]}")
        data = Path(folder, "runs.json").read_bytes()
    return tuple(msgspec.json.decode(data, type=list[Trained]))


def _of(method: str) -> list[Trained]:
    return [run for run in trained() if run.method == method]


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, the least and the most of a figure of several runs."""
    return fmean(values), min(values), max(values)


def adaptive(progress: Progress) -> FigureData:
    """Give accuracy and density of the adaptive runs beside fixed ratios."""
    progress(f"training on {RANKS} ranks")
    rows: list[Row] = []
    for method in METHODS:
        runs = _of(method)
        spread = _spread([100 * run.accuracy for run in runs])
        density = fmean(fmean(run.ratios) for run in runs)
        rows.append((method, *spread, density, fmean(run.decisions for run in runs)))
    columns = ("method", "accuracy %", "least %", "most %", "mean ratio", "decisions")
    chart = Chart("method", ("accuracy %",), "accuracy, %", kind="bars")
    return FigureData(columns, tuple(rows), (), chart)


def fig4(progress: Progress) -> FigureData:
    """Rebuild Fig. 4: how often each rank's indices were used by STAR and by VAR."""
    progress(f"training on {RANKS} ranks")
    rows = []
    for method in ("STAR 0.01", "VAR 0.01"):
        counts = Counter(root for run in _of(method) for root in run.roots)
        rows += [(method, rank, counts[rank] / counts.total()) for rank in range(RANKS)]
    chart = Chart("rank", ("share",), "share of steps", ("method",), "bars")
    return FigureData(("method", "rank", "share"), tuple(rows), (), chart)


_BINS = (0.03, 0.01, 0.003, 0.0)


def fig7(progress: Progress) -> FigureData:
    """Rebuild Fig. 7: how many steps used which ratio under C1 and C2."""
    progress(f"training on {RANKS} ranks")
    rows = []
    for name in SCHEDULES:
        above = [1.0, *_BINS]
        for most, least in zip(above, _BINS, strict=False):
            parts = [fmean(least <= ratio < most for ratio in run.ratios) for run in _of(name)]
            rows.append((name, f"{least:g} to {most:g}", *_spread(parts)))
    chart = Chart("ratio", ("share",), "share of steps", ("schedule",), "bars")
    columns = ("schedule", "ratio", "share", "least", "most")
    return FigureData(columns, tuple(rows), (), chart)


def fig8(progress: Progress) -> FigureData:
    """Rebuild Fig. 8: the exchanges by formula for four models along the ratios of the run."""
    progress(f"training on {RANKS} ranks")
    sizes = {cell.model: cell.parameters for cell in published("VI")}
    rows: list[Row] = []
    for name, schedule in SCHEDULES.items():
        monitor = ScheduledMonitor([(epoch * STEPS, link) for epoch, link in schedule])
        traces = [
            [(monitor.link(step), ratio) for step, ratio in enumerate(run.ratios)]
            for run in _of(name)
        ]
        for model, size in sizes.items():
            of_runs = zip(*(shares(trace, size) for trace in traces), strict=True)
            means, least, most = zip(*map(_spread, of_runs), strict=True)
            rows.append((name, model, *means, *least, *most))
    ys = ("all-gather", "AR-Topk ring", "AR-Topk tree")
    chart = Chart("model", ys, "share of steps", ("schedule",), "bars")
    ends = (f"{end} {y}" for end in ("least", "most") for y in ys)
    return FigureData(("schedule", "model", *ys, *ends), tuple(rows), (), chart)


def _net() -> torch.nn.Sequential:
    from torch.nn import Linear, ReLU, Sequential

    return Sequential(Linear(64, 128), ReLU(), Linear(128, 64), ReLU(), Linear(64, 10))


def _samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and classes of a fixed random net of noisy inputs."""
    import torch

    random = torch.Generator().manual_seed(7)
    inputs = torch.randn(_TRAIN + _TEST, 64, generator=random)
    weights = torch.randn(64, 10, generator=random)
    noise = torch.randn(_TRAIN + _TEST, 10, generator=random)
    return inputs, (inputs @ weights + 1.5 * noise).argmax(1)


def _train(method: str, seed: int, rank: int) -> Trained:
    """Train a net as one rank."""
    import torch
    import torch.distributed as dist

    from tuccl.training.compression.controller import RatioController
    from tuccl.training.compression.hooks import ar_topk_hook
    from tuccl.training.compression.state import ARTopkState

    inputs, classes = _samples()
    torch.manual_seed(seed)
    net = _net()
    model: Any = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    state = ARTopkState(
        compression_ratio=_FIXED.get(method, 0.1),
        selection="var" if method.startswith("VAR") else "star",
        collective="allreduce",
        tree_group=dist.new_group(),
    )
    if method != "dense":
        model.register_comm_hook(state, ar_topk_hook)
    controller = None
    if method in SCHEDULES:
        scale = sum(p.numel() for p in net.parameters()) / _RESNET18
        links = [(e * STEPS, Link(i.alpha_us, i.gbs * scale)) for e, i in SCHEDULES[method]]
        controller = RatioController(state, model, optimizer, ScheduledMonitor(links), rest=100)
    ratios, roots = list[float](), list[int]()

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[batch]), classes[batch]).backward()
        optimizer.step()

    for epoch in range(EPOCHS):
        random = torch.Generator().manual_seed(1000 * seed + epoch)
        for batch in torch.randperm(_TRAIN, generator=random)[rank::RANKS].split(_BATCH):
            if controller is not None:
                controller.step(partial(step, batch))
            else:
                step(batch)
            ratios.append(1.0 if method == "dense" else state.compression_ratio)
            roots += [] if state.root is None else [state.root]
    with torch.no_grad():
        right = net(inputs[_TRAIN:]).argmax(1) == classes[_TRAIN:]
    decisions = 0 if controller is None else len(controller.decisions)
    return Trained(method, seed, float(right.float().mean()), ratios, roots, decisions)


def _rank(folder: Path, rank: int) -> None:
    """Be a rank; the first writes the runs."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    runs = [_train(method, seed, rank) for method in METHODS for seed in range(SEEDS)]
    if rank == 0:
        (folder / "runs.json").write_bytes(msgspec.json.encode(runs))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
