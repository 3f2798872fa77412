"""Channels of NCCL's rings, trees and NVLS on a topology, and the rates that it believes."""

from __future__ import annotations

import math
import re
import weakref
from dataclasses import dataclass, replace
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.runtime.nccl.constants import (
    PCI_GBS,
    Arch,
    TuningConstants,
    tuning_constants,
)
from tuccl.runtime.nccl.search import Channels, HostLinks, rings, trees
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_group
from tuccl.synth.baseline.nccl_nvls import MOST_HEADS
from tuccl.topology import Path, Topology, path, relay_path

_CAPABILITY = {"P100": 60, "V100": 70, "T4": 75, "A100": 80, "A800": 80, "A10": 86}
_CAPABILITY |= {"H100": 90, "H200": 90, "H20": 90, "H800": 90, "GH200": 90}
_CAPABILITY |= {"B100": 100, "B200": 100}
_CAPABILITY |= {"RTX 2080": 75, "RTX 3090": 86, "A40": 86, "RTX 4090": 89, "L40": 89}
_LINK_GBS = {100: 50.0}  # an NVLink's nominal rate per direction by least capability; else 25
_NVLINK_GBS = 25.0
# What PCIe x16 carries to NCCL, by the least nominal rate: gen5, gen4, gen3.
_PCI_CLASSES = ((44.0, 4 * PCI_GBS), (22.0, 2 * PCI_GBS), (11.0, PCI_GBS))
_CPU_GBS = {"amd": 16.0, "arm": 6.0}  # between sockets, src/graph/topo.h; Intel by version
_MAX_CHANNELS_2_4 = 16


@dataclass(frozen=True)
class NcclGraph:
    """Rings and trees as NCCL's tuning model sees them.

    Attributes:
        ranks: GPUs.
        nodes: Hosts; the trays of an NVLink domain are one, as from NCCL 2.20 on (MNNVL).
        ring: Rings that the search finds.
        tree: Trees, as many.
        launch_channels: Channels of a launch: NCCL runs each ring twice.
        peer_channels: Channels that a message to one peer may use.
        nvlink: Whether NVLink connects the GPUs of a node.
        same_channels: Whether all rings visit the GPUs in one order.
        near_nic: Whether no CPU stands between GPUs and NICs.
        uniform: Whether all GPUs are of one model.
        cpu: Vendor, ``amd`` or ``intel``.
        capability: Compute capability of the GPUs times ten.
        arch: Row of NCCL's tables.
        nvls_heads: Heads of NVLS; 0 where the switch does not reduce.
        nvls_gbs: Rate of a head inside a node.
        nvls_net_gbs: Rate of a head between nodes.
    """

    ranks: int
    nodes: int
    ring: Channels
    tree: Channels
    launch_channels: int
    peer_channels: int
    nvlink: bool
    same_channels: bool
    near_nic: bool
    uniform: bool
    cpu: str
    capability: int
    arch: Arch
    nvls_heads: int = 0
    nvls_gbs: float = 0.0
    nvls_net_gbs: float = 0.0

    @property
    def bandwidth_gbs(self) -> float:
        """Return the rate of all rings together."""
        return self.ring.bandwidth_gbs(self.nodes)

    @property
    def ranks_per_node(self) -> float:
        """Return the ranks of a node, on average."""
        return self.ranks / self.nodes


def nccl_graph(topology: Topology, version: str = NCCL_VERSION) -> NcclGraph:
    """Return what the search of NCCL ``version`` finds, cached per topology.

    Raises:
        InputError: the version's constants are not known.
    """
    group = nccl_group(version)
    if id(topology) not in _GRAPHS:
        _GRAPHS[id(topology)] = {}
        weakref.finalize(topology, _GRAPHS.pop, id(topology), None)
    graphs = _GRAPHS[id(topology)]
    if group not in graphs:
        graphs[group] = _estimate(topology, group, tuning_constants()[group])
    return graphs[group]


