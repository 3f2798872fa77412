"""Prints how much of machines with several NICs per GPU is used: bound, programs, NICs.

    .venv/bin/python benchmarks/several_nics.py [--size 1G]

Two hosts each. `allowed` is the bound of the same machine whose links have the rates that its class
reaches on them. `best` is the fastest program of the default methods on the full mesh, over some
numbers of channels, under Simple; `NCCL` what NCCL 2.19 is modelled to choose. `share` is the algbw
as part of what is allowed; `NICs` counts those of the first host that send at all, with the part of
the time that the least and the most busy one are busy at the class's rate. `merged` are machines
whose NICs are merged before the hosts are joined, as aws-ofi-nccl (gpu) and NCCL 2.27 (port) do it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from msgspec.structs import replace
from report import publish

from tuccl._native import Knobs, MachineClass, Program
from tuccl.errors import Infeasible
from tuccl.runtime import NCCL_VERSION, SimExecutor, time_baseline
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, searched_methods, synthesize
from tuccl.topology import Topology, join, load_profile, machine_of, merge_nics
from tuccl.units import parse_size

_COLLECTIVES = ("allgather", "allreduce", "alltoall")
_CHANNELS = (1, 2, 4, 8, 16)


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


def programs(topology: Topology, collective: Collective, nbytes: int) -> Iterator[Program]:
    """Yield the programs of the default methods, each by several numbers of channels."""
    mesh = full_mesh(topology)
    for method in searched_methods():
        try:
            schedule = synthesize(Problem(collective, mesh, 1, nbytes, topology), method)
        except Infeasible:
            continue
        for channels in _CHANNELS:
            try:
                yield lower(schedule, instances=channels)
            except Infeasible:
                break


def nic_use(executor: SimExecutor, topology: Topology, program: Program, nbytes: int) -> str:
    """Return how many NICs of the first host send, and how busy the least and the most are."""
    run = executor.trace(program, Knobs("Simple", program.nchannels, 512), nbytes)
    nics = set(topology.nics_of(topology.hosts[0]))
    busy = {
        resource.name.partition(">")[0]: carried
        / (
            resource.bandwidth_gbs
            * 1e3
            * machine_of(topology).network_efficiency
            * run.result.time_us
        )
        for resource, carried in zip(run.network.resources, run.result.resource_bytes, strict=True)
        if resource.kind == "network" and resource.name.partition(">")[0] in nics and carried
    }
    return f"{len(busy)} of {len(nics)}, {min(busy.values()):.0%} to {max(busy.values()):.0%}"


def line(name: str, topology: Topology, collective: Collective, nbytes: int) -> str:
    """Return one line of the table."""
    executor = SimExecutor(topology)
    allowed = bound(at_class_rates(topology, machine_of(topology)), collective).algbw_gbs
    timed = []
    for program in programs(topology, collective, nbytes):
        try:
            us = executor.time(program, Knobs("Simple", program.nchannels, 512), nbytes).us
        except Infeasible:
            continue
        timed.append((us, program.name, program))
    us, made, best = min(timed, key=lambda each: each[:2])
    nccl = time_baseline(executor, topology, "nccl", collective.name, nbytes)
    rates = [nbytes / each / 1e3 for each in (us, nccl.timing.us)]
    return (
        f"{name:<22}{collective.name:<11}{bound(topology, collective).algbw_gbs:>8.1f}"
        f"{allowed:>9.1f}{rates[0]:>8.1f}{rates[0] / allowed:>7.2f}  "
        f"{nic_use(executor, topology, best, nbytes):<24}{made:<34}"
        f"{rates[1]:>8.1f}{rates[1] / allowed:>7.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1G", help="of the whole buffer")
    nbytes = parse_size(parser.parse_args().size)
    print(f"GB/s of algbw; NCCL {NCCL_VERSION}, its own choice; all simulated but the bounds")
    print(
        f"{'machine':<22}{'collective':<11}{'bound':>8}{'allowed':>9}{'best':>8}{'share':>7}  "
        f"{'NICs':<24}{'program':<34}{'NCCL':>8}{'share':>7}"
    )
    for profile in ("oci-h100", "p5", "p4de"):
        host = load_profile(profile)
        kinds = {f"2x {profile}": host}
        for level in ("gpu", "port"):
            merged = merge_nics(host, level)
            if merged is not host:
                kinds[f"2x {profile} merged, {level}"] = merged
        for name, kind in kinds.items():
            for collective in _COLLECTIVES:
                topology = join(kind, 2)
                print(
                    line(name, topology, Collective(collective, topology.ranks), nbytes), flush=True
                )


if __name__ == "__main__":
    publish(main, "Simulated")
