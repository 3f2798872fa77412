"""The torch.distributed backend against Gloo: collectives and a DDP step, measured in one run.

    sudo .venv/bin/python benchmarks/torch_backend.py [--sizes 1M,16M] [loopback] [cluster]

Two places, each of 2x2 ranks: `loopback` is this host alone, `cluster` two emulated hosts with
uplinks of 200 Mb/s (needs root). The same processes do each call by both backends in turn; a time
is that of the slowest rank, a figure the median of the rounds, `x` Gloo's time over ours. `CPU` is
processor time of all ranks and their threads, of which other work on the machine takes little; it
says most where ranks outnumber cores. Also printed: whether both gave the same values (sums of
whole numbers, so exact). Four ranks share this machine's cores: run it alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation
from tuccl.program import Knobs
from tuccl.runtime import (
    LookupTable,
    Statistics,
    default_candidate,
    program_candidate,
    program_file,
    reduction_class,
    save_table,
)
from tuccl.runtime.table.entry import Entry
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, ScheduleChoice, lower, make_schedule
from tuccl.synth.model.collective import ROOTED
from tuccl.topology import Topology, join, keep_gpus, load_profile, signature
from tuccl.units import format_bytes, parse_size

HOSTS, EACH = 2, 2
MBPS = 200.0
METHODS = {
    "loopback": dict.fromkeys(("allreduce", "allgather", "reduce-scatter"), "allpairs"),
    "cluster": dict.fromkeys(("allreduce", "allgather", "reduce-scatter"), "hierarchical2"),
}
LIMIT_S = 500


def cluster() -> Topology:
    """Return two hosts of two GPUs, each host with one NIC."""
    host = keep_gpus(load_profile("ndv2"), range(EACH))
    return join(host, HOSTS)


def table_of(
    folder: Path,
    name: str,
    topology: Topology,
    methods: Mapping[str, str],
    chunks: int = 2,
    buffer_bytes: int = 4 << 20,
) -> None:
    """Save a table with one program for each collective by its method, and root if it has one."""
    time = Statistics.of((1.0,))
    entries, files = [], []
    for collective, method in methods.items():
        for root in range(topology.ranks) if collective in ROOTED else [None]:
            stated = Collective(collective, topology.ranks, root=root or 0)
            schedule = make_schedule(Problem(stated, full_mesh(topology), chunks, 16 << 20), method)
            file = program_file(lower(schedule), root=root or 0)
            knobs = Knobs("Simple", buffer_bytes=buffer_bytes)
            chosen = program_candidate(
                file, knobs, on="mpi", stats=time, choice=ScheduleChoice("", method, 0)
            )
            entries.append(
                Entry(
                    collective=collective,
                    reduction_class=reduction_class(collective),
                    min_bytes=1,
                    max_bytes=None,
                    candidates=(chosen, default_candidate("mpi")),
                    root=root,
                )
            )
            files.append(file)
    table = LookupTable(
        name=name,
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=tuple(entries),
    )
    save_table(table, folder, topology, files)


def main() -> None:
    """Measure in each place of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("places", nargs="*", help="loopback, cluster; both by default")
    parser.add_argument("--sizes", default="64K,1M,4M,16M")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return Rank(args.rank, args.rounds).measure([parse_size(s) for s in args.sizes.split(",")])
    for place in args.places or ["loopback", "cluster"]:
        launch(place, ["--sizes", args.sizes, "--rounds", str(args.rounds)])


