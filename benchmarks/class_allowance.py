"""The rate at which a machine class could carry the bound, and the best that knobs reach of it.

The allowance is the bound on the same fabric whose links give what the class's software reaches of
them (nominal rate times the class's efficiency, for protocol Simple). Where one link joins two
GPUs, it gives no more than the 32 channels of a program move, a thread block each, at the rate of
the step that receives (and adds up, where the collective reduces). It is not above what all
multiprocessors move either: each GPU receives and passes on (n - 1) / n of the array on average,
twice that in an allreduce, by fused steps at best. What a transfer costs, the time until trees are
filled, and how flows share links are not taken off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from tuccl.errors import Infeasible
from tuccl.program import Knobs, Program
from tuccl.simulation import MachineClass, simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.packing.packing import packing_chunk_counts
from tuccl.topology import Link, Topology, machine_of, network

__all__ = ["allowed_gbs", "share_of_allowance"]

_CHANNELS = 32
_COPIES = (1, 2, 3, 4, 6, 8, 12, 16)
_BUFFERS = (256 << 10, 1 << 20, 2 << 20, 4 << 20)
_GIB = 1 << 30


def allowed_gbs(topology: Topology, collective: Collective, machine: MachineClass) -> float:
    """Return the algbw that the class allows; see above."""
    costs = machine.simple
    reduces = collective.reducing
    block_gbs = min(costs.send_gbs, costs.rrc_gbs if reduces else costs.recv_gbs)
    gpus = {gpu.id for gpu in topology.gpus}

    def rate(link: Link) -> float:
        gbs = link.bandwidth * _efficiency(machine, link.kind)
        return min(gbs, _CHANNELS * block_gbs) if {link.src, link.dst} <= gpus else gbs

    links = tuple(replace(link, bandwidth=rate(link)) for link in topology.links)
    limit = bound(replace(topology, links=links), collective).algbw_gbs
    moved = (collective.ranks - 1) / collective.ranks * (2 if collective.name == "allreduce" else 1)
    fused_gbs = max(costs.rrcs_gbs, costs.rrs_gbs) if reduces else costs.rcs_gbs
    return min(limit, (machine.sm_count or math.inf) * fused_gbs / moved)


def _efficiency(machine: MachineClass, kind: str) -> float:
    kinds = {
        "pcie": machine.pcie_efficiency,
        "cpu": machine.cpu_efficiency,
        "network": machine.network_efficiency,
    }
    return kinds.get(kind, machine.nvlink_efficiency * machine.simple.link_efficiency)


def share_of_allowance(topology: Topology, collective: Collective) -> float:
    """Return the simulated algbw of `packing` at 1 GiB over the allowance, by the best knobs.

    The knobs are those of a user's search: packing's chunks, channels and buffer bytes, under
    Simple with all its threads.
    """
    machine = machine_of(topology)
    links = network(topology)
    best = 0.0
    for program, copies in _programs(topology, collective):
        if machine.sm_count and program.threadblocks > machine.sm_count:
            continue
        nbytes = -(-_GIB // program.nchunks) * program.nchunks
        for buffer in _BUFFERS:
            run = simulate(program, Knobs("Simple", copies, 512, buffer), links, machine, nbytes)
            best = max(best, nbytes / run.time_us / 1e3)
    return best / allowed_gbs(topology, collective, machine)


def _programs(topology: Topology, collective: Collective) -> Iterator[tuple[Program, int]]:
    mesh = full_mesh(topology)
    for chunks in packing_chunk_counts(collective, mesh, topology):
        schedule = make_schedule(Problem(collective, mesh, chunks, _GIB, topology), "packing")
        for copies in _COPIES:
            try:
                yield lower(schedule, instances=copies), copies
            except Infeasible:
                break
