"""What NCCL's graph search would find on a topology: channels and the rate of each."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass

from tuccl.runtime.nccl.constants import (
    MAX_CHANNELS,
    PCI_GBS,
    Arch,
    TuningConstants,
    tuning_constants,
)
from tuccl.runtime.nccl.rings import Inside, Rings, rings_across, rings_inside
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_group
from tuccl.topology import Path, Topology, path

__all__ = ["NcclGraph", "nccl_graph"]

_CAPABILITY = {"P100": 60, "V100": 70, "T4": 75, "A100": 80, "A800": 80, "A10": 86}
_CAPABILITY |= {"H100": 90, "H200": 90, "H20": 90, "H800": 90, "GH200": 90}
_CAPABILITY |= {"B100": 100, "B200": 100}
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

    ``channels`` is the search's number, ``channel_gbs`` the rate of each; launches may use
    ``launch_channels``, since NCCL runs each ring it found twice. ``peer_channels`` are those
    that a message to one peer may use. ``nvlink`` says whether the GPUs of a node are joined by
    NVLink, ``alike`` whether all rings visit them in one order, ``near_nic`` whether no CPU stands between GPUs and NICs, ``uniform`` whether all GPUs
    are of one kind, ``cpu`` the vendor, ``capability`` the GPUs' compute capability times ten.
    ``nvls_heads`` is 0 where the switch does not reduce, else each head has ``nvls_gbs`` inside a
    node and ``nvls_net_gbs`` between nodes.
    """

    ranks: int
    nodes: int
    channels: int
    channel_gbs: float
    launch_channels: int
    peer_channels: int
    nvlink: bool
    alike: bool
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
        """Rate of all channels together."""
        return self.channels * self.channel_gbs

    @property
    def ranks_a_node(self) -> float:
        """Number of ranks of a node, on average."""
        return self.ranks / self.nodes


def nccl_graph(t: Topology, version: str = NCCL_VERSION) -> NcclGraph:
    """Return an estimate of what the search of NCCL ``version`` finds, cached per topology.

    Raises:
        InputError: the version's constants are not known.

    Notes:
        NCCL searches for rings at a fixed list of speeds (src/graph/search.cc) and keeps the
        speed of the largest sum. Here the number of rings at a speed is what the GPUs' links
        leave room for, not what a search of permutations finds (`nccl_rings`).
    """
    group = nccl_group(version)
    if id(t) not in _GRAPHS:
        _GRAPHS[id(t)] = {}
        weakref.finalize(t, _GRAPHS.pop, id(t), None)
    graphs = _GRAPHS[id(t)]
    if group not in graphs:
        graphs[group] = _estimate(t, group, tuning_constants()[group])
    return graphs[group]


_GRAPHS: dict[int, dict[str, NcclGraph]] = {}


def _estimate(t: Topology, group: str, constants: TuningConstants) -> NcclGraph:
    capabilities = {_capability(gpu.model or "") for gpu in t.gpus}
    capability, cpu = min(capabilities), _cpu_vendor(t)
    inside = _inside(t, capability, cpu, constants)
    crossings = _crossings(t)
    nics = [_nic_gbs(t, p, cpu) for p in crossings.values()]
    if group == "2.4":
        rings, launched = _rings_2_4(inside, nics)
    else:
        found = rings_across(constants.search, inside, nics) if nics else None
        rings = found or rings_inside(constants.search, inside)
        launched = _launched(constants, rings, capability, nodes=len(t.hosts))
    nvls = _nvls(t, constants, inside, nics)
    return NcclGraph(
        ranks=t.ranks,
        nodes=len(t.hosts),
        channels=rings.count,
        channel_gbs=rings.gbs,
        launch_channels=launched,
        peer_channels=_peer_channels(t, constants, inside, launched),
        nvlink=inside.nvlink,
        alike=rings.count == 1 or (len(nics) < 2 and not inside.pairs),
        near_nic=all(not _passes_cpu(t, p) for p in crossings.values()),
        uniform=len(capabilities) == 1,
        cpu=cpu,
        capability=capability,
        arch=_arch(constants, capability),
        nvls_heads=nvls[0],
        nvls_gbs=nvls[1],
        nvls_net_gbs=nvls[2],
    )


