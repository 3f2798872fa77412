"""Prints the cost of one evaluation on living MPI workers, against starting the workers for it.

    python benchmarks/mpi_evaluation.py [openmpi|mpich]

Prints the time to start 4 ranks and run a first call, and of each call after it, each with another
program, size or protocol: what a tuner pays per point next to the timed runs themselves.
"""

from __future__ import annotations

import sys
import time
from statistics import median

from report import publish

from tuccl.execution import Call
from tuccl.program import Knobs
from tuccl.runtime import MpiExecutor, find_mpi
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.topology import load_profile

RANKS = 4
METHODS = ("ring", "recursive", "allpairs")
SIZES = (1 << 10, 1 << 14, 1 << 18)


def calls() -> list[Call]:
    """Return one run of each method, protocol and size."""
    sketch = full_mesh(load_profile("v100x4"))
    made = [
        lower(make_schedule(Problem(Collective("allreduce", RANKS), sketch, 1, 1 << 20), method))
        for method in METHODS
    ]
    return [
        Call(program, Knobs(protocol), nbytes, timed=1)
        for program in made
        for protocol in ("Simple", "LL", "LL128")
        for nbytes in SIZES
    ]


def main() -> None:
    """Start the workers once, evaluate every call, print both costs."""
    first, *others = calls()
    mpi = find_mpi(sys.argv[1] if len(sys.argv) > 1 else None)
    with MpiExecutor(RANKS, mpi) as executor:
        begin = time.perf_counter()
        executor.run(first)
        start_ms = (time.perf_counter() - begin) * 1e3
        costs_ms = []
        for call in others:
            begin = time.perf_counter()
            executor.run(call)
            costs_ms.append((time.perf_counter() - begin) * 1e3)
        print(f"# {executor.label}")
    print(f"start {RANKS} ranks and run one call: {start_ms:.0f} ms")
    print(f"each of {len(costs_ms)} further calls:  {median(costs_ms):.1f} ms (median)")
    print(f"an evaluation costs 1/{start_ms / median(costs_ms):.0f} of a launch")


if __name__ == "__main__":
    publish(main, "Measured")
