"""NCCL's tuning constants by group of versions, and those that no version changed; us and GB/s.

``constants.json`` holds them: a group has what differs from the one before it, as a JSON Merge
Patch (RFC 7396: null removes). Sources are NVIDIA/nccl src/graph/tuning.cc, search.cc and topo.h,
src/enqueue.cc and src/transport/nvls.cc at the tags that each ``source`` names. A
neighbour's stand in for what was not found: the tree correction of 2.5 (2.6), search speeds of 2.5
and 2.6 (2.7, from a copy of the source), the patches of 2.9, 2.11, 2.13, 2.23 (2.8.3, 2.10.3,
2.12.7, 2.24.3), channels a peer and chunks of sends between nodes (2.14), LL of sends by channel
(2.22), the ring steps a chunk of 2.4 (later versions). 2.4 chooses by thresholds: its search and
sends alone are of use. The constants are NCCL's beliefs; the simulator never reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

Algorithm = Literal["Tree", "Ring", "NVLS", "NVLSTree", "PAT"]
Protocol = Literal["LL", "LL128", "Simple"]
Link = Literal["nvlink", "pci", "net"]
Arch = Literal["volta", "ampere", "hopper", "blackwell"]
ByProtocol = Mapping[Protocol, float]
Scales = tuple[float, float, float]  # one node, two nodes, more
Speeds = tuple[float, ...]

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
# Collectives that NCCL has no algorithm for: a group of ncclSend and ncclRecv.
SEND_RECV = frozenset({"alltoall", "gather", "scatter"})
# NCCL_*_NTHREADS and NCCL_*_THREAD_THRESHOLD, src/include/devcomm.h and comm.h, 2.5 on.
THREADS: dict[Protocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
THREAD_THRESHOLD: dict[Protocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
MAX_CHANNELS = 32  # that a program has; MAXCHANNELS up to 2.24
# A slot of the default buffers as sent, flags and all: NCCL_*_BUFFSIZE / NCCL_STEPS, src/init.cc.
STEP_BYTES: dict[Protocol, int] = {"LL": 64 << 10, "LL128": 614400, "Simple": 512 << 10}
P2P_LL_BYTES = 16384  # NCCL_P2P_LL_THRESHOLD, src/enqueue.cc
PCI_GBS = 12.0  # PCI_BW, src/graph/topo.h: gen3 x16
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0, "arm": 1.0}


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants of the search for rings (src/graph/search.cc, topo.h).

    Attributes:
        speeds: (least compute capability, rates tried on one node, rates tried on several), the
            most demanding first.
        nvlink_gbs: (least compute capability, what one NVLink is held to carry), likewise.
        spared_above: More rings than that of Hopper and later, each below 50 GB/s, are not halved
            into two channels each; None: all are.
        doubles_hopper: Whether few fast rings between nodes are comm_channels four times.
        crosses_nics: Whether rings may leave by another NIC than they enter by before they relay.
        lone_heads: Whether Hopper's trees may have all network traffic at one GPU, at 0.85 of a
            rate.
        sockets_gbs: What Intel's link between sockets is held to carry.
        max_channels: Of a launch (MAXCHANNELS), twice the rings.
        root_overhead: What a GPU's reads through an Intel CPU cost in PCIe's rate.
    """

    speeds: tuple[tuple[int, Speeds, Speeds], ...]
    nvlink_gbs: tuple[tuple[int, float], ...]
    spared_above: int | None = None
    doubles_hopper: bool = False
    crosses_nics: bool = False
    lone_heads: bool = False
    sockets_gbs: float = 10.0
    root_overhead: float = 1.2
    max_channels: int = 32


