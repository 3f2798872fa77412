"""Stage 1: each GPU is bound to the NIC closest to it on PCIe."""

from __future__ import annotations

from tuccl.errors import InputError
from tuccl.sketches.nic_paths import NicPaths
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.nics import spread_evenly


def bind(topology: Topology) -> dict[int, str]:
    """Return the NIC id that each rank is bound to; empty for one host without NICs.

    The NIC is one of `closest_nics`; where several are equally close, the GPUs of the host
    spread over them as evenly as closeness allows, in the order of ranks and of NICs. The NICs that
    a GPU's channels take in turn are one (`merge_nics`).

    Raises:
        InputError: a host among several has no NIC, or a GPU no path to one.

    Notes:
        TuCCL III.B, stage 1. The paper binds to "the NIC sharing its PCIe root complex" and says
        nothing of ties; NCCL spreads GPUs over equally close NICs as well.
    """
    bindings: dict[int, str] = {}
    topology = merge_nics(topology)
    for host in topology.hosts:
        if not topology.nics_of(host) and len(topology.hosts) == 1:
            return {}
        if not topology.nics_of(host):
            raise InputError(
                f"topology {topology.name[:60]!r}: host {host[:60]!r} has no NIC: add one, or "
                "keep the GPUs of one host only"
            )
        bindings.update(
            spread_evenly({r: closest_nics(topology, r) for r in topology.gpus_of(host)})
        )
    return dict(sorted(bindings.items()))


def closest_nics(topology: Topology, rank: int) -> tuple[str, ...]:
    """Return the ids of the NICs of the host that are closest to `rank`, all equally close.

    Closest means fewest CPUs on the path (a common PCIe switch before a common root complex
    before another socket), then fewest hops. NICs without a network link do not count where the
    topology has several hosts.

    Raises:
        InputError: the GPU has no path to such a NIC.
    """
    topology = merge_nics(topology)
    nic_paths = topology.derived(NicPaths)
    paths = nic_paths.paths_to_nics(topology.gpus[rank].id)
    distances = {
        nic: nic_paths.closeness(paths[nic])
        for nic in topology.nics_of(topology.host_of(rank))
        if nic in paths and (len(topology.hosts) == 1 or nic_paths.is_on_network(nic))
    }
    if not distances:
        raise InputError(
            f"topology {topology.name[:60]!r}: GPU {topology.gpus[rank].id[:60]!r} has no PCIe "
            "path to a NIC of its host that is on the network: add the links"
        )
    least = min(distances.values())
    return tuple(nic for nic, distance in distances.items() if distance == least)