def launch(place: str, options: list[str]) -> None:
    """Start a rank for each GPU, print what rank 0 says, and wait."""
    topology = cluster()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        table = Path(folder, "table")
        table_of(table, f"benchmark on {place}", topology, METHODS[place])
        extra, prefixes = {}, [()] * topology.ranks
        label = "loopback, one host"
        if place == "cluster":
            emulation = stack.enter_context(Emulation(topology, MBPS / 100e3))
            extra, label = emulation.environment, emulation.label
            prefixes = [emulation.prefix(rank // EACH) for rank in range(topology.ranks)]
        print(f"# {topology.ranks} ranks on {label}, {os.cpu_count()} cores", flush=True)
        environment = {
            **os.environ,
            **extra,
            "TUCCL_TABLE": str(table),
            "STORE": str(Path(folder, "store")),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, *options]
        ranks = [
            subprocess.Popen([*prefix, *command, "--rank", str(rank)], env=environment)
            for rank, prefix in enumerate(prefixes)
        ]
        try:
            codes = [rank.wait(LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(codes):
            sys.exit(f"exit codes by rank: {codes}")


class Spent(NamedTuple):
    """Of one run: ms on the slowest rank, and processor ms of all ranks and their threads."""

    ms: float
    cpu_ms: float


def cpu_ms() -> float:
    """Return the processor time of this process in ms, with its threads' and the kernel's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e3


class Rank:
    """One process of the job."""

    def __init__(self, rank: int, rounds: int) -> None:
        """Join both groups."""
        import torch
        import torch.distributed as dist

        import tuccl.torch  # noqa: F401

        self.torch, self.dist = torch, dist
        torch.set_num_threads(1)
        store = f"file://{os.environ['STORE']}"
        dist.init_process_group("tuccl", init_method=store, rank=rank, world_size=HOSTS * EACH)
        self.groups = {"tuccl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
        self.rank, self.rounds, self.size = rank, rounds, HOSTS * EACH

    def measure(self, sizes: list[int]) -> None:
        """Print the tables of collectives and of a training step."""
        rows = []
        for nbytes in sizes:
            for name, call in self.calls(nbytes // 4):
                rows.append([name, format_bytes(nbytes), *self.compared(call)])
        rows.append(["DDP step", *self.step()])
        if self.rank == 0:
            head = [
                "",
                "size",
                "tuccl ms",
                "spread",
                "Gloo ms",
                "spread",
                "x",
                "CPU ms",
                "Gloo CPU ms",
                "x",
                "equal",
            ]
            print(columns(head, rows), flush=True)
        self.dist.destroy_process_group()

    def calls(self, count: int) -> Iterator[tuple[str, Callable]]:
        """Yield collectives on ``count`` floats in all: each takes a group, returns its result."""
        torch, dist = self.torch, self.dist
        share = count // self.size
        whole = torch.arange(count, dtype=torch.float32) % 1000 + self.rank
        out = {name: torch.empty_like(whole) for name in self.groups}

        def allreduce(name: str) -> object:
            out[name].copy_(whole)
            return lambda: dist.all_reduce(out[name], group=self.groups[name])

        def allgather(name: str) -> object:
            part = whole[:share]
            return lambda: dist.all_gather_single(out[name], part, group=self.groups[name])

        def reduce_scatter(name: str) -> object:
            part = out[name][:share]
            return lambda: dist.reduce_scatter_single(part, whole, group=self.groups[name])

        def allreduce_odd(name: str) -> object:
            """The same of a number of elements that no chunks divide, as DDP's buckets have."""
            odd = out[name][: count - 3].copy_(whole[: count - 3])
            return lambda: dist.all_reduce(odd, group=self.groups[name])

        for prepare in (allreduce, allreduce_odd, allgather, reduce_scatter):
            yield prepare.__name__.replace("_", "-"), lambda n, p=prepare: (p(n), out[n])

    def compared(self, call: Callable) -> list[object]:
        """Return the row of a collective."""
        times: dict[str, list[Spent]] = {name: [] for name in self.groups}
        equal = True
        for turn in range(self.rounds + 1):
            results = {}
            for name in self.groups:
                run, results[name] = call(name)
                spent = self.timed(run)
                if turn:
                    times[name].append(spent)
            equal &= self.torch.equal(results["tuccl"], results["gloo"])
        return [*self.figures(times), equal]

    def timed(self, run: Callable) -> Spent:
        """Return what one run takes: on the slowest rank, and of all ranks' processors."""
        self.dist.barrier(self.groups["gloo"])
        begin, before = time.perf_counter(), cpu_ms()
        run()
        took = (time.perf_counter() - begin) * 1e3
        each = [self.torch.empty(2, dtype=self.torch.float64) for _ in range(self.size)]
        mine = self.torch.tensor([took, cpu_ms() - before], dtype=self.torch.float64)
        self.dist.all_gather(each, mine, group=self.groups["gloo"])
        every = self.torch.stack(each)
        return Spent(every[:, 0].max().item(), every[:, 1].sum().item())

    def figures(self, spent: dict[str, list[Spent]]) -> list[str]:
        """Return medians with their spread, how many times faster ours is, and processor time."""
        out, middles, cpu = [], {}, {}
        for name, samples in spent.items():
            times = [one.ms for one in samples]
            middles[name], cpu[name] = median(times), median([one.cpu_ms for one in samples])
            spread = (max(times) - min(times)) / middles[name]
            out += [f"{middles[name]:.2f}", f"{spread:.0%}"]
        out.append(f"{middles['gloo'] / middles['tuccl']:.2f}")
        return [*out, *(f"{cpu[name]:.1f}" for name in cpu), f"{cpu['gloo'] / cpu['tuccl']:.2f}"]

    def step(self) -> list[object]:
        """Return the row of a DDP training step of a network of 4 million weights."""
        torch = self.torch
        times: dict[str, list[Spent]] = {name: [] for name in self.groups}
        models = {}
        for name, group in self.groups.items():
            torch.manual_seed(3)
            model = torch.nn.Sequential(
                torch.nn.Linear(256, 2048),
                torch.nn.ReLU(),
                torch.nn.Linear(2048, 1700),
                torch.nn.ReLU(),
                torch.nn.Linear(1700, 10),
            )
            models[name] = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        images = torch.randn(8, 256, generator=torch.Generator().manual_seed(self.rank))
        for turn in range(self.rounds + 2):
            for name, model in models.items():

                def run(model: Any = model) -> None:  # noqa: ANN401
                    model.zero_grad()
                    model(images).square().mean().backward()

                spent = self.timed(run)
                if turn > 1:
                    times[name].append(spent)
        weights = sum(p.numel() for p in models["gloo"].parameters())
        pairs = zip(*(m.parameters() for m in models.values()), strict=True)
        near = all(torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-6) for a, b in pairs)
        return [format_bytes(weights * 4), *self.figures(times), near]


if __name__ == "__main__":
    publish(main, "Measured")