class Nvls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Model of NVLink SHARP (src/graph/tuning.cc, src/transport/nvls.cc).

    Attributes:
        us: Base latency.
        tree_net_us: Latency of a step between nodes; None where NVLS stays on one node.
        share: Part of the links' rate that an allreduce has.
        gather_share: Part that an allgather or reduce-scatter has; None: not done by NVLS.
        early_tree: 2.18's own model of NVLSTree: its latency grows by node, not by level.
        rings_rate: Whether NVLS has the rate of the rings.
        widest_shrink: First factor of the chunk's shrinking.
        channels: By architecture.
        channels_one_node: By architecture, where one node has others.
        gather_by_ranks: Whether an allgather has the part of the links that brings others' data.
        efficiency: Part of the links' rate by architecture (nvlsEfficiency), from which the rates
            are reckoned then; None before 2.28.
        channel_max_tree_gbs: Of a head of NVLSTree (perChMaxNVLSTreeBws).
        corrected_above: Least compute capability of GPUs whose NVLSTree has the trees' correction
            on x86; None: nowhere.
    """

    us: float
    tree_net_us: float | None = None
    share: float
    gather_share: float | None = None
    early_tree: bool
    rings_rate: bool
    widest_shrink: int
    channels: Mapping[Arch, int]
    channels_one_node: Mapping[Arch, int] = {}
    gather_by_ranks: bool = False
    efficiency: Mapping[Arch, float] | None = None
    channel_max_tree_gbs: Mapping[Arch, Scales] = {}
    corrected_above: int | None = None


class TuningConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Constants of one group of versions; names of src/graph/tuning.cc in brackets.

    Attributes:
        since: First release.
        source: Repository, tag and commit.
        base_us: By algorithm and protocol (baseLat).
        hw_us: By link, algorithm and protocol (hwLat).
        tree_correction: Factor on a tree's rate for 64 B * 2**i; 1 beyond the end
            (treeCorrectionFactor).
        search: Of the search for rings.
        ll128_on: Compute capabilities on which LL128 is safe.
        arches: (least compute capability, architecture).
        arches_exact: Whether only this very capability counts.
        max_ll_gbs: Of a whole ring or tree by one, two, more nodes (llMaxBws).
        channel_max_ring_ll128_gbs: Of a channel (perChMaxRingLL128Bws).
        channel_max_tree_gbs: Of a channel (perChMaxTreeBws).
        channel_max_tree_ll128_gbs: Of a channel (perChMaxTreeLL128Bws).
        channel_max_ll128_gbs: Of a channel by collective, in older versions.
        max_ll128_gbs: Of a whole ring by collective, in older versions.
        max_tree_gbs: Of a whole tree, in older versions.
        max_tree_ll128_gbs: Of a whole tree with LL128, in older versions.
        tree_efficiency: Part of the rings' rate that trees have.
        tree_shares: Parts of it with LL, LL128 on one node, LL128 on several.
        tree_ll128_factor: On `channel_max_ll128_gbs` for trees.
        ll_share: Parts of a ring's rate with LL; on one node of what does not reduce.
        ll128_share: Parts of a ring's rate with LL128; with one GPU a node.
        bus_gbs: Bound on the rate of all channels.
        net_steps: Steps of a ring allreduce that cross the net: "all", "nodes" (two for each) or
            "joints" (two for each but one).
        ll_intra_factor: On LL's latency inside nodes, where there are several.
        net_overhead: Whether the CPU's overhead bounds a step's latency from below.
        lone_tree_latency: Whether rings of one GPU a node have the tree's latency.
        plateau: (least capability, factor) on the latency of Ring/Simple for large allreduces
            between nodes.
        plateau_per_channel: Whether the size from which it holds grows with the channels.
        nvls: None before 2.17.
        pat_share: Part of the trees' rate that PAT has; None before 2.23.
        tree_all_threads: Whether trees always run with all threads (src/enqueue.cc).
        tree_chunk_shrinks: Whether trees have smaller chunks for small sizes.
        channels_by_traffic: Whether data is dealt out to channels in cells.
        p2p: Whether there are sends and receives.
        p2p_ll: Whether small ones take LL.
        p2p_ll_by_channels: Whether the threshold grows with the channels of a peer.
        p2p_net_channels: Channels of a peer on another node.
        p2p_net_step_bytes: Slot of a message to another node.
    """

    since: tuple[int, int, int]
    source: str
    base_us: Mapping[str, ByProtocol]
    hw_us: Mapping[Link, Mapping[str, ByProtocol]]
    tree_correction: Mapping[Protocol, tuple[float, ...]]
    search: Search
    ll128_on: frozenset[int]
    arches: tuple[tuple[int, Arch], ...]
    arches_exact: bool
    max_ll_gbs: Mapping[Arch, Scales]
    channel_max_ring_ll128_gbs: Mapping[Arch, Scales]
    channel_max_tree_gbs: Mapping[Arch, Scales]
    channel_max_tree_ll128_gbs: Mapping[Arch, Scales]
    channel_max_ll128_gbs: Mapping[str, float]
    max_ll128_gbs: Mapping[str, float]
    max_tree_gbs: Mapping[Arch, Scales]
    max_tree_ll128_gbs: Mapping[Arch, Scales]
    tree_efficiency: float
    tree_shares: tuple[float, float, float]
    tree_ll128_factor: float
    ll_share: tuple[float, float]
    ll128_share: tuple[float, float]
    bus_gbs: Mapping[Arch, float]
    net_steps: Literal["all", "nodes", "joints"]
    ll_intra_factor: float
    net_overhead: bool
    lone_tree_latency: bool
    plateau: tuple[tuple[int, float], ...]
    plateau_per_channel: bool
    nvls: Nvls | None = None
    pat_share: float | None = None
    tree_all_threads: bool
    tree_chunk_shrinks: bool
    channels_by_traffic: bool
    p2p: bool
    p2p_ll: bool
    p2p_ll_by_channels: bool
    p2p_net_channels: int
    p2p_net_step_bytes: int


@cache
def tuning_constants() -> dict[str, TuningConstants]:
    """Return the constants of each group of versions, the oldest first.

    >>> tuning_constants()["2.18"].source
    'NVIDIA/nccl v2.18.3-1 (ea383122)'
    """
    text = files("tuccl.runtime.nccl").joinpath("constants.json").read_bytes()
    constants = {}
    values: dict[str, Any] = {}
    for group, patch in msgspec.json.decode(text)["groups"].items():
        values = _patched(values, patch)
        constants[group] = msgspec.convert(values, TuningConstants)
    return constants


def _patched(values: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` after a JSON Merge Patch (RFC 7396)."""
    merged = {
        key: _patched(values.get(key) or {}, value) if isinstance(value, dict) else value
        for key, value in patch.items()
    }
    return {key: value for key, value in {**values, **merged}.items() if value is not None}
