"""Prints the seconds and memory that programs for 64 to 4,096 GPUs take, and how good they are.

    .venv/bin/python benchmarks/scale.py [--gpus 64,512] [--collectives allgather] [--search]
    .venv/bin/python benchmarks/scale.py --tables [--gpus 64,512]

Machines are DGX H100s on one switch; `nvl72` is a rack of 72, and 576 its eightfold. Each row is
made in a process of its own, from the machine to the file: topology, sketch, chunks, schedule,
lowering, proof, simulation at 4 GiB, writing. A row is one method's program of one channel, or with
--search the fastest that `tuccl synth` finds. `simulated` is the part of the bound that its
simulated rate is, `links` the part that its busiest link allows; `file` is in MB. With --tables a
row is `tuccl tune` of 21 sizes, allgather and allreduce: CPU seconds, evaluations, and how many
times as fast as NCCL's choice its programs are, as a geometric mean.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean

from report import publish

from tuccl.errors import TucclError
from tuccl.program import write_program
from tuccl.synth import SynthesizedProgram, bound
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import synthesize, tune

_NBYTES = 4 << 30
# Seconds and GiB that one program is to take, by GPUs: of other collectives, of an alltoall.
_MARKS = {64: (1, 1, 2), 512: (5, 20, 4), 1024: (10, 60, 6), 4096: (90, 600, 12)}
_TABLE = ("allgather", "allreduce")
_TABLE_MARKS = {64: 90, 512: 240, 1024: 480}  # seconds
# GPUs up to which packing and hierarchical2 are run.
_MOST_PACKED, _MOST_RAILS = 640, 960
_HEAD = (
    f"{'machine':<9}{'collective':<16}{'method':<22}{'cpu s':>7}{'mark':>6}{'GB':>7}{'mark':>6}"
    f"{'simulated':>11}{'links':>7}{'blocks':>8}{'steps':>7}{'file':>7}"
)
_TABLE_HEAD = f"{'machine':<9}{'cpu s':>7}{'mark':>6}{'GB':>7}{'evals':>7}{'gain':>7}"


def machine(name: str) -> Topology:
    """Return the machine of a row's name: a number of GPUs, or ``nvl72``."""
    if name in ("nvl72", "576"):
        rack = load_profile("gb200-nvl72")
        return rack if name == "nvl72" else join(rack, 8)
    return join(load_profile("dgx-h100"), int(name) // 8)


def table_row(name: str) -> str:
    """Return one line of the tables."""
    topology = machine(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        result = tune(topology, _TABLE, "1K:1G:x2", path=path).result
    used = resource.getrusage(resource.RUSAGE_SELF)
    gains = [row.default_us / (row.best_us or row.default_us) for row in result.tuned]
    return (
        f"{name:<9}{used.ru_utime + used.ru_stime:>7.0f}{_TABLE_MARKS.get(topology.ranks, ''):>6}"
        f"{used.ru_maxrss / 1e6:>7.2f}{result.evaluations:>7}{geometric_mean(gains):>7.2f}"
    )


def methods(name: str, collective: str) -> list[str]:
    """Return the methods that have a row."""
    ranks = machine(name).ranks
    if collective == "alltoall":
        return ["hierarchical2" if ranks <= _MOST_RAILS else "hierarchical3"]
    if collective in ("broadcast", "reduce"):
        return ["hierarchical3"]
    packed = ["packing"] if ranks <= _MOST_PACKED else []
    return [*packed, "hierarchical-doubling"]


def row(name: str, collective: str, method: str) -> str:
    """Return one line of the table."""
    begun = time.process_time()
    topology, search = machine(name), method == "auto"
    try:
        found = synthesize(
            topology,
            collective,
            _NBYTES,
            method=method,
            protocol=None if search else "Simple",
            channels=None if search else 1,
            chunks=None if search or collective != "alltoall" else 1,
        )
    except TucclError as why:
        return f"{name:<9}{collective:<16}{method:<22}{time.process_time() - begun:>7.1f}  {why}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.xml")
        write_program(found.best.program, file)
        megabytes = file.stat().st_size / 1e6
    seconds = time.process_time() - begun
    return _line(name, topology, collective, found.best, seconds, megabytes)


def _line(
    name: str,
    topology: Topology,
    collective: str,
    best: SynthesizedProgram,
    seconds: float,
    megabytes: float,
) -> str:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    others, alltoall, most = _MARKS.get(topology.ranks, ("", "", ""))
    mark = alltoall if collective == "alltoall" else others
    share = bound(topology, collective).time_us(_NBYTES) / best.time_us
    return (
        f"{name:<9}{collective:<16}{best.method:<22}{seconds:>7.1f}{mark:>6}{memory:>7.2f}{most:>6}"
        f"{share:>11.3f}{best.fraction_of_bound:>7.3f}{best.program.threadblocks:>8}"
        f"{best.program.max_steps:>7}{megabytes:>7.1f}"
    )


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="64,256,512,1024,4096")
    parser.add_argument("--collectives", default="allgather,allreduce,alltoall,broadcast,reduce")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    print(_TABLE_HEAD if args.tables else _HEAD)
    for name in args.gpus.split(","):
        if args.tables:
            with multiprocessing.get_context("spawn").Pool(1) as process:
                print(process.apply(table_row, (name,)), flush=True)
            continue
        for collective in args.collectives.split(","):
            for method in ["auto"] if args.search else methods(name, collective):
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    print(process.apply(row, (name, collective, method)), flush=True)


if __name__ == "__main__":
    publish(main, "Simulated; seconds are measured")
