"""Prints the seconds and memory that programs for 64 to 4,096 GPUs take, and how good they are.

    .venv/bin/python benchmarks/scale.py [--gpus 64,512] [--collectives allgather] [--search]

Machines are DGX H100s on one switch; `nvl72` is a rack of 72, and 576 its eightfold. Each row is
made in a process of its own, from the machine to the file: topology, sketch, chunks, schedule,
lowering, proof, simulation at 4 GiB, writing. A row is one method's program of one channel, or with
--search the fastest that `tuccl synth` finds. `simulated` is the part of the bound that its
simulated rate is, `links` the part that its busiest link allows; `file` is in MB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

from report import publish

from tuccl.errors import TucclError
from tuccl.program import write_program
from tuccl.synth import SynthesizedProgram, bound
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import synthesize

_NBYTES = 4 << 30
# Seconds and GiB that one program is to take, by GPUs: of other collectives, of an alltoall.
_MARKS = {64: (1, 1, 2), 512: (5, 20, 4), 1024: (10, 60, 6), 4096: (90, 600, 12)}
# GPUs up to which packing and hierarchical2 are run.
_MOST_PACKED, _MOST_RAILS = 640, 960
_HEAD = (
    f"{'machine':<9}{'collective':<16}{'method':<22}{'cpu s':>7}{'mark':>6}{'GB':>7}{'mark':>6}"
    f"{'simulated':>11}{'links':>7}{'blocks':>8}{'steps':>7}{'file':>7}"
)


def machine(name: str) -> Topology:
    """Return the machine of a row's name: a number of GPUs, or ``nvl72``."""
    if name in ("nvl72", "576"):
        rack = load_profile("gb200-nvl72")
        return rack if name == "nvl72" else join(rack, 8)
    return join(load_profile("dgx-h100"), int(name) // 8)


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
    args = parser.parse_args()
    print(_HEAD)
    for name in args.gpus.split(","):
        for collective in args.collectives.split(","):
            for method in ["auto"] if args.search else methods(name, collective):
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    print(process.apply(row, (name, collective, method)), flush=True)


if __name__ == "__main__":
    publish(main, "Simulated; seconds are measured")
