"""Prints how long a verified program takes to make for 8 to 1,024 GPUs, and how good it is.

    .venv/bin/python benchmarks/synthesis_scale.py [--gpus 8,64] [--collectives allgather]

Hosts have 8 GPUs on an NVSwitch (300 GB/s) with a 25 GB/s NIC each; 64 is also an 8 x 8 torus. Each
row is made in a process of its own, on one thread. `seconds` are those from the machine to the
verified program (sketch, choice of chunks, schedule, lowering, verification), of the processor and
by the clock; `memory` is the most the process held. `emitted` is the algbw that the program's
busiest link allows, as a part of the cut bound. The goal is 0.3, 1, 5 and 15 s for 8, 16, 32 and 64
GPUs at 0.99, 60 s for 256 at 0.95, 300 s for 1,024 at 0.90, both under 8 GiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

from report import publish

from reference_fabrics import a100_pod, torus
from tuccl.errors import Infeasible
from tuccl.program import verify
from tuccl.sketches import full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import METHODS, Collective, Problem, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.topology import Topology

_ASKED = {8: (0.3, 0.99), 16: (1, 0.99), 32: (5, 0.99), 64: (15, 0.99), 256: (60, 0.95)}
_ASKED_OF_MOST = (300, 0.9)
_MOST_MESHED = 128
_METHOD_OF = {"alltoall": ("flow", "hierarchical2")}
# ForestColl 3c13aee (trees only, no program) and TACOS v1.3.0 (a time only), on 2 cores.
_PEERS = {
    8: "ForestColl 0.1 s; SCCL 19 s",
    16: "ForestColl 0.7 to 2.7 s",
    32: "ForestColl 19 s",
    64: "ForestColl 59 s; TACOS 7 s at 0.90",
    256: "TACOS 18 s at 0.84 for 128 GPUs",
    1024: "TACOS 6 s at 0.62 for 512 GPUs",
}
_HEAD = (
    f"{'machine':<12}{'collective':<16}{'method':<14}{'cpu s':>8}{'clock s':>9}{'target':>7}"
    f"{'memory GB':>11}{'emitted':>9}{'target':>7}{'blocks':>8}{'steps':>7}  verified"
)


def machine(name: str) -> Topology:
    """Return the machine of a row's name."""
    return torus(8, 8) if name == "torus-8x8" else a100_pod(int(name) // 8)


def row(name: str, collective_name: str) -> str:
    """Return one line of the table."""
    topology = machine(name)
    seconds, share = _ASKED.get(topology.ranks, _ASKED_OF_MOST)
    collective = Collective(collective_name, topology.ranks)
    method = _METHOD_OF.get(collective_name, ("packing",))[topology.ranks > 64 and -1]
    begun, clock = time.process_time(), time.perf_counter()
    sketch = full_mesh(topology) if topology.ranks <= _MOST_MESHED else rails(topology)
    choose = METHODS[method].choose_chunk_counts
    chunks = choose(collective, sketch, topology, 8)[0] if choose else 1
    try:
        program = lower(
            make_schedule(Problem(collective, sketch, chunks, 1 << 30, topology), method)
        )
    except Infeasible as why:
        return f"{name:<12}{collective_name:<16}{method:<14}refused: {why}"
    sound = verify(program, "executor", 0).ok
    took, clocked = time.process_time() - begun, time.perf_counter() - clock
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    return (
        f"{name:<12}{collective_name:<16}{method:<14}{took:>8.2f}{clocked:>9.2f}{seconds:>7g}"
        f"{memory:>11.2f}"
        f"{fraction_of_bound(program, topology, collective):>9.4f}{share:>7g}{blocks:>8}"
        f"{program.max_steps:>7}  {'yes' if sound else 'NO'}"
    )


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="8,16,32,64,torus-8x8,256,1024")
    parser.add_argument("--collectives", default="allgather,reduce-scatter,allreduce")
    args = parser.parse_args()
    print(_HEAD)
    for name in args.gpus.split(","):
        for collective in args.collectives.split(","):
            with multiprocessing.get_context("spawn").Pool(1) as process:
                print(process.apply(row, (name, collective)), flush=True)
        if name.isdigit() and int(name) in _PEERS:
            print(f"{'':<12}peers' allgather: {_PEERS[int(name)]}")


if __name__ == "__main__":
    publish(main, "Simulated; seconds are measured")
