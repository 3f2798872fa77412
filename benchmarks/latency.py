"""Prints how near the bound small and middle sizes come on the fabrics of published synthesizers.

    .venv/bin/python benchmarks/latency.py [-c COLLECTIVE] [--only FABRIC]

Times are simulated on a machine without overheads: links alone take time, 0.7 us an NVLink (also
through an NVSwitch, or by PCIe), 1.3 us over two NICs, 0.5 us a torus link. `ratio` is over
the bound max(alpha diameter, least alpha across the tight cut + bytes over its rate). `hops` are
messages in a row, and the fewest possible. Peers' figures are constants, as measured by others.
"""

from __future__ import annotations

import argparse
import time

from report import publish

from reference_fabrics import REFERENCE_FABRICS, with_compared_latencies
from tuccl.program import Knobs, verify
from tuccl.sketches import full_mesh
from tuccl.synth import (
    Candidates,
    Collective,
    Target,
    bound,
    searched_methods,
    synthesize_best,
)
from tuccl.synth.bounds.hops import hop_bound
from tuccl.topology import Topology, load_machine

_SIZES = (1 << 10, 1 << 20)
# TACOS v1.3.0, allgather of 1 MiB, best of up to 50 restarts and 1 to 32 chunks: time over the
# bound (2x NDv2 and the pods unwound to links between GPUs, since it knows no switches).
_TACOS = {
    "dgx1": 1.46,
    "2x-ndv2": 1.33,
    "a100": 1.00,
    "2x-a100": 1.65,
    "4x-a100": 2.00,
    "torus-4x4": 1.34,
    "torus-8x8": 2.49,
}


def line(name: str, topology: Topology, collective: Collective, nbytes: int) -> str:
    """Return one line of the table: the best method at one size."""
    begun = time.perf_counter()
    mesh = full_mesh(topology)
    best = synthesize_best(
        Target(topology, collective, nbytes, load_machine("ideal")),
        Candidates([mesh], [Knobs("Simple", 1, 512)], searched_methods(unordered=True)),
        time_limit_s=120.0,
    ).programs[0]
    seconds = time.perf_counter() - begun
    assert verify(best.program, "executor", collective.root).ok
    limit = bound(topology, collective).time_us(nbytes)
    peer = f"{_TACOS[name]:.2f}" if collective.name == "allgather" and nbytes == 1 << 20 else ""
    blocks = max(len(gpu.threadblocks) for gpu in best.program.gpus)
    return (
        f"{name:<11}{nbytes:>9}  {best.method:<14}{best.chunks_per_rank:>6}{best.time_us:>10.3f}"
        f"{limit:>10.3f}{best.time_us / limit:>7.3f}{peer:>7}"
        f"{best.hops:>6} ({hop_bound(topology, collective)}){blocks:>7}"
        f"{best.program.max_steps:>6}{seconds:>8.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--collective", default="allgather")
    parser.add_argument("--only", choices=REFERENCE_FABRICS, help="one fabric instead of seven")
    args = parser.parse_args()
    print("simulated us on a machine where links alone take time")
    print(
        f"{'fabric':<11}{'bytes':>9}  {'best method':<14}{'chunks':>6}{'us':>10}{'bound':>10}"
        f"{'ratio':>7}{'TACOS':>7}{'hops':>6} (D){'blocks':>7}{'steps':>6}{'seconds':>8}"
    )
    for name in [args.only] if args.only else REFERENCE_FABRICS:
        topology = with_compared_latencies(REFERENCE_FABRICS[name]())
        for nbytes in _SIZES:
            print(
                line(name, topology, Collective(args.collective, topology.ranks), nbytes),
                flush=True,
            )


if __name__ == "__main__":
    publish(main, "Simulated")