_GRAPHS: dict[int, dict[str, NcclGraph]] = {}


def _estimate(topology: Topology, group: str, constants: TuningConstants) -> NcclGraph:
    capabilities = {_capability(gpu.model or "") for gpu in topology.gpus}
    capability, cpu = min(capabilities), _cpu_vendor(topology)
    overhead = constants.search.root_overhead if cpu == "intel" else 1.0
    nics = _nics(topology, overhead)
    sockets_gbs = _CPU_GBS.get(cpu, constants.search.sockets_gbs)
    links = _host_links(topology, capability, constants, nics, sockets_gbs, overhead)
    search, hosts = constants.search, len(topology.hosts)
    if group == "2.4":
        ring, comm_channels = _rings_2_4(links)
        tree = ring
    else:
        ring = rings(search, links)
        tree = trees(search, links, ring.count)
        comm_channels = _comm_channels(constants, ring, capability, hosts)
    nvls = _nvls(topology, constants, links)
    return NcclGraph(
        ranks=topology.ranks,
        nodes=hosts,
        ring=ring,
        tree=tree,
        launch_channels=comm_channels,
        peer_channels=_peer_channels(topology, constants, links, comm_channels),
        nvlink=links.nvlink,
        same_channels=ring.count == 1
        or links.gpus == 1
        or (len(links.nics) < 2 and (links.gpus == 2 or not links.pairs)),
        near_nic=links.near,
        uniform=len(capabilities) == 1,
        cpu=cpu,
        capability=capability,
        arch=_arch(constants, capability),
        nvls_heads=nvls[0],
        nvls_gbs=nvls[1],
        nvls_net_gbs=nvls[2],
    )


def _comm_channels(constants: TuningConstants, ring: Channels, capability: int, nodes: int) -> int:
    """Channels of a launch: each ring twice, few fast ones four times (src/graph/connect.cc)."""
    channels = min(2 * ring.count, constants.search.max_channels)
    fast = constants.search.doubles_hopper and capability >= 90 and nodes > 1
    return 2 * channels if fast and ring.intra_gbs > 45 and channels < 16 else channels


def _rings_2_4(links: HostLinks) -> tuple[Channels, int]:
    """NCCL 2.4: a ring for each NVLink of a GPU, or each NIC, twice with NVLink, else one."""
    count = round(links.total_gbs / links.link_gbs) if links.nvlink else 1
    count = len(links.nics) or count
    gbs = min(links.nics, default=links.total_gbs / count)
    return Channels(count, gbs, gbs), min(count * (2 if links.nvlink else 1), _MAX_CHANNELS_2_4)


def _arch(constants: TuningConstants, capability: int) -> Arch:
    """Return the row of the tables, the oldest for GPUs that the version does not know."""
    if constants.arches_exact:
        return dict(constants.arches).get(capability, "volta")
    return next(arch for least, arch in constants.arches if capability >= least)


def _capability(model: str) -> int:
    """Compute capability of a GPU model times ten; 0 for one that NCCL's tables do not know."""
    if named := re.match(r"sm_(\d+)", model):
        return int(named[1])
    names = [name for name in _CAPABILITY if name in model.upper()]
    return _CAPABILITY[max(names, key=len)] if names else 0


def _cpu_vendor(topology: Topology) -> str:
    models = " ".join((n.model or "").upper() for n in topology.nodes if n.kind == "cpu")
    if "AMD" in models or "EPYC" in models:
        return "amd"
    return "arm" if any(name in models for name in ("ARM", "GRACE", "NEOVERSE")) else "intel"


