"""Measure what re-ranking in service costs and gains: `tuccl.torch`, a link slowed.

    sudo .venv/bin/python benchmarks/adaptation.py [--size SIZE] [--onsets N] [--idle-calls N]

Four hosts of one rank at 200 Mb/s (needs root). The table has allreduce by several methods, one of
them made for a network with a slow link. First each candidate alone is timed, idle and with the
link of host 0 at a quarter of its rate: the oracle is the shortest of these. Then one job runs:
idle calls, then the link slows, then it recovers, N times. Last, small calls on the idle network,
with adaptation and without. A time is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from report import ROOT, publish

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
from tuccl.runtime.table.programs import ProgramFile
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, ScheduleChoice, lower, make_schedule
from tuccl.topology import Topology, join, keep_gpus, load_profile, signature
from tuccl.units import parse_size

HOSTS = 4
MBPS = 200.0
SLOW = 0.25
CHUNKS = 8
SMALL = 4096

Files = dict[str, ProgramFile]


def cluster() -> Topology:
    """Return four hosts of one GPU and one NIC each."""
    return join(keep_gpus(load_profile("ndv2"), range(1)), HOSTS)


def slowed(topology: Topology) -> Topology:
    """Return the topology with the first host's network links at a share of their rate."""
    nic = next(node.id for node in topology.nodes if node.kind == "nic")
    links = tuple(
        msgspec.structs.replace(link, bandwidth=link.bandwidth * SLOW)
        if link.kind == "network" and nic in (link.src, link.dst)
        else link
        for link in topology.links
    )
    return msgspec.structs.replace(topology, links=links)


def programs(topology: Topology, nbytes: int) -> Files:
    """Return program files of allreduce by method."""
    stated = Collective("allreduce", topology.ranks)
    ways = [("ring", topology, 1), ("recursive", topology, 1), ("allpairs", topology, 1)]
    ways.append(("packing", slowed(topology), CHUNKS))
    files = {}
    for method, machine, chunks in ways:
        problem = Problem(stated, full_mesh(machine), chunks, nbytes)
        files[method] = program_file(lower(make_schedule(problem, method)))
    return files


def save(folder: Path, topology: Topology, files: Files, times_us: dict[str, float]) -> None:
    """Save a table of the programs, those of shorter times first."""
    order = sorted(files, key=lambda method: times_us.get(method, 1.0))
    candidates = [
        program_candidate(
            files[method],
            Knobs("Simple", buffer_bytes=1 << 20),
            on="mpi",
            stats=Statistics.of((times_us.get(method, 1.0),)),
            choice=ScheduleChoice("", method, 0),
        )
        for method in order
    ]
    last = default_candidate("mpi", Statistics.of((10 * max([*times_us.values(), 1.0]),)))
    entry = Entry(
        collective="allreduce",
        reduction_class=reduction_class("allreduce"),
        min_bytes=1,
        max_bytes=None,
        candidates=(*candidates, last),
    )
    table = LookupTable(
        name="adaptation",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=(entry,),
    )
    save_table(table, folder, topology, [files[method] for method in order])


