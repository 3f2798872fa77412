"""Estimate of NCCL's graph search on a topology: channels and the rate of each."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.runtime.nccl.constants import (
    MAX_CHANNELS,
    PCI_GBS,
    Arch,
    TuningConstants,
    tuning_constants,
)
from tuccl.runtime.nccl.rings import IntraNode, Rings, rings_across, rings_inside
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_group
from tuccl.topology import Path, Topology, path

__all__ = ["NcclGraph", "nccl_graph"]

_CAPABILITY = {"P100": 60, "V100": 70, "T4": 75, "A100": 80, "A800": 80, "A10": 86}
_CAPABILITY |= {"H100": 90, "H200": 90, "H20": 90, "H800": 90, "GH200": 90}
_CAPABILITY |= {"B100": 100, "B200": 100}
_CAPABILITY |= {"RTX 2080": 75, "RTX 3090": 86, "A40": 86, "RTX 4090": 89, "L40": 89}
_LINK_GBS = {100: 50.0}  # an NVLink's nominal rate per direction by least capability; else 25
_NVLINK_GBS = 25.0
# What PCIe x16 carries to NCCL, by the least nominal rate: gen5, gen4, gen3.
_PCI_CLASSES = ((44.0, 4 * PCI_GBS), (22.0, 2 * PCI_GBS), (11.0, PCI_GBS))
_CPU_GBS = {"amd": 16.0, "intel": 10.0}  # between sockets, src/graph/topo.h
_INTEL_P2P = 6 / 5  # INTEL_P2P_OVERHEAD: a GPU's reads through an Intel CPU cost more
_MAX_CHANNELS_2_4 = 16


@dataclass(frozen=True)
class NcclGraph:
    """Rings and trees as NCCL's tuning model sees them.

    Attributes:
        ranks: GPUs.
        nodes: Hosts.
        channels: Rings that the search finds.
        channel_gbs: Rate of each.
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
    channels: int
    channel_gbs: float
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
        """Return the rate of all channels together."""
        return self.channels * self.channel_gbs

    @property
    def ranks_per_node(self) -> float:
        """Return the ranks of a node, on average."""
        return self.ranks / self.nodes


def nccl_graph(topology: Topology, version: str = NCCL_VERSION) -> NcclGraph:
    """Return an estimate of what the search of NCCL ``version`` finds, cached per topology.

    Raises:
        InputError: the version's constants are not known.

    Notes:
        NCCL searches for rings at a fixed list of speeds (src/graph/search.cc) and keeps the
        speed of the largest sum. Here the number of rings at a speed is what the GPUs' links
        leave room for, not what a search of permutations finds (`nccl_rings`).
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
    intra = _intra_node(topology, capability, cpu, constants)
    nic_paths = _nic_paths(topology)
    nics = [_nic_gbs(topology, p, cpu) for p in nic_paths.values()]
    if group == "2.4":
        rings, comm_channels = _rings_2_4(intra, nics)
    else:
        search = constants.search
        rings = rings_across(search, intra, nics) if nics else rings_inside(search, intra)
        comm_channels = _comm_channels(constants, rings, capability, nodes=len(topology.hosts))
    nvls = _nvls(topology, constants, intra, nics)
    return NcclGraph(
        ranks=topology.ranks,
        nodes=len(topology.hosts),
        channels=rings.count,
        channel_gbs=rings.gbs,
        launch_channels=comm_channels,
        peer_channels=_peer_channels(topology, constants, intra, comm_channels),
        nvlink=intra.nvlink,
        same_channels=rings.count == 1 or (len(nics) < 2 and not intra.pairs),
        near_nic=all(not _passes_cpu(topology, p) for p in nic_paths.values()),
        uniform=len(capabilities) == 1,
        cpu=cpu,
        capability=capability,
        arch=_arch(constants, capability),
        nvls_heads=nvls[0],
        nvls_gbs=nvls[1],
        nvls_net_gbs=nvls[2],
    )


def _comm_channels(constants: TuningConstants, rings: Rings, capability: int, nodes: int) -> int:
    """Channels of a launch: each ring twice, few fast ones four times (src/graph/connect.cc)."""
    channels = min(2 * rings.count, MAX_CHANNELS)
    fast = constants.search.doubles_hopper and capability >= 90 and nodes > 1
    return 2 * channels if fast and rings.gbs > 45 and channels < 16 else channels


def _rings_2_4(intra: IntraNode, nics: list[float]) -> tuple[Rings, int]:
    """NCCL 2.4: a ring for each NVLink of a GPU, or each NIC, twice with NVLink, else one."""
    rings = len(nics) or (round(intra.total_gbs / intra.link_gbs) if intra.nvlink else 1)
    gbs = min(nics) if nics else intra.total_gbs / rings
    return Rings(rings, gbs), min(rings * (2 if intra.nvlink else 1), _MAX_CHANNELS_2_4)


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
    return "amd" if "AMD" in models or "EPYC" in models else "intel"


def _intra_node(
    topology: Topology, capability: int, cpu: str, constants: TuningConstants
) -> IntraNode:
    """Return the links inside the largest node, at the rates that NCCL believes."""
    ranks = max((topology.gpus_of(host) for host in topology.hosts), key=len)
    link = next(gbs for least, gbs in constants.search.nvlink_gbs if capability >= least)
    if len(ranks) > 1 and not _nvlink_connected(topology, ranks):
        slowest = min(_pci_path_gbs(topology, a, b, cpu) for a in ranks for b in ranks if a != b)
        return IntraNode(len(ranks), False, capability, link, slowest)
    nominal = _LINK_GBS.get(capability, _NVLINK_GBS)
    total = min(_nvlink_gbs(topology, topology.gpus[rank].id) for rank in ranks) / nominal * link
    pairs: tuple[tuple[float, ...], ...] = ()
    if not any(node.kind == "nvswitch" for node in topology.nodes):
        pairs = tuple(
            tuple(
                path(topology, a, b).bandwidth / nominal * link
                for b in ranks
                if _nvlink_pair(topology, a, b)
            )
            for a in ranks
        )
    return IntraNode(len(ranks), True, capability, link, total, pairs)


def _nvlink_pair(topology: Topology, a: int, b: int) -> bool:
    """Return whether NVLink joins two GPUs; in a torus some are joined through others alone."""
    try:
        return a != b and _is_nvlink(path(topology, a, b))
    except InputError:
        return False


def _pci_path_gbs(topology: Topology, a: int, b: int, cpu: str) -> float:
    """Return NCCL's belief of the GB/s between two GPUs over PCIe and between sockets."""
    route = path(topology, a, b)
    rates = [_CPU_GBS[cpu] if hop.kind == "cpu" else _pci_gbs(hop.bandwidth) for hop in route.hops]
    cpus = sum(1 for hop in route.hops if topology.node(hop.src).kind == "cpu")
    return min(rates) / (_INTEL_P2P if cpus == 1 and cpu == "intel" else 1.0)


