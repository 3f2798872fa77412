"""The form of NCCL's tuning constants, and those that no version changed; us and GB/s.

They are what NCCL believes, not what a machine does: the simulator never reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "GROUPED",
    "MOST_CHANNELS",
    "NET_OVERHEAD_US",
    "P2P_LL_BYTES",
    "PCI_GBS",
    "PROTOCOLS",
    "STEP_BYTES",
    "THREADS",
    "THREAD_THRESHOLD",
    "Algorithm",
    "Arch",
    "Link",
    "Nvls",
    "Protocol",
    "Search",
    "TuningConstants",
]

Algorithm = Literal["Tree", "Ring", "NVLS", "NVLSTree"]
Protocol = Literal["LL", "LL128", "Simple"]
Link = Literal["nvlink", "pci", "net"]
Arch = Literal["volta", "ampere", "hopper", "blackwell"]
ByProtocol = Mapping[Protocol, float]
Scales = tuple[float, float, float]  # one node, two nodes, more
Speeds = tuple[float, ...]

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
# Collectives that NCCL has no algorithm for: a group of ncclSend and ncclRecv.
GROUPED = frozenset({"alltoall", "gather", "scatter"})
# NCCL_*_NTHREADS and NCCL_*_THREAD_THRESHOLD, src/include/devcomm.h and comm.h, 2.5 on.
THREADS: dict[Protocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
THREAD_THRESHOLD: dict[Protocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
MOST_CHANNELS = 32  # MAXCHANNELS of 2.5 to 2.26
# A slot of the default buffers as sent, flags and all: NCCL_*_BUFFSIZE / NCCL_STEPS, src/init.cc.
STEP_BYTES: dict[Protocol, int] = {"LL": 64 << 10, "LL128": 614400, "Simple": 512 << 10}
P2P_LL_BYTES = 16384  # NCCL_P2P_LL_THRESHOLD, src/enqueue.cc
PCI_GBS = 12.0  # PCI_BW, src/graph/topo.h: gen3 x16
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0}


@dataclass(frozen=True)
class Search:
    """What the search for rings (src/graph/search.cc, topo.h) knows.

    ``speeds`` lists (least compute capability, rates tried on one node, rates tried on several),
    ``nvlink_gbs`` (least compute capability, what one NVLink is held to carry), each the most
    demanding first. More than ``spared_above`` rings of Hopper and later, each below 50 GB/s, are
    not halved into two channels each; ``doubles_hopper`` says that few fast rings between nodes
    are launched four times.
    """

    speeds: tuple[tuple[int, Speeds, Speeds], ...]
    nvlink_gbs: tuple[tuple[int, float], ...]
    spared_above: int = 1 << 30
    doubles_hopper: bool = False


@dataclass(frozen=True)
class Nvls:
    """NVLink SHARP in a version's model (src/graph/tuning.cc, src/transport/nvls.cc).

    ``tree_net_us`` is None where NVLS stays on one node. ``share`` turns the rate of the links
    into that of an allreduce, ``gather_share`` into that of an allgather or reduce-scatter (None:
    not done by NVLS). ``early_tree`` is 2.18's own model of NVLSTree: its latency grows by node,
    not by level. ``widest_shrink`` is the first factor of the chunk's shrinking.
    """

    us: float
    tree_net_us: float | None
    share: float
    gather_share: float | None
    early_tree: bool = False
    rings_rate: bool = False
    widest_shrink: int = 64
    channels: Mapping[Arch, int] = field(default_factory=lambda: {"hopper": 16, "blackwell": 32})


@dataclass(frozen=True)
class TuningConstants:
    """What one version of NCCL holds true.

    ``ll_max_gbs``, ``tree_whole_gbs`` and ``ll128_whole_gbs`` bound a whole ring or tree, the
    other rates a channel; the ``ll128_`` limits by collective are those of older versions.
    ``arches`` lists (least compute capability, architecture); ``arches_exact`` that only this
    very capability counts. ``net_steps`` are the steps of a ring allreduce that cross the net:
    "all", "nodes" (two for each) or "joints" (two for each but one). ``ll_share`` and
    ``ll128_share`` are the parts of the rate that a ring has, in general and in the other case:
    LL on one node of what does not reduce, LL128 with one GPU a node. ``tree_shares`` are LL's,
    LL128's on one node and on several. ``plateau`` lists (least capability, factor) of the
    latency of Ring/Simple for large allreduces between nodes.
    """

    source: str
    base_us: Mapping[str, ByProtocol]
    hw_us: Mapping[Link, Mapping[str, ByProtocol]]
    correction: Mapping[Protocol, tuple[float, ...]]
    search: Search
    ll128_on: frozenset[int]
    arches: tuple[tuple[int, Arch], ...] = ()
    arches_exact: bool = False
    ll_max_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    ring_ll128_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    tree_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    tree_ll128_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    ll128_gbs_of: Mapping[str, float] = field(default_factory=dict)
    ll128_whole_gbs: Mapping[str, float] = field(default_factory=dict)
    tree_whole_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    tree_whole_ll128_gbs: Mapping[Arch, Scales] = field(default_factory=dict)
    tree_efficiency: float = 0.92
    tree_shares: tuple[float, float, float] = (1 / 3.8, 7 / 9, 120 / 128)
    tree_ll128_factor: float = 1.0
    ll_share: tuple[float, float] = (1 / 4, 1 / 3)
    ll128_share: tuple[float, float] = (0.92, 0.7)
    bus_gbs: Mapping[Arch, float] = field(default_factory=dict)
    net_steps: Literal["all", "nodes", "joints"] = "nodes"
    ll_intra_factor: float = 1.0
    net_overhead: bool = False
    lone_tree_latency: bool = False
    plateau: tuple[tuple[int, float], ...] = ()
    plateau_per_channel: bool = False
    nvls: Nvls | None = None
    tree_chunk_shrinks: bool = True
    channels_by_traffic: bool = False
    p2p: bool = True
    p2p_ll: bool = True
    p2p_ll_by_channels: bool = False
    p2p_net_channels: int = 2
    p2p_net_step_bytes: int = 128 << 10