class Job:
    """Ranks on the emulated hosts that call on request."""

    def __init__(self, emulation: Emulation, table: Path, nbytes: int, **settings: str) -> None:
        """Start them."""
        self._folder = tempfile.TemporaryDirectory()
        environment = {
            **os.environ,
            **emulation.environment,
            "TUCCL_TABLE": str(table),
            "STORE": str(Path(self._folder.name, "store")),
            "OMP_NUM_THREADS": "1",
            "NCCL_DEBUG": "INFO",
            "TUCCL_ADAPT": "1",
            **settings,
        }
        command = [sys.executable, __file__, "--size", str(nbytes)]
        self._log = Path(self._folder.name, "log")
        self._ranks = [
            subprocess.Popen(
                [*emulation.prefix(rank), *command, "--rank", str(rank)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log.open("w") if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(HOSTS)
        ]

    def run(self, calls: int) -> list[float]:
        """Return the ms that each call took on the slowest rank."""
        for rank in self._ranks:
            rank.stdin.write(f"{calls}\n")
            rank.stdin.flush()
        times = [json.loads(rank.stdout.readline()) for rank in self._ranks]
        return [max(each) for each in zip(*times, strict=True)]

    def close(self) -> None:
        """End them."""
        for rank in self._ranks:
            rank.stdin.close()
        for rank in self._ranks:
            rank.wait(60)
        lines = self._log.read_text().splitlines()
        self.swaps = [line for line in lines if "swap: " in line]
        self.epochs = sum("of the ranking" in line for line in lines)
        self._folder.cleanup()


def serve(rank: int, nbytes: int) -> None:
    """Be a rank."""
    import torch
    import torch.distributed as dist

    import tuccl.torch  # noqa: F401

    torch.set_num_threads(1)
    store = f"file://{os.environ['STORE']}"
    dist.init_process_group("tuccl", init_method=store, rank=rank, world_size=HOSTS)
    data = torch.zeros(nbytes // 4)
    for line in sys.stdin:
        ends = [time.perf_counter()]
        for _ in range(int(line)):
            dist.all_reduce(data)
            ends.append(time.perf_counter())
        print(json.dumps([1e3 * (b - a) for a, b in pairwise(ends)]), flush=True)
    dist.destroy_process_group()


def slow_down(emulation: Emulation, share: float) -> None:
    """Give host 0's link a share of its rate, both ways."""
    from tuccl.emulation import set_rate

    nic = emulation.cluster.hosts[0].nics[0].id
    for port in emulation.cluster.ports:
        if nic in (port.src, port.dst):
            set_rate(port.src, port.dst, MBPS * 1e6 * share, emulation.id)


def timing_cost() -> str:
    """Return what timing a call costs, as the native core does it."""
    native = ROOT / "msccl_ext"
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "timing_cost"))
        headers = [f"-I{native / name}" for name in ("include", "src", "tests")]
        source = str(ROOT / "benchmarks" / "timing_cost.cpp")
        library = str(ROOT / "build" / "native" / "libtuccl_selector.a")
        command = ["c++", "-std=c++20", "-O2", *headers, source, library, "-o", program]
        subprocess.run([*command, "-lpthread"], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.strip()


def alone(emulation: Emulation, folder: Path, files: Files, nbytes: int, calls: int) -> float:
    """Return the median ms of calls with the table of ``folder``, kept as tuned."""
    job = Job(emulation, folder, nbytes, TUCCL_ADAPT="0")
    job.run(5)
    took = median(job.run(calls))
    job.close()
    return took


def each_alone(
    emulation: Emulation, topology: Topology, files: Files, nbytes: int, calls: int
) -> dict[str, float]:
    """Return by method the median ms of its calls."""
    with tempfile.TemporaryDirectory() as folder:
        times = {}
        for method, file in files.items():
            table = Path(folder, method)
            save(table, topology, {method: file}, {})
            times[method] = alone(emulation, table, files, nbytes, calls)
        return times


def calls_until(times: list[float], limit: float) -> int | None:
    """Return from which call on the medians of ten calls stay within ``limit``."""
    last = max((i for i in range(len(times) - 9) if median(times[i : i + 10]) > limit), default=-1)
    return None if last + 10 >= len(times) else last + 1


def onsets(
    emulation: Emulation, job: Job, loaded: dict[str, float], count: int, calls: int
) -> None:
    """Slow the link of host 0 and let it recover, ``count`` times."""
    tuned_ms, oracle_ms = next(iter(loaded.values())), min(loaded.values())
    print(f"oracle under the slow link: {min(loaded, key=loaded.__getitem__)}, {oracle_ms:.1f} ms")
    for number in range(count):
        idle = job.run(calls)
        slow_down(emulation, SLOW)
        slow = job.run(calls)
        slow_down(emulation, 1)
        back = job.run(calls)
        now_ms = median(slow[-20:])
        print(
            f"onset {number + 1}: idle {median(idle[-20:]):.1f} ms; slowed {now_ms:.1f} ms in the "
            f"end, {now_ms / oracle_ms:.2f} x the oracle, within 1.1 x of it from call "
            f"{calls_until(slow, 1.1 * oracle_ms)} on; gain over the table as tuned "
            f"{tuned_ms / now_ms:.2f} x; recovered {median(back[-20:]):.1f} ms",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1M")
    parser.add_argument("--onsets", type=int, default=3)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--idle-calls", type=int, default=10000)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    nbytes = parse_size(args.size)
    if args.rank is not None:
        return serve(args.rank, nbytes)
    print(f"# {timing_cost()}", flush=True)
    topology = cluster()
    files = programs(topology, nbytes)
    with tempfile.TemporaryDirectory() as folder, Emulation(topology, MBPS / 100e3) as emulation:
        print(f"# {emulation.label}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        idle = each_alone(emulation, topology, files, nbytes, 30)
        idle = dict(sorted(idle.items(), key=lambda item: item[1]))
        slow_down(emulation, SLOW)
        loaded = {
            name: each_alone(emulation, topology, {name: files[name]}, nbytes, 15)[name]
            for name in idle
        }
        slow_down(emulation, 1)
        for name in idle:
            print(
                f"{name:10} {args.size}: idle {idle[name]:7.1f} ms, slowed {loaded[name]:7.1f} ms"
            )
        table = Path(folder, "large")
        save(table, topology, files, {name: 1e3 * time for name, time in idle.items()})
        job = Job(emulation, table, nbytes)
        onsets(emulation, job, loaded, args.onsets, args.calls)
        job.close()
        print(*job.swaps, sep="\n")
        small = each_alone(emulation, topology, files, SMALL, 200)
        table = Path(folder, "small")
        save(table, topology, files, {name: 1e3 * time for name, time in small.items()})
        job = Job(emulation, table, SMALL)
        adapted = job.run(args.idle_calls)
        job.close()
        print(*job.swaps, sep="\n", end="\n" if job.swaps else "")
        kept_ms = alone(emulation, table, files, SMALL, args.idle_calls)
        print(
            f"{args.idle_calls} idle calls of {SMALL} bytes: {len(job.swaps)} swaps, "
            f"{job.epochs} rankings; {median(adapted):.3f} ms, kept as tuned {kept_ms:.3f} ms"
        )


if __name__ == "__main__":
    publish(main, "Measured")