def _pci_gbs(nominal: float) -> float:
    return next((gbs for least, gbs in _PCI_CLASSES if nominal >= least), nominal)


def _nic_gbs(topology: Topology, route: Path, cpu: str) -> float:
    """Return the GB/s that a NIC gives a ring: its port's, or those of the bus to the GPU."""
    near = route.hops[: _network_hop(route)]
    rates = [_pci_gbs(hop.bandwidth) for hop in near if hop.kind == "pcie"]
    bus = min(rates, default=route.bandwidth)
    if any(topology.node(hop.src).kind == "cpu" for hop in near) and cpu == "intel":
        bus /= _INTEL_P2P
    port = min((hop.bandwidth for hop in route.hops if hop.kind == "network"), default=bus)
    return min(bus, port)


def _network_hop(route: Path) -> int:
    kinds = [hop.kind for hop in route.hops]
    return kinds.index("network") if "network" in kinds else len(kinds)


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
    topology: Topology, constants: TuningConstants, intra: IntraNode, comm_channels: int
) -> int:
    """Channels of a message to one peer: two a link of NVLink, or few through the network."""
    if len(topology.hosts) > 1:
        return min(constants.p2p_net_channels, comm_channels)
    slowest = min((min(row) for row in intra.pairs if row), default=intra.total_gbs)
    links = int(slowest / intra.link_gbs + 1e-9) if intra.nvlink else 1
    far = any(len(row) < intra.gpus - 1 for row in intra.pairs)
    return min(2 if far else 2 * max(links, 1), comm_channels)


def _nvls(
    topology: Topology, constants: TuningConstants, intra: IntraNode, nics: list[float]
) -> tuple[int, float, float]:
    """Heads of NVLS, and the rate of each inside a node and between nodes; no heads where none.

    A head takes its own share twice (src/graph/search.cc, ncclTopoSearchTryNvls).
    """
    switched = any(node.kind == "nvswitch" for node in topology.nodes)
    nvls = constants.nvls
    if nvls is None or not switched or intra.capability < 90 or intra.gpus < 3:
        return 0, 0.0, 0.0
    if nics and (nvls.tree_net_us is None or len(nics) < intra.gpus):
        return 0, 0.0, 0.0
    speeds = intra.speeds(constants.search, across=bool(nics))
    fits = [s for s in speeds if (intra.gpus + 1) * s <= intra.total_gbs]
    if not fits:
        return 0, 0.0, 0.0
    across = max((s for s in speeds if nics and s <= min(nics)), default=fits[0])
    if nvls.efficiency is not None and not nics:
        across = speeds[0]  # what is between nodes is tried faster until it bounds nothing
    return intra.gpus, min(fits[0], across) if nics else fits[0], across


def _nic_paths(topology: Topology) -> dict[str, Path]:
    """Return for each NIC of the first node the widest, then shortest path to the second."""
    widest: dict[str, Path] = {}
    if len(topology.hosts) < 2:
        return widest
    for src in topology.gpus_of(topology.hosts[0]):
        for dst in topology.gpus_of(topology.hosts[1]):
            p = path(topology, src, dst)
            nic = p.nics[0] if p.nics else "network"
            if nic not in widest or _nearness(p) > _nearness(widest[nic]):
                widest[nic] = p
    return widest


def _nearness(p: Path) -> tuple[float, int]:
    return p.bandwidth, -len(p.hops)


def _passes_cpu(topology: Topology, p: Path) -> bool:
    return any(topology.node(hop.src).kind == "cpu" for hop in p.hops)
