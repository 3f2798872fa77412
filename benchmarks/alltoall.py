"""Prints what `flow` makes of all-to-all on the fabrics of published synthesizers.

    .venv/bin/python benchmarks/alltoall.py [--only FABRIC] [--fuzz N]

`emitted` is the algbw that the busiest link of the verified program allows, as a part of the bound;
`at 8 GiB` the simulated algbw on a machine without overheads, likewise.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

from report import publish

from reference_fabrics import REFERENCE_FABRICS, host_line, random_fabric
from tuccl.errors import Infeasible
from tuccl.program import Knobs, verify
from tuccl.simulation import simulate
from tuccl.sketches import full_mesh
from tuccl.synth import METHODS, Collective, Problem, bound, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.topology import Topology, load_machine, network

# Others than `flow`, with the chunks that they are tried with.
_OTHERS = (("allpairs", 1), ("hierarchical2", 1), ("greedy", 1), ("greedy", 4))
_MOST_GREEDY = 1100  # pairs of ranks times chunks; above, greedy takes minutes


def line(name: str, topology: Topology, method: str, chunks: int | None) -> str:
    """Return one line of the table.

    Raises:
        Infeasible: the method does not serve the fabric.
    """
    collective, mesh = Collective("alltoall", topology.ranks), full_mesh(topology)
    begun = time.perf_counter()
    if chunks is None:
        choose = METHODS[method].choose_chunk_counts
        assert choose is not None, "flow knows how many chunks it wants"
        [chunks] = choose(collective, mesh, topology, 8)
    program = lower(make_schedule(Problem(collective, mesh, chunks, 1 << 30, topology), method))
    seconds = time.perf_counter() - begun
    report = verify(program, "executor", 0)
    if not report.ok:
        sys.exit(f"{topology.name}: {report.errors[0].message}")
    nbytes = -(-(8 << 30) // program.nchunks) * program.nchunks
    run = simulate(
        program, Knobs("Simple", 1, 512), network(topology), load_machine("ideal"), nbytes
    )
    limit = bound(topology, collective).algbw_gbs
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    return (
        f"{name:<11}{method:<15}{limit:>9.3f}"
        f"{fraction_of_bound(program, topology, collective):>9.4f}"
        f"{nbytes / run.time_us / 1e3 / limit:>10.3f}{blocks:>8}{program.max_steps:>7}"
        f"{chunks:>8}{seconds:>9.2f}"
    )


def fabrics(names: list[str]) -> None:
    """Print the reference fabrics, and hosts cabled in a line."""
    print("bounds in GB/s; at 8 GiB: simulated")
    print(
        f"{'fabric':<11}{'method':<15}{'bound':>9}{'emitted':>9}{'at 8 GiB':>10}{'blocks':>8}"
        f"{'steps':>7}{'chunks':>8}{'seconds':>9}"
    )
    for name in names:
        topology = host_line() if name == "host line" else REFERENCE_FABRICS[name]()
        print(line(name, topology, "flow", None), flush=True)
        for method, chunks in _OTHERS:
            if method == "greedy" and topology.ranks**2 * chunks > _MOST_GREEDY:
                continue
            try:
                print(line("", topology, method, chunks), flush=True)
            except Infeasible as why:
                print(f"{'':<11}{method:<15} refused: {str(why)[:70]}")


def fuzz(count: int) -> None:
    """Print the parts of the bound that random fabrics get."""
    shares = []
    for seed in range(count):
        topology = random_fabric(random.Random(seed))
        collective, mesh = Collective("alltoall", topology.ranks), full_mesh(topology)
        choose = METHODS["flow"].choose_chunk_counts
        assert choose is not None, "flow knows how many chunks it wants"
        try:
            [chunks] = choose(collective, mesh, topology, 8)
            program = lower(
                make_schedule(Problem(collective, mesh, chunks, 1 << 30, topology), "flow")
            )
        except Infeasible:
            continue
        shares.append(fraction_of_bound(program, topology, collective))
    tenth, *_ = statistics.quantiles(shares, n=10)
    print(
        f"{len(shares)} of {count} random fabrics served; part of the bound: "
        f"median {statistics.median(shares):.4f}, tenth {tenth:.4f}, least {min(shares):.4f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=REFERENCE_FABRICS, help="one fabric instead of all")
    parser.add_argument("--fuzz", type=int, metavar="N", help="N random fabrics instead")
    args = parser.parse_args()
    if args.fuzz:
        fuzz(args.fuzz)
    else:
        fabrics([args.only] if args.only else [*REFERENCE_FABRICS, "host line"])


if __name__ == "__main__":
    publish(main, "Simulated")