def _host_links(
    topology: Topology,
    capability: int,
    constants: TuningConstants,
    nics: list[_Nic],
    sockets_gbs: float,
    overhead: float,
) -> HostLinks:
    """Return the links of the largest host, at the rates that NCCL believes."""
    ranks = max((topology.gpus_of(host) for host in topology.hosts), key=len)
    link = next(gbs for least, gbs in constants.search.nvlink_gbs if capability >= least)
    links = HostLinks(
        gpus=len(ranks),
        nvlink=True,
        capability=capability,
        link_gbs=link,
        total_gbs=0.0,
        nics=tuple(nic.gbs for nic in nics),
        gpus_at_nic=min((len(nic.ranks) for nic in nics), default=0),
        bus_gbs=max((nic.bus_gbs for nic in nics), default=0.0),
        near=not any(nic.by_cpu for nic in nics),
    )
    if len(ranks) > 1 and not _nvlink_connected(topology, ranks):
        routes = (path(topology, a, b) for a in ranks for b in ranks if a != b)
        slowest = min(_pci_path_gbs(topology, route, sockets_gbs, overhead) for route in routes)
        return replace(links, nvlink=False, total_gbs=slowest)
    nominal = _LINK_GBS.get(capability, _NVLINK_GBS)
    total = min(_nvlink_gbs(topology, topology.gpus[rank].id) for rank in ranks) / nominal * link
    if len(ranks) == 1 or any(node.kind == "nvswitch" for node in topology.nodes):
        return replace(links, total_gbs=total)
    widths = {
        (a, b): path(topology, a, b).bandwidth / nominal * link
        for a in ranks
        for b in ranks
        if _nvlink_pair(topology, a, b)
    }
    heads = (widths.get((nic.ranks[0], nic.ranks[1]), 0.0) for nic in nics if len(nic.ranks) > 1)
    return replace(
        links,
        total_gbs=total,
        pairs=tuple(tuple(gbs for (a, _), gbs in widths.items() if a == rank) for rank in ranks),
        head_gbs=min(heads, default=0.0),
    )


def _nvlink_pair(topology: Topology, a: int, b: int) -> bool:
    """Return whether NVLink joins two GPUs; in a torus some are joined through others alone."""
    try:
        return a != b and _is_nvlink(path(topology, a, b))
    except InputError:
        return False


def _pci_path_gbs(topology: Topology, route: Path, sockets_gbs: float, overhead: float) -> float:
    """Return NCCL's belief of the GB/s between two GPUs over PCIe and between sockets."""
    rates = [sockets_gbs if hop.kind == "cpu" else _pci_gbs(hop.bandwidth) for hop in route.hops]
    cpus = sum(1 for hop in route.hops if topology.node(hop.src).kind == "cpu")
    return min(rates) / (overhead if cpus == 1 else 1.0)


def _pci_gbs(nominal: float) -> float:
    return next((gbs for least, gbs in _PCI_CLASSES if nominal >= least), nominal)


def _nvlink_gbs(topology: Topology, gpu: str) -> float:
    """Nominal NVLink rate out of a GPU."""
    return sum(
        link.bandwidth
        for link in topology.links
        if link.kind in ("nvlink", "xgmi") and any(src == gpu for src, _ in link.directions())
    )


def _nvlink_connected(topology: Topology, ranks: tuple[int, ...]) -> bool:
    """Return whether every GPU reaches every other over GPUs connected by NVLink alone."""
    seen, queue = {ranks[0]}, [ranks[0]]
    for rank in queue:
        for other in ranks:
            if other not in seen and _nvlink_pair(topology, rank, other):
                seen.add(other)
                queue.append(other)
    return len(seen) == len(ranks)


def _is_nvlink(p: Path) -> bool:
    return all(hop.kind in ("nvlink", "xgmi") for hop in p.hops)


def _peer_channels(
    topology: Topology, constants: TuningConstants, links: HostLinks, comm_channels: int
) -> int:
    """Channels of a message to one peer: two a link of NVLink, or few through the network."""
    if len(topology.hosts) > 1:
        return min(constants.p2p_net_channels, comm_channels)
    slowest = min((min(row) for row in links.pairs if row), default=links.total_gbs)
    count = int(slowest / links.link_gbs + 1e-9) if links.nvlink else 1
    far = any(len(row) < links.gpus - 1 for row in links.pairs)
    return min(2 if far else 2 * max(count, 1), comm_channels)


