"""Prints what the time-expanded greedy method makes of 8 to 1,024 GPUs, and how long that takes.

    .venv/bin/python benchmarks/greedy_scale.py [--gpus 8,64,512] [--collectives allgather]
    .venv/bin/python benchmarks/greedy_scale.py --latency

Hosts have 8 GPUs on an NVSwitch (300 GB/s) with a 25 GB/s NIC each. `emitted` is the algbw that the
verified program's busiest link allows, as a part of the cut bound; seconds are the processor's,
from the sketch to the plan (`plan`) and to the verified program (`all`), with two threads in the
search. TACOS v1.3.0 does allgather only, prints a time and no schedule; its seconds and shares are
those of one try, as others measured them on such pods.

Then, with `--latency` alone, 1 MiB on the seven reference fabrics next to `pipelined`: simulated
time over the bound max(alpha diameter, least alpha across the tight cut + bytes over its rate), for
the best chunking of each, on a machine where links alone take time.
"""

from __future__ import annotations

import argparse
import time

from report import publish

from reference_fabrics import REFERENCE_FABRICS, a100_pod, with_compared_latencies
from tuccl.program import Knobs, verify
from tuccl.sketches import full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import Candidates, Collective, Problem, Target, bound, lower, synthesize_best
from tuccl.synth.bounds.hops import longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.greedy.greedy import greedy, greedy_chunks
from tuccl.synth.model.problem import Options
from tuccl.topology import load_machine

_MOST_MESHED = 64
_TACOS = {
    8: "1.000 in 0.00005 s",
    16: "0.874, 0.13 s a try",
    32: "0.880 in 0.74 s",
    64: "0.90 in 7.0 s",
    128: "0.839 in 17.9 s",
    512: "0.624 in 6.0 s",
}
_TACOS_LATENCY = {
    "dgx1": 1.46,
    "2x-ndv2": 1.33,
    "a100": 1.00,
    "2x-a100": 1.65,
    "4x-a100": 2.00,
    "torus-4x4": 1.34,
    "torus-8x8": 2.49,
}


def row(ranks: int, name: str, options: Options, nbytes: int) -> str:
    """Return one line of the table of sizes of machines."""
    topology = a100_pod(ranks // 8)
    collective = Collective(name, ranks)
    begun = time.process_time()
    sketch = full_mesh(topology) if ranks <= _MOST_MESHED else rails(topology)
    chunks = greedy_chunks(collective, sketch, topology)[-1] if ranks <= 32 else 1
    schedule = greedy(Problem(collective, sketch, chunks, nbytes, topology), options)
    planned = time.process_time()
    program = lower(schedule)
    sound = verify(program, "executor", 0).ok
    done = time.process_time()
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    return (
        f"{ranks:>5} {name:<15}{chunks:>7}{planned - begun:>9.2f}{done - begun:>9.2f}"
        f"{fraction_of_bound(program, topology, collective):>9.4f}"
        f"{longest_chain(schedule):>6}{blocks:>7}"
        f"{program.max_steps:>6}  {'yes' if sound else 'NO':<9}"
        f"{_TACOS.get(ranks, '') if name == 'allgather' else ''}"
    )


def latency_row(fabric: str, name: str) -> str:
    """Return one line of the table of 1 MiB."""
    topology = with_compared_latencies(REFERENCE_FABRICS[fabric]())
    collective, nbytes = Collective(name, topology.ranks), 1 << 20
    limit = bound(topology, collective).time_us(nbytes)
    cells = []
    for method in ("greedy", "pipelined"):
        begun = time.process_time()
        best = synthesize_best(
            Target(topology, collective, nbytes, load_machine("ideal")),
            Candidates([full_mesh(topology)], [Knobs("Simple", 1, 512)], (method,)),
        ).programs[0]
        seconds = time.process_time() - begun
        blocks = max(len(gpu.threadblocks) for gpu in best.program.gpus)
        cells.append(
            f"{best.time_us / limit:>9.4f}{best.chunks_per_rank:>7}{best.hops:>5}{blocks:>7}"
            f"{seconds:>8.2f}"
        )
    peer = f"{_TACOS_LATENCY[fabric]:>8.2f}" if name == "allgather" else ""
    return f"{fabric:<11}{name:<15}" + "".join(cells) + peer


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="8,16,32,64,128,256,512")
    parser.add_argument("--collectives", default="allgather")
    parser.add_argument("--starts", type=int, default=0, help="0: the method's own number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", action="store_true", help="only 1 MiB on the seven fabrics")
    args = parser.parse_args()
    if not args.latency:
        print_pods(args)
        print()
    print_latency(args.collectives.split(","))


def print_pods(args: argparse.Namespace) -> None:
    """Print 1 GiB on hosts of 8 GPUs."""
    options = Options(args.seed, args.starts)
    print(
        f"{'GPUs':>5} {'collective':<15}{'chunks':>7}{'plan s':>9}{'all s':>9}{'emitted':>9}"
        f"{'chain':>6}{'blocks':>7}{'steps':>6}  {'verified':<9}TACOS"
    )
    for ranks in args.gpus.split(","):
        for name in args.collectives.split(","):
            print(row(int(ranks), name, options, 1 << 30), flush=True)


def print_latency(collectives: list[str]) -> None:
    """Print 1 MiB on the reference fabrics."""
    cell = f"{'over bound':>10}{'chunks':>7}{'hops':>4}{'blocks':>7}{'cpu s':>8}"
    print(f"{'':<26}{'greedy':<36}{'pipelined':<36}")
    print(f"{'fabric':<11}{'collective':<14}{cell}{cell}{'TACOS':>8}")
    for fabric in REFERENCE_FABRICS:
        for name in collectives:
            print(latency_row(fabric, name), flush=True)


if __name__ == "__main__":
    publish(main, "Simulated")
