"""Accuracy of a small net trained with sparse gradients, beside dense ones: real training on CPUs.

    .venv/bin/python benchmarks/compression_convergence.py [--ranks 4] [--epochs 12] [--seeds 5]

scikit-learn's 1797 digits (dependency group `benchmark`), three quarters to train on; a net of two
hidden layers, SGD with momentum, batches of 16 a rank. Every method starts from the same weights of
a seed. `within` says whether a method's mean accuracy lies within the spread of the dense one's
over seeds, or above. `KB a step` is what a rank gives into collectives; `gain` the part of the
gradient's squares that is sent, in the last step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from statistics import fmean
from typing import Any

from report import publish

from tuccl.cli.output import columns

RATIO = 0.1
METHODS: dict[str, dict[str, str] | None] = {
    "dense": None,
    "PowerSGD, rank 4": None,
    "LWTopk": {},
    "MSTopk": {},
    "AR-Topk, all-gather": {"collective": "allgather"},
    "AR-Topk, STAR": {"collective": "allreduce", "selection": "star"},
    "AR-Topk, VAR": {"collective": "allreduce", "selection": "var"},
    "AR-Topk, STAR, no feedback": {"collective": "allreduce", "selection": "star"},
}
LIMIT_S = 1800


def main() -> None:
    """Train in as many processes as there are ranks; the first prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return train_all(args)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "STORE": f"{folder}/store", "OMP_NUM_THREADS": "1"}
        environment.pop("TUCCL_TABLE", None)
        ranks = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore::UserWarning", *sys.argv, "--rank", str(rank)],
                env=environment,
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(args.ranks)
        ]
        try:
            text, _ = ranks[0].communicate(timeout=LIMIT_S)
            codes = [rank.wait(LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    print(text, end="")
    if any(codes):
        sys.exit(f"exit codes by rank: {codes}")


def train_all(args: argparse.Namespace) -> None:
    """Be a rank: train by every method from every seed."""
    import torch
    import torch.distributed as dist

    import tuccl.torch  # noqa: F401

    torch.set_num_threads(1)
    store = f"file://{os.environ['STORE']}"
    dist.init_process_group("tuccl", init_method=store, rank=args.rank, world_size=args.ranks)
    data = digits()
    rows, spread = [], (0.0, 0.0)
    for method in METHODS:
        runs = [trained(method, seed, args.epochs, data) for seed in range(args.seeds)]
        accuracy = [run[0] for run in runs]
        if method == "dense":
            spread = min(accuracy), max(accuracy)
        within = "" if method == "dense" else "yes" if fmean(accuracy) >= spread[0] else "no"
        row = [f"{fmean(accuracy):.2%}", f"{min(accuracy):.2%} to {max(accuracy):.2%}"]
        rows.append([method, *row, within, f"{runs[-1][1]:.1f}", runs[-1][2]])
    if args.rank == 0:
        print(f"{args.ranks} ranks, ratio {RATIO}, {args.epochs} epochs, {args.seeds} seeds")
        print(columns(["method", "accuracy", "over seeds", "within", "KB a step", "gain"], rows))
    dist.destroy_process_group()


def digits() -> tuple[object, ...]:
    """Return images and labels to train on, and those to test with."""
    import torch

    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("needs scikit-learn's digits: pip install --group benchmark")
    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(bunch.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(bunch.target)[order]
    cut = len(labels) * 3 // 4
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def trained(method: str, seed: int, epochs: int, data: tuple) -> tuple[float, float, str]:
    """Return accuracy on the test images, KB that a rank gave a step, and the last gain."""
    import torch
    import torch.distributed as dist

    images, labels, test_images, test_labels = data
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )
    model = torch.nn.parallel.DistributedDataParallel(net)
    numel = sum(p.numel() for p in net.parameters())
    state, sent = hooked(model, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for epoch in range(epochs):
        order = torch.randperm(
            len(labels), generator=torch.Generator().manual_seed(1000 * seed + epoch)
        )
        mine = order[rank::ranks][: len(labels) // ranks // 16 * 16]
        for batch in mine.split(16):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        right = (net(test_images).argmax(1) == test_labels).float().mean().item()
    gain = f"{state.gain:.2f}" if hasattr(state, "gain") else ""
    return right, sent(numel) / 1e3, gain


def hooked(model: Any, method: str) -> tuple[object, Callable[[int], float]]:  # noqa: ANN401
    """Register the hook of ``method``; return its state, and bytes that a rank gives a step."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    from tuccl.training.compression.hooks import ar_topk_hook, lw_topk_hook, ms_topk_hook
    from tuccl.training.compression.state import ARTopkState

    if method == "dense":
        return None, lambda numel: 4 * numel
    if method.startswith("PowerSGD"):
        power = powerSGD_hook.PowerSGDState(None, 4, 2, min_compression_rate=1)
        model.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
        return power, lambda _: 4 * sent_by_power(model)
    state = ARTopkState(
        compression_ratio=RATIO, use_error_feedback="no feedback" not in method, **METHODS[method]
    )
    hooks = {"LWTopk": lw_topk_hook, "MSTopk": ms_topk_hook}
    model.register_comm_hook(state, hooks.get(method, ar_topk_hook))
    return state, lambda numel: 8 * int(RATIO * numel)


def sent_by_power(model: Any) -> int:  # noqa: ANN401 - PyTorch's
    """Return the values of PowerSGD's two factors, and of vectors, which it sends whole."""
    return sum(
        4 * (p.shape[0] + p.shape[1]) if p.dim() > 1 else p.numel() for p in model.parameters()
    )


if __name__ == "__main__":
    publish(main, "Measured: accuracies of real training on CPUs")
