"""Constants of NCCL's tuning model by version; latencies in us, rates in GB/s.

Read from src/graph/tuning.cc, src/graph/topo.h and src/enqueue.cc of NVIDIA/nccl at the tags
v2.12.12-1 and v2.19.1-1. They are what NCCL believes, not what a machine does: the simulator
never reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CONSTANTS",
    "MOST_CHANNELS",
    "NET_GBS_OF_NOMINAL",
    "NET_OVERHEAD_US",
    "NVLINK_GBS",
    "P2P_LL_BYTES",
    "P2P_STEP_BYTES",
    "PCI_GBS",
    "PROTOCOLS",
    "THREADS",
    "THREAD_THRESHOLD",
    "TREE_CORRECTION",
    "Algorithm",
    "Arch",
    "Link",
    "Protocol",
    "TuningConstants",
]

Algorithm = Literal["Tree", "Ring"]
Protocol = Literal["LL", "LL128", "Simple"]
Link = Literal["nvlink", "pci", "net"]
Arch = Literal["volta", "ampere", "hopper"]
ByProtocol = dict[Protocol, float]
Scales = tuple[float, float, float]  # one node, two nodes, more

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
THREADS: dict[Protocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
THREAD_THRESHOLD: dict[Protocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
MOST_CHANNELS = 32
P2P_STEP_BYTES = 512 << 10  # a slot of Simple's buffer, to which src/enqueue.cc cuts messages
P2P_LL_BYTES = 16384  # NCCL_P2P_LL_THRESHOLD, src/enqueue.cc
PCI_GBS = 12.0  # PCI_BW, src/graph/topo.h: gen3 x16
NET_GBS_OF_NOMINAL = 12.0 / 12.5  # a 100 Gb/s adapter counts as 12 GB/s
NVLINK_GBS: dict[Arch, float] = {"volta": 20.0, "ampere": 20.0, "hopper": 20.6}
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0}

# Factor on the tree's bandwidth for 64 B * 2**i.
TREE_CORRECTION: dict[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
}


@dataclass(frozen=True)
class TuningConstants:
    """What one version of NCCL holds true.

    ``ll_max_gbs`` is a whole ring's, the ``tree_`` and ``ring_`` rates are a channel's.
    ``net_overhead`` says whether each step of a ring between nodes costs the CPU's share;
    ``ll_intra_factor`` slows LL within the nodes of a multi-node ring; ``plateau`` lists
    (least compute capability, factor) of Ring/Simple's latency for large allreduces between
    nodes, large from 64 bytes a rank and channel (``plateau_per_channel``) or 4096 a rank on.
    ``bus_gbs`` bounds what all channels of an architecture give together.
    """

    base_us: dict[Algorithm, ByProtocol]
    hw_us: dict[Link, dict[Algorithm, ByProtocol]]
    ll_max_gbs: dict[Arch, Scales]
    ring_ll128_gbs: dict[Arch, Scales]
    tree_gbs: dict[Arch, Scales]
    tree_ll128_gbs: dict[Arch, Scales]
    plateau: tuple[tuple[int, float], ...]
    plateau_per_channel: bool
    bus_gbs: dict[Arch, float]
    net_overhead: bool
    ll_intra_factor: float


_LL_MAX: dict[Arch, Scales] = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (87.7, 22.5, 19.0),
}
_LL128: dict[Arch, Scales] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 36.7),
}
_TREE: dict[Arch, Scales] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
}
_TREE_LL128: dict[Arch, Scales] = {**_LL128, "hopper": (36.7, 36.7, 29.0)}


def _by_protocol(ll: float, ll128: float, simple: float) -> ByProtocol:
    return {"LL": ll, "LL128": ll128, "Simple": simple}


CONSTANTS: dict[str, TuningConstants] = {
    "2.12": TuningConstants(
        base_us={"Tree": _by_protocol(4.4, 4.4, 0.0), "Ring": _by_protocol(3.6, 10.0, 8.4)},
        hw_us={
            "nvlink": {
                "Tree": _by_protocol(0.6, 1.25, 28.0),
                "Ring": _by_protocol(0.47, 1.9, 3.4),
            },
            "pci": {"Tree": _by_protocol(1.0, 1.9, 28.0), "Ring": _by_protocol(1.0, 2.5, 5.7)},
            "net": {"Tree": _by_protocol(5.0, 8.5, 28.0), "Ring": _by_protocol(2.7, 4.0, 28.0)},
        },
        ll_max_gbs=_LL_MAX,
        ring_ll128_gbs=_LL128,
        tree_gbs=_TREE,
        tree_ll128_gbs=_TREE_LL128,
        plateau=((0, 1.9),),
        plateau_per_channel=False,
        bus_gbs={"ampere": 235.0},
        net_overhead=False,
        ll_intra_factor=1.8,
    ),
    "2.19": TuningConstants(
        base_us={"Tree": _by_protocol(6.8, 14.0, 0.0), "Ring": _by_protocol(6.6, 14.0, 8.4)},
        hw_us={
            "nvlink": {"Tree": _by_protocol(0.6, 1.25, 28.0), "Ring": _by_protocol(0.6, 1.9, 3.4)},
            "pci": {"Tree": _by_protocol(1.0, 1.9, 28.0), "Ring": _by_protocol(1.0, 2.5, 5.7)},
            "net": {"Tree": _by_protocol(5.0, 8.5, 28.0), "Ring": _by_protocol(2.7, 4.0, 14.0)},
        },
        ll_max_gbs=_LL_MAX,
        ring_ll128_gbs=_LL128,
        tree_gbs=_TREE,
        tree_ll128_gbs=_TREE_LL128,
        plateau=((80, 1.4), (0, 1.9)),
        plateau_per_channel=True,
        bus_gbs={},
        net_overhead=True,
        ll_intra_factor=1.0,
    ),
}