def _launched(constants: TuningConstants, rings: Rings, capability: int, nodes: int) -> int:
    """Channels of a launch: each ring twice, few fast ones four times (src/graph/connect.cc)."""
    channels = min(2 * rings.count, MAX_CHANNELS)
    fast = constants.search.doubles_hopper and capability >= 90 and nodes > 1
    return 2 * channels if fast and rings.gbs > 45 and channels < 16 else channels


def _rings_2_4(inside: Inside, nics: list[float]) -> tuple[Rings, int]:
    """NCCL 2.4: a ring for each NVLink of a GPU, or each NIC, twice with NVLink, else one."""
    rings = len(nics) or (round(inside.total_gbs / inside.link_gbs) if inside.nvlink else 1)
    gbs = min(nics) if nics else inside.total_gbs / rings
    return Rings(rings, gbs), min(rings * (2 if inside.nvlink else 1), _MAX_CHANNELS_2_4)


def _arch(constants: TuningConstants, capability: int) -> Arch:
    """The row of the tables, the oldest for GPUs that the version does not tell apart."""
    if constants.arches_exact:
        return dict(constants.arches).get(capability, "volta")
    return next(arch for least, arch in constants.arches if capability >= least)


def _capability(model: str) -> int:
    """Compute capability of a GPU model times ten; 0 for one that NCCL's tables do not know."""
    if named := re.match(r"sm_(\d+)", model):
        return int(named[1])
    known = [name for name in _CAPABILITY if name in model.upper()]
    return _CAPABILITY[max(known, key=len)] if known else 0


def _cpu_vendor(t: Topology) -> str:
    models = " ".join((n.model or "").upper() for n in t.nodes if n.kind == "cpu")
    return "amd" if "AMD" in models or "EPYC" in models else "intel"


def _inside(t: Topology, capability: int, cpu: str, constants: TuningConstants) -> Inside:
    """The links inside the largest node, at the rates that NCCL holds them to have."""
    ranks = max((t.gpus_of(host) for host in t.hosts), key=len)
    link = next(gbs for least, gbs in constants.search.nvlink_gbs if capability >= least)
    if len(ranks) > 1 and not _nvlink_connected(t, ranks):
        slowest = min(_pci_path_gbs(t, a, b, cpu) for a in ranks for b in ranks if a != b)
        return Inside(len(ranks), False, capability, link, slowest)
    nominal = _LINK_GBS.get(capability, _NVLINK_GBS)
    total = min(_nvlink_gbs(t, t.gpus[rank].id) for rank in ranks) / nominal * link
    pairs: tuple[tuple[float, ...], ...] = ()
    if not any(node.kind == "nvswitch" for node in t.nodes):
        pairs = tuple(
            tuple(path(t, a, b).bandwidth / nominal * link for b in ranks if _joined(t, a, b))
            for a in ranks
        )
    return Inside(len(ranks), True, capability, link, total, pairs)


def _joined(t: Topology, a: int, b: int) -> bool:
    return a != b and _is_nvlink(path(t, a, b))


def _pci_path_gbs(t: Topology, a: int, b: int, cpu: str) -> float:
    """What NCCL holds the way from one GPU to another over PCIe, and between sockets, to carry."""
    way = path(t, a, b)
    rates = [_CPU_GBS[cpu] if hop.kind == "cpu" else _pci_gbs(hop.bandwidth) for hop in way.hops]
    cpus = sum(1 for hop in way.hops if t.node(hop.src).kind == "cpu")
    return min(rates) / (_INTEL_P2P if cpus == 1 and cpu == "intel" else 1.0)


def _pci_gbs(nominal: float) -> float:
    return next((gbs for least, gbs in _PCI_CLASSES if nominal >= least), nominal)


