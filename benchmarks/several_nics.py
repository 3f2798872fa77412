"""Prints how much of machines with several NICs per GPU is used: bound, programs, NICs.

    .venv/bin/python benchmarks/several_nics.py [--size 1G]

Two hosts each. `allowed` is the bound of the same machine whose links have the rates that its class
reaches on them. `best` is the fastest program of some default methods on the full mesh, over
numbers of channels, under Simple, without the launch; `NCCL` what NCCL is modelled to choose.
`share` is the algbw as part of what is allowed; `NICs` counts those of the first host that send at
all, with the part of the time that the least and the most busy one send at the class's rate.
`merged` are machines whose NICs are merged before the hosts are joined, as aws-ofi-nccl (gpu) and
NCCL 2.27 (port) do it.
"""

from __future__ import annotations

import argparse

from msgspec.structs import replace
from report import publish

from tuccl.program import Knobs, Program
from tuccl.runtime import NCCL_VERSION, SimExecutor, time_baseline
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop
from tuccl.simulation import MachineClass
from tuccl.sketches import full_mesh
from tuccl.synth import Candidates, Collective, SynthesizedProgram, Target, bound, synthesize_best
from tuccl.topology import Topology, join, load_profile, machine_of, merge_nics
from tuccl.units import parse_size

_COLLECTIVES = ("allgather", "allreduce", "alltoall")
_CHANNELS = (1, 2, 4, 8, 16)
_METHODS = (
    *("ring", "hierarchical2", "hierarchical-rings"),
    *("packing", "pipelined", "allpairs", "flow"),
)


def at_class_rates(topology: Topology, machine: MachineClass) -> Topology:
    """Return the topology whose links have the rates that the class reaches."""
    reached = {
        "nvlink": machine.nvlink_efficiency,
        "pcie": machine.pcie_efficiency,
        "cpu": machine.cpu_efficiency,
        "network": machine.network_efficiency,
    }
    links = (
        replace(link, bandwidth=link.bandwidth * reached[link.kind]) for link in topology.links
    )
    return replace(topology, links=tuple(links))


def best_program(topology: Topology, collective: Collective, nbytes: int) -> SynthesizedProgram:
    """Return the fastest program of some of the default methods on the full mesh."""
    knobs = [Knobs("Simple", channels, 512) for channels in _CHANNELS]
    candidates = Candidates((full_mesh(topology),), knobs, _METHODS)
    target = Target(topology, collective, nbytes, machine_of(topology))
    return synthesize_best(target, candidates).programs[0]


def nic_use(
    executor: SimExecutor,
    topology: Topology,
    call: tuple[Program, Knobs, int],
    loop: StepLoop = MSCCL_LOOP,
) -> str:
    """Return how many NICs of the first host send, and how busy the least and the most are."""
    run = executor.trace(*call, loop=loop)
    result = run.trace.result
    reached = 1e3 * machine_of(topology).network_efficiency * result.time_us
    nics = set(topology.nics_of(topology.hosts[0]))
    busy = {
        resource.name.partition(">")[0]: carried / (resource.bandwidth_gbs * reached)
        for resource, carried in zip(run.network.resources, result.resource_bytes, strict=True)
        if resource.kind == "network" and resource.name.partition(">")[0] in nics and carried
    }
    return f"{len(busy)} of {len(nics)}, {min(busy.values()):.0%} to {max(busy.values()):.0%}"


def line(name: str, topology: Topology, collective: Collective, nbytes: int) -> str:
    """Return one line of the table."""
    executor = SimExecutor(topology)
    allowed = bound(at_class_rates(topology, machine_of(topology)), collective).algbw_gbs
    best = best_program(topology, collective, nbytes)
    nccl = time_baseline(executor, topology, "nccl", collective.name, nbytes)
    rates = [nbytes / us / 1e3 for us in (best.time_us, nccl.timing.us)]
    return (
        f"{name:<24}{collective.name:<11}{bound(topology, collective).algbw_gbs:>8.1f}"
        f"{allowed:>9.1f}{rates[0]:>8.1f}{rates[0] / allowed:>7.2f}  "
        f"{nic_use(executor, topology, (best.program, best.knobs, nbytes)):<24}"
        f"{best.method + ', ' + str(best.knobs.channels):<24}"
        f"{rates[1]:>8.1f}{rates[1] / allowed:>7.2f}  "
        f"{nic_use(executor, topology, (nccl.program, nccl.knobs, nbytes), nccl.loop)}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1G", help="of the whole buffer")
    nbytes = parse_size(parser.parse_args().size)
    print(f"GB/s of algbw; NCCL {NCCL_VERSION}, its own choice; all simulated but the bounds")
    print(
        f"{'machine':<24}{'collective':<11}{'bound':>8}{'allowed':>9}{'best':>8}{'share':>7}  "
        f"{'NICs':<24}{'program, channels':<24}{'NCCL':>8}{'share':>7}  NICs"
    )
    for profile in ("oci-h100", "p5", "p4de"):
        host = load_profile(profile)
        kinds = {f"2x {profile}": host}
        for level in ("gpu", "port"):
            merged = merge_nics(host, level)
            if merged not in kinds.values():
                kinds[f"2x {profile} merged, {level}"] = merged
        for name, kind in kinds.items():
            for collective in _COLLECTIVES:
                topology = join(kind, 2)
                print(
                    line(name, topology, Collective(collective, topology.ranks), nbytes), flush=True
                )


if __name__ == "__main__":
    publish(main, "Simulated")
