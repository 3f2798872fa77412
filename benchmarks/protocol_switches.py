"""Print where the simulator's fastest protocol changes, next to where NCCL itself changes.

    .venv/bin/python benchmarks/protocol_switches.py [--nccl-version V]

For each profile and collective, with rings alone: the sizes from which NCCL picks a faster
protocol, by its own cost model, and those from which the simulator has it faster (GPUs' time,
channels and threads as NCCL picks them for that protocol). The mark is a factor of two.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

from report import publish

from tuccl.errors import TucclError
from tuccl.runtime import NCCL_VERSION
from tuccl.runtime.baseline import nccl_call
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.simulation import simulate
from tuccl.synth import Collective
from tuccl.topology import Topology, join, load_profile, machine_of, network

MACHINES = (("dgx-1v", 1), ("ndv4", 1), ("ndv5", 1), ("ndv2", 2), ("dgx-a100", 2), ("ndv5", 2))
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter")
PROTOCOLS = ("LL", "LL128", "Simple")
SIZES = [int(1024 * 2 ** (step / 2)) for step in range(41)]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nccl-version", default=NCCL_VERSION)
    version = parser.parse_args().nccl_version
    factors = []
    for profile, hosts in MACHINES:
        host = load_profile(profile)
        topology = join(host, hosts, "rail") if hosts > 1 else host
        for collective in COLLECTIVES:
            factors += compared(topology, collective, version)
    within = sum(1 for factor in factors if factor <= 2)
    print(f"within a factor of two: {within} of {len(factors)} switch points")


def compared(topology: Topology, collective: str, version: str) -> list[float]:
    """Print the switches of one collective; return the factors between NCCL's and simulated."""
    choose, times = simulated(topology, collective, version)
    names = [p for p in PROTOCOLS if p in times(SIZES[0])]
    factors = []
    for slow, fast in pairwise(names):
        own = first(lambda n, fast=fast: names.index(choose(n)) >= names.index(fast))
        ours = first(lambda n, slow=slow, fast=fast: times(n)[fast] <= times(n)[slow])
        if own is None or ours is None:
            print(f"{topology.name:12} {collective:15} {slow}>{fast}: NCCL {own}, simulated {ours}")
            continue
        factor = max(own / ours, ours / own)
        factors.append(factor)
        print(
            f"{topology.name:12} {collective:15} {slow:>5} > {fast:6} NCCL from {own:>9}  "
            f"simulated from {ours:>9}  factor {factor:.1f}"
        )
    return factors


def simulated(
    topology: Topology, collective: str, version: str
) -> tuple[Callable[[int], str], Callable[[int], dict[str, float]]]:
    """Return NCCL's protocol by size, and the simulated time (us) of each by size."""
    links, machine = network(topology), machine_of(topology)
    call = Collective(collective, topology.ranks)

    def choose(nbytes: int) -> str:
        return nccl_choice(topology, collective, nbytes, version, algorithm="Ring").protocol

    @cache
    def one(protocol: str, nbytes: int) -> float:
        choice = nccl_choice(
            topology, collective, nbytes, version, algorithm="Ring", protocol=protocol
        )
        ran = nccl_call(topology, call, nbytes, choice)
        whole = -(-nbytes // ran.program.nchunks) * ran.program.nchunks
        return simulate(
            ran.program,
            ran.knobs,
            links,
            machine,
            whole,
            pass_bytes=ran.loop.pass_bytes,
            transfer_slots=ran.loop.transfer_slots,
        ).gpu_us

    def times(nbytes: int) -> dict[str, float]:
        out = {}
        for protocol in PROTOCOLS:
            try:
                out[protocol] = one(protocol, nbytes)
            except TucclError:
                continue
        return out

    return choose, times


def first(holds: Callable[[int], bool]) -> int | None:
    """Return the first of the sizes from which `holds` is true for good."""
    last = next((n for n in reversed(SIZES) if not holds(n)), 0)
    later = [n for n in SIZES if n > last]
    return later[0] if later and not math.isinf(later[0]) else None


if __name__ == "__main__":
    publish(main, "Simulated")