def _nic_gbs(t: Topology, way: Path, cpu: str) -> float:
    """What a NIC gives a ring: the port's rate or what the bus between it and the GPU carries."""
    near = way.hops[: _network_hop(way)]
    rates = [_pci_gbs(hop.bandwidth) for hop in near if hop.kind == "pcie"]
    bus = min(rates, default=way.bandwidth)
    if any(t.node(hop.src).kind == "cpu" for hop in near) and cpu == "intel":
        bus /= _INTEL_P2P
    port = min((hop.bandwidth for hop in way.hops if hop.kind == "network"), default=bus)
    return min(bus, port)


def _network_hop(way: Path) -> int:
    kinds = [hop.kind for hop in way.hops]
    return kinds.index("network") if "network" in kinds else len(kinds)


def _nvlink_gbs(t: Topology, gpu: str) -> float:
    """Nominal NVLink rate out of a GPU."""
    return sum(
        link.bandwidth
        for link in t.links
        if link.kind in ("nvlink", "xgmi") and any(src == gpu for src, _ in link.directions())
    )


def _nvlink_connected(t: Topology, ranks: tuple[int, ...]) -> bool:
    """Whether every GPU reaches every other over GPUs joined by NVLink alone."""
    seen, ahead = {ranks[0]}, [ranks[0]]
    while ahead:
        rank = ahead.pop()
        for other in ranks:
            if other not in seen and _is_nvlink(path(t, rank, other)):
                seen.add(other)
                ahead.append(other)
    return len(seen) == len(ranks)


def _is_nvlink(p: Path) -> bool:
    return all(hop.kind in ("nvlink", "xgmi") for hop in p.hops)


def _peer_channels(t: Topology, constants: TuningConstants, inside: Inside, launched: int) -> int:
    """Channels of a message to one peer: two a link of NVLink, or few through the network."""
    if len(t.hosts) > 1:
        return min(constants.p2p_net_channels, launched)
    slowest = min((min(row) for row in inside.pairs if row), default=inside.total_gbs)
    links = int(slowest / inside.link_gbs + 1e-9) if inside.nvlink else 1
    far = any(len(row) < inside.gpus - 1 for row in inside.pairs)
    return min(2 if far else 2 * max(links, 1), launched)


def _nvls(
    t: Topology, constants: TuningConstants, inside: Inside, nics: list[float]
) -> tuple[int, float, float]:
    """Heads of NVLS, and the rate of each inside a node and between nodes; no heads where none.

    A head takes its own share twice (src/graph/search.cc, ncclTopoSearchTryNvls).
    """
    switched = any(node.kind == "nvswitch" for node in t.nodes)
    nvls = constants.nvls
    if nvls is None or not switched or inside.capability < 90 or inside.gpus < 3:
        return 0, 0.0, 0.0
    if nics and (nvls.tree_net_us is None or len(nics) < inside.gpus):
        return 0, 0.0, 0.0
    speeds = inside.speeds(constants.search, across=bool(nics))
    fits = [s for s in speeds if (inside.gpus + 1) * s <= inside.total_gbs]
    if not fits:
        return 0, 0.0, 0.0
    across = max((s for s in speeds if nics and s <= min(nics)), default=fits[0])
    return inside.gpus, min(fits[0], across) if nics else fits[0], across


def _crossings(t: Topology) -> dict[str, Path]:
    """For each NIC of the first node, the widest, then shortest path through it to the second."""
    best: dict[str, Path] = {}
    if len(t.hosts) < 2:
        return best
    for src in t.gpus_of(t.hosts[0]):
        for dst in t.gpus_of(t.hosts[1]):
            p = path(t, src, dst)
            nic = p.nics[0] if p.nics else "network"
            if nic not in best or _nearness(p) > _nearness(best[nic]):
                best[nic] = p
    return best


def _nearness(p: Path) -> tuple[float, int]:
    return p.bandwidth, -len(p.hops)


def _passes_cpu(t: Topology, p: Path) -> bool:
    return any(t.node(hop.src).kind == "cpu" for hop in p.hops)
