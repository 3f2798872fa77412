"""Prints a tuned table of the demo's machine against everything that a user could set in NCCL.

    .venv/bin/python benchmarks/against_nccl.py [-c allgather,allreduce] [-s 1K:1G:x2]

Two Azure NDv2 hosts, as `make demo` tunes them, but at every power of two. `nccl` is the choice of
NCCL 2.19, `nccl-best` the fastest of its algorithms, safe protocols and channel counts,
`msccl-default` TuCCL's configuration C0, `msccl-best` the fastest program that ships with MSCCL or
NCCL's own choice. Columns are times over the tuned one: below 1.00 the tuned one is slower; `of
bound` is the bound's time over links, with switches that only forward, over the tuned one.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from report import publish

from tuccl.eval import compare
from tuccl.runtime import SimExecutor
from tuccl.topology import join, overlay
from tuccl.topology.readers.nccl_xml import read_nccl_xml
from tuccl.tuning import TuneOptions, tune
from tuccl.units import format_bytes, parse_range

MACHINE = Path(__file__).parent.parent / "examples" / "machines" / "ndv2-topo.xml"
BASELINES = ("nccl", "nccl-best", "msccl-default", "msccl-best")


def main() -> None:
    """Tune, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--collectives", default="allgather,allreduce")
    parser.add_argument("-s", "--sizes", default="1K:1G:x2")
    args = parser.parse_args()
    topology = join(overlay(read_nccl_xml(MACHINE)[0], "ndv2"), 2)
    executor = SimExecutor(topology)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        sizes = parse_range(args.sizes)
        tune(
            topology,
            args.collectives.split(","),
            sizes,
            lambda _: executor,
            TuneOptions(),
            path=table,
        )
        rows = compare(table, lambda _: executor, baselines=BASELINES).rows
    print(f"{executor.label}, launched by mpi")
    print(
        f"{'collective':<11}{'size':>6}{'tuned us':>12}{'of bound':>9}",
        *(f"{b:>14}" for b in BASELINES),
        "chosen",
    )
    least = dict.fromkeys(BASELINES, float("inf"))
    for call in dict.fromkeys((row.collective, row.size) for row in rows):
        mine = {row.baseline: row for row in rows if (row.collective, row.size) == call}
        first = next(iter(mine.values()))
        for baseline, row in mine.items():
            least[baseline] = min(least[baseline], row.speedup)
        print(
            f"{call[0]:<11}{format_bytes(call[1]):>6}{first.tuned_us:>12.1f}"
            f"{first.fraction_of_bound:>9.0%}",
            *(f"{mine[b].speedup:>13.2f}x" for b in BASELINES),
            f"{first.chosen}; nccl-best {mine['nccl-best'].baseline_chosen}",
        )
    print("least", *(f"{baseline} {speedup:.3f}x" for baseline, speedup in least.items()))


if __name__ == "__main__":
    publish(main, "Simulated")
