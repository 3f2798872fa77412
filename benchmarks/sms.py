"""Prints what a table offers in time and SMs: its fastest candidates, and what --prefer sms takes.

    .venv/bin/python benchmarks/sms.py [--only MACHINE] [--budget N]

NCCL's default runs one thread block, so one SM, a channel; of a program it is the thread blocks of
the GPU that has most.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from report import publish

from tuccl.runtime import Candidate, load_table, select
from tuccl.topology import join, load_profile
from tuccl.tuning import TuneOptions, tune, tuned_sizes
from tuccl.units import format_bytes

_MACHINES = {"v100x4": 2, "ndv2": 2, "ndv4": 2, "dgx-h100": 1}
_COLLECTIVES = ("allgather", "allreduce")
_SIZES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)


def cost(candidate: Candidate) -> str:
    """Return the time in us and the SMs of ``candidate`` as two columns."""
    us = 0.0 if candidate.stats is None else candidate.stats.median_us
    return f"{us:10.1f} {candidate.sms:4d}"


def lines(profile: str, hosts: int, budget: int, folder: Path) -> list[str]:
    """Return the lines of one machine."""
    topology = join(load_profile(profile), hosts)
    out = folder / profile
    options = TuneOptions(budget=budget)
    tune(topology, _COLLECTIVES, _SIZES, "sim", options, path=out)
    table = load_table(out).lookup
    rows = []
    for collective in _COLLECTIVES:
        for nbytes in tuned_sizes(table, collective):
            choices = [select(table, collective, nbytes, prefer=p) for p in ("speed", "sms")]
            entry = choices[0].entry
            assert entry is not None
            costs = " ".join(cost(c) for c in (entry.default, *(x.candidate for x in choices)))
            name = f"{hosts}x {profile}"
            rows.append(f"{name:12} {collective:10} {format_bytes(nbytes):>5} {costs}")
    return rows


def main() -> None:
    """Print a line for each machine, collective and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=_MACHINES)
    parser.add_argument("--budget", type=int, default=100)
    args = parser.parse_args()
    head = "".join(f"{name:>11} {'SMs':>4}" for name in ("default us", "fastest us", "sms us"))
    print(f"{'machine':12} {'collective':10} {'size':>5}{head}")
    with tempfile.TemporaryDirectory() as folder:
        for profile, hosts in _MACHINES.items():
            if args.only in (None, profile):
                print("\n".join(lines(profile, hosts, args.budget, Path(folder))), flush=True)


if __name__ == "__main__":
    publish(main, "Simulated")
