"""What NCCL's graph search would find on a topology: channels and the rate of each."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from tuccl.runtime.nccl_constants import (
    MOST_CHANNELS,
    NET_GBS_OF_NOMINAL,
    NVLINK_GBS,
    PCI_GBS,
    Arch,
)
from tuccl.topology import Path, Topology, path

__all__ = ["NcclGraph", "nccl_graph"]

_CAPABILITY = {"P100": 60, "V100": 70, "T4": 75, "A100": 80, "A800": 80, "A10": 86}
_CAPABILITY |= {"H100": 90, "H200": 90, "H800": 90, "GH200": 90, "B100": 100, "B200": 100}
_LINK_GBS = 25.0  # an NVLink's nominal rate per direction, NVLink 2 to 4
_CHANNEL_OF_NIC_GBS = 25.0  # faster adapters carry several channels


@dataclass(frozen=True)
class NcclGraph:
    """Rings and trees as NCCL's tuning model sees them.

    ``channels`` is the search's number, ``channel_gbs`` the rate of each; launches may use
    ``launch_channels``, since NCCL runs each ring it found twice. ``nvlink`` says whether the
    GPUs of a node are joined by NVLink, ``near_nic`` whether no CPU stands between GPUs and
    NICs, ``cpu`` the vendor, ``capability`` the GPUs' compute capability times ten.
    """

    ranks: int
    nodes: int
    channels: int
    channel_gbs: float
    nvlink: bool
    near_nic: bool
    cpu: str
    capability: int
    arch: Arch

    @property
    def bandwidth_gbs(self) -> float:
        """Rate of all channels together."""
        return self.channels * self.channel_gbs

    @property
    def launch_channels(self) -> int:
        """Channels that a launch may use (src/graph/connect.cc doubles the rings)."""
        return min(2 * self.channels, MOST_CHANNELS)

    @property
    def ll128_is_safe(self) -> bool:
        """Whether NCCL allows LL128: it corrupts data where 128-byte stores may be torn."""
        near = self.nodes == 1 or self.near_nic
        return near and self.nvlink and self.capability in (70, 80, 90)


def nccl_graph(t: Topology) -> NcclGraph:
    """Return an estimate of what NCCL's search finds on ``t``, cached per topology.

    Notes:
        NCCL searches for rings at a fixed list of speeds (src/graph/search.cc). Here a node's
        rings are its GPUs' NVLinks, at the rate NCCL assumes for one, or one ring over PCIe;
        across nodes a channel per NIC (two above 25 GB/s), at the rate at which the nearest
        GPU reaches it. The slower of the two sets the total.
    """
    if id(t) not in _GRAPHS:
        _GRAPHS[id(t)] = _estimate(t)
        weakref.finalize(t, _GRAPHS.pop, id(t), None)
    return _GRAPHS[id(t)]


_GRAPHS: dict[int, NcclGraph] = {}


def _estimate(t: Topology) -> NcclGraph:
    capability = min(_capability(gpu.model or "") for gpu in t.gpus)
    arch: Arch = "hopper" if capability >= 90 else "ampere" if capability >= 80 else "volta"
    nvlink, channels, channel_gbs = _inside(t, arch)
    crossings = _crossings(t)
    if crossings:
        rates = [NET_GBS_OF_NOMINAL * p.bandwidth for p in crossings.values()]
        net_channels = sum(1 if rate <= _CHANNEL_OF_NIC_GBS else 2 for rate in rates)
        total = min(channels * channel_gbs, sum(rates))
        channels, channel_gbs = net_channels, total / net_channels
    return NcclGraph(
        ranks=t.ranks,
        nodes=len(t.hosts),
        channels=min(channels, MOST_CHANNELS),
        channel_gbs=channel_gbs,
        nvlink=nvlink,
        near_nic=all(not _passes_cpu(t, p) for p in crossings.values()),
        cpu=_cpu_vendor(t),
        capability=capability,
        arch=arch,
    )


def _capability(model: str) -> int:
    """Compute capability of a GPU model times ten; 0 for one that NCCL's tables do not know."""
    return next((cc for name, cc in _CAPABILITY.items() if name in model.upper()), 0)


def _cpu_vendor(t: Topology) -> str:
    models = " ".join((n.model or "").upper() for n in t.nodes if n.kind == "cpu")
    return "amd" if "AMD" in models or "EPYC" in models else "intel"


def _inside(t: Topology, arch: Arch) -> tuple[bool, int, float]:
    """Whether NVLink joins the GPUs of a node, the rings there, and the rate of each."""
    ranks = max((t.gpus_of(host) for host in t.hosts), key=len)
    if len(ranks) == 1:  # nothing inside bounds the rings
        return True, 1, NVLINK_GBS[arch] * MOST_CHANNELS
    if not _nvlink_connected(t, ranks):
        slowest = min(path(t, a, b).bandwidth for a in ranks for b in ranks if a != b)
        return False, 1, min(slowest, PCI_GBS if arch == "volta" else 2 * PCI_GBS)
    links = round(min(_nvlink_gbs(t, t.gpus[rank].id) for rank in ranks) / _LINK_GBS)
    return True, max(links, 1), NVLINK_GBS[arch]


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
