"""Kills runs in containers and virtual machines at random moments, and counts what is left.

    sudo .venv/bin/python benchmarks/kills.py [--runs 50]

Each run starts two ranks in cells of a regime and calls an allreduce in a loop. After the kill the
kernel has 15 s to remove namespaces, mounts, shared memory, control groups and processes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

from report import publish

from tuccl.emulation.regimes import REGIMES
from tuccl.emulation.running import clear_leftovers

JOB = """
import sys
from tuccl.emulation import Cells, CellsExecutor
from tuccl.runtime import find_mpi
from tuccl.synth import Collective, lower, msccl_default
from tuccl.program import Knobs
from tuccl.topology import keep_gpus, load_profile
host = keep_gpus(load_profile("v100x4"), [0, 1])
with Cells(sys.argv[1], 2, sys.argv[2]) as cells, CellsExecutor(cells, host, find_mpi()) as ranks:
    program = lower(msccl_default(ranks.topology, Collective("allreduce", 2)))
    while True:
        ranks.time(program, Knobs("Simple"), 1 << 20)
"""
CLEAN_S = 15.0


def remains() -> set[str]:
    """Return namespaces, mounts, shared memory and our control groups, and what cells run."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found |= {str(each.readlink()) for each in (process / "ns").iterdir()}
            words = (process / "cmdline").read_bytes()
            if b"/run/tuccl/" in words or b"/tmp/tuccl-" in words:
                found.add(words.decode("utf-8", "replace")[:200])
        except OSError:
            continue
    found |= set(Path("/proc/mounts").read_text().splitlines())
    found |= {str(group) for group in Path("/sys/fs/cgroup").glob("**/tuccl-*")}
    return found | {str(path) for path in Path("/dev/shm").iterdir()}


def print_kills(count: int) -> None:
    """Print after how many kills of a run in cells, at random moments, nothing remained."""
    draw, clean, slowest = random.Random(0), 0, 0.0
    kinds = [(name, "unshare") for name in REGIMES] + [("cross", "bwrap"), ("cross", "runc")]
    kinds.append(("cross,cpus=0.5", "unshare"))
    before = remains()
    for number in range(count):
        regime, tool = kinds[number % len(kinds)]
        run = subprocess.Popen([sys.executable, "-c", JOB, regime, tool], stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.2, 12.0 if regime == "vm" else 3.0))
        run.kill()
        run.wait()
        begin = time.monotonic()
        while (left := remains() - before) and time.monotonic() - begin < CLEAN_S:
            clear_leftovers()  # its folder: the next run does so
            time.sleep(0.1)
        slowest = max(slowest, time.monotonic() - begin)
        clean += not left
        for each in sorted(left):
            print(f"kill {number}, {regime} by {tool}: left {each}")
    print(f"{clean} of {count} kills left nothing; the slowest took {slowest:.1f} s to end all")


def main() -> None:
    """Kill runs, and print what was left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    print_kills(parser.parse_args().runs)


if __name__ == "__main__":
    publish(main, "Measured between processes of one machine")