def _nvls(
    topology: Topology, constants: TuningConstants, links: HostLinks
) -> tuple[int, float, float]:
    """Heads of NVLS, and the rate of each inside a node and between nodes; no heads where none.

    A head takes its own share twice (src/graph/search.cc, ncclTopoSearchTryNvls).
    """
    switched = any(node.kind == "nvswitch" for node in topology.nodes)
    nvls = constants.nvls
    if nvls is None or not switched or links.capability < 90 or links.gpus < 3:
        return 0, 0.0, 0.0
    if links.nics and nvls.tree_net_us is None:
        return 0, 0.0, 0.0
    heads = min(links.gpus, len(links.nics) or links.gpus, MOST_HEADS)
    speeds = links.speeds(constants.search)
    fits = [gbs for gbs in speeds if (heads + 1) * gbs <= links.total_gbs]
    if not fits:
        return 0, 0.0, 0.0
    # The second pass raises the rate between nodes until it is twice that inside.
    most = min((gbs for gbs in speeds if gbs >= 2 * fits[0]), default=math.inf)
    across = max(
        (gbs for gbs in speeds if links.nics and gbs <= min(most, *links.nics)), default=fits[0]
    )
    if nvls.gather_share is None:  # the second pass came with 2.19
        across = min(fits[0], across)
    if nvls.efficiency is not None and not links.nics:
        across = speeds[0]  # what is between nodes is tried faster until it bounds nothing
    return heads, min(fits[0], across) if links.nics else fits[0], across


class _Nic(NamedTuple):
    """A NIC: what it gives a channel, the ranks nearest to it, and the bus of those in GB/s."""

    gbs: float
    ranks: tuple[int, ...]
    bus_gbs: float
    by_cpu: bool


def _nics(topology: Topology, overhead: float) -> list[_Nic]:
    """Return the NICs of the first host that no CPU stands before, else all; none for one host."""
    if len(topology.hosts) < 2:
        return []
    ranks = topology.gpus_of(topology.hosts[0])
    ends = topology.nics_of(topology.hosts[0])
    if not ends:  # as probed, where nothing shows what sends
        routes = (path(topology, a, b) for a in ranks for b in topology.gpus_of(topology.hosts[1]))
        return [_Nic(max(route.bandwidth for route in routes), ranks, math.inf, by_cpu=False)]
    nics = [nic for end in ends if (nic := _nic(topology, end, ranks, overhead))]
    return [nic for nic in nics if not nic.by_cpu] or nics


def _nic(topology: Topology, end: str, ranks: tuple[int, ...], overhead: float) -> _Nic | None:
    """Return the NIC of that id as its nearest GPUs reach it."""
    routes = {rank: relay_path(topology, topology.gpus[rank].id, end) for rank in ranks}
    known = {
        rank: route
        for rank, route in routes.items()
        if route and all(hop.kind != "network" for hop in route.hops)
    }
    if not known:
        return None
    nearest = max(map(_nearness, known.values()))
    near = tuple(rank for rank, route in known.items() if _nearness(route) == nearest)
    route = known[near[0]]
    by_cpu = any(topology.node(hop.src).kind == "cpu" for hop in route.hops)
    rates = [_pci_gbs(hop.bandwidth) for hop in route.hops if hop.kind in ("pcie", "c2c")]
    cost = overhead if by_cpu else 1.0
    bus = rates[0] / cost if rates else math.inf
    port = topology.node(end).port_gbs or math.inf
    network = (link for link in topology.links if link.kind == "network")
    cables = sum(link.bandwidth for link in network if end in (link.src, link.dst))
    gbs = min(min(rates, default=math.inf) / cost, port, cables or math.inf)
    return _Nic(gbs, near, bus, by_cpu)


def _nearness(p: Path) -> tuple[float, int]:
    return p.bandwidth, -len(p.hops)
