"""Constants of NCCL's tuning model by group of versions; latencies in us, rates in GB/s.

Each group is the one before it with what changed. Sources: NVIDIA/nccl src/graph/tuning.cc,
search.cc and topo.h, src/enqueue.cc, src/transport/nvls.cc at the tags named in ``source``;
docs/nccl.md says which could not be read and what stands in for them.
"""

from __future__ import annotations

from dataclasses import replace

from tuccl.runtime.nccl.constants import (
    Arch,
    ByProtocol,
    Link,
    Nvls,
    Protocol,
    Scales,
    Search,
    TuningConstants,
)

__all__ = ["CONSTANTS"]


def _by(ll: float, ll128: float, simple: float) -> ByProtocol:
    return {"LL": ll, "LL128": ll128, "Simple": simple}


def _hw(
    nvlink: tuple[ByProtocol, ByProtocol],
    pci: tuple[ByProtocol, ByProtocol],
    net: tuple[ByProtocol, ByProtocol],
) -> dict[Link, dict[str, ByProtocol]]:
    """Latency of a step by link, for a tree and a ring."""
    return {
        "nvlink": {"Tree": nvlink[0], "Ring": nvlink[1]},
        "pci": {"Tree": pci[0], "Ring": pci[1]},
        "net": {"Tree": net[0], "Ring": net[1]},
    }


# Factor on the tree's bandwidth for 64 B * 2**i; 1 beyond the end.
_CORRECTION_LL = (
    *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
    *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0),
)
_CORRECTION_SIMPLE_2_6 = (
    *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
    *(0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
)
_CORRECTION_2_6: dict[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.8, 0.7, 0.7),
        *(0.7, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0),
    ),
    "Simple": _CORRECTION_SIMPLE_2_6,
}
_LL128_2_7 = (
    *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
    *(0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9),
)
_CORRECTION_2_7: dict[Protocol, tuple[float, ...]] = {
    "LL": _CORRECTION_LL,
    "LL128": (*_LL128_2_7, 1.0),
    "Simple": _CORRECTION_SIMPLE_2_6,
}
_CORRECTION_2_8: dict[Protocol, tuple[float, ...]] = {
    "LL": (*_CORRECTION_LL, 1.0),
    "LL128": (*_LL128_2_7, 0.92, 0.92),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
}
_CORRECTION_2_10: dict[Protocol, tuple[float, ...]] = {
    **_CORRECTION_2_8,
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    ),
}

_SLOW = (12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_SLOWEST = (2.4, 1.2, 0.24, 0.12)
_SPEEDS_2_7 = (42.0, 24.0, 21.0, 18.0, 15.0, *_SLOW, *_SLOWEST)
_SPEEDS_2_8 = (42.0, 30.0, 24.0, 21.0, 18.0, 15.0, *_SLOW, *_SLOWEST)
_SEARCH_2_7 = Search(((0, _SPEEDS_2_7, _SPEEDS_2_7),), ((70, 21.0), (0, 18.0)))
_SPEEDS_2_10 = (
    0,
    (44.0, 30.0, 22.0, 18.0, 15.0, *_SLOW),
    (48.0, 30.0, 28.0, 24.0, 22.0, 18.0, 15.0, *_SLOW, *_SLOWEST),
)
_SEARCH_2_10 = Search((_SPEEDS_2_10,), ((70, 22.0), (60, 18.0), (0, 22.0)))
_HOPPER_2_17 = (
    90,
    (66.0, 33.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0),
    (48.0, 45.0, 30.0, 24.0, 15.0, 12.0, 6.0, 3.0, *_SLOWEST),
)
_SEARCH_2_17 = replace(_SEARCH_2_10, speeds=(_HOPPER_2_17, _SPEEDS_2_10), spared_above=0)
_SPEEDS_2_18 = (
    0,
    (40.0, 30.0, 20.0, 18.0, 15.0, *_SLOW),
    (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, *_SLOW, *_SLOWEST),
)
_HOPPER_2_18 = (
    90,
    (60.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0),
    (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, *_SLOWEST),
)
_SEARCH_2_18 = Search(
    (_HOPPER_2_18, _SPEEDS_2_18),
    ((70, 20.0), (60, 18.0), (0, 20.0)),
    spared_above=4,
    doubles_hopper=True,
)
_ACROSS_2_19 = (
    *(48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0),
    *_SLOWEST,
)
_HOPPER_2_19 = (90, (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0), _ACROSS_2_19)
_HOPPER_2_20 = (
    90,
    (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0),
    _ACROSS_2_19,
)
_BLACKWELL_2_25 = (
    100,
    (90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0),
    _ACROSS_2_19,
)
_NVLINK_2_19 = ((90, 20.6), *_SEARCH_2_18.nvlink_gbs)
_SEARCH_2_19 = replace(_SEARCH_2_18, speeds=(_HOPPER_2_19, _SPEEDS_2_18), nvlink_gbs=_NVLINK_2_19)
_SEARCH_2_20 = replace(_SEARCH_2_19, speeds=(_HOPPER_2_20, _SPEEDS_2_18))
_SEARCH_2_25 = replace(
    _SEARCH_2_20,
    speeds=(_BLACKWELL_2_25, *_SEARCH_2_20.speeds),
    nvlink_gbs=((100, 40.1), *_NVLINK_2_19),
)

_VOLTA_LL: Scales = (39.0, 39.0, 20.4)
_AMPERE_LL: Scales = (87.7, 22.5, 19.0)
_HOPPER_LL: Scales = (141.0, 45.0, 35.0)
_TWENTY: Scales = (20.0, 20.0, 20.0)
_HOPPER_LL128: Scales = (36.7, 36.7, 36.7)
_VOLTA_TREE: Scales = (26.5, 18.5, 10.0)
_AMPERE_TREE: Scales = (24.0, 23.6, 17.8)


def _twice(row: Scales) -> Scales:
    return (2 * row[0], 2 * row[1], 2 * row[2])


_PCI = (_by(1.0, 1.9, 28.0), _by(1.0, 2.5, 5.7))
_LL128_OF_2_7 = {"broadcast": 18.8, "reduce": 12.0, "allgather": 18.3, "reduce-scatter": 15.2}
_AMPERE: tuple[tuple[int, Arch], ...] = ((80, "ampere"), (0, "volta"))
_HOPPER: tuple[tuple[int, Arch], ...] = ((90, "hopper"), *_AMPERE)
_BLACKWELL: tuple[tuple[int, Arch], ...] = ((100, "blackwell"), *_HOPPER)

_V2_6 = TuningConstants(
    source="NVIDIA/nccl v2.6.4-1 (b221128e)",
    base_us={"Tree": _by(4.4, 4.4, 0.0), "Ring": _by(3.6, 3.6, 8.4)},
    hw_us=_hw(
        (_by(0.5, 1.9, 28.0), _by(0.4, 2.5, 5.7)),
        _PCI,
        (_by(5.0, 7.5, 50.0), _by(0.9, 2.5, 6.6)),
    ),
    correction=_CORRECTION_2_6,
    search=_SEARCH_2_7,
    ll128_on=frozenset({70}),
    arches=((0, "volta"),),
    ll128_whole_gbs={
        "broadcast": 113.0,
        "reduce": 72.0,
        "allgather": 110.0,
        "reduce-scatter": 91.0,
        "allreduce": 100.0,
    },
    tree_whole_gbs={"volta": (110.0, 110.0, 80.0)},
    tree_efficiency=0.9,
    tree_shares=(1 / 3, 7 / 9, 7 / 9),
    ll_share=(1 / 4, 1 / 4),
    ll128_share=(120 / 128, 120 / 128),
    net_steps="all",
    p2p=False,
)
_V2_5 = replace(
    _V2_6,
    source="joapolarbear/nccl, a fork of 2.5 (609ba8fe)",
    tree_whole_gbs={"volta": (90.0, 70.0, 70.0)},
)
_V2_7 = replace(
    _V2_6,
    source="NVIDIA/nccl v2.7.5-1 (01afd20a)",
    base_us={"Tree": _by(4.4, 4.4, 0.0), "Ring": _by(3.6, 10.0, 8.4)},
    hw_us=_hw(
        (_by(0.52, 1.2, 28.0), _by(0.47, 1.9, 3.4)),
        _PCI,
        (_by(5.0, 8.5, 50.0), _by(2.7, 4.0, 9.6)),
    ),
    correction=_CORRECTION_2_7,
    ll128_on=frozenset({70, 80}),
    arches=_AMPERE,
    arches_exact=True,
    ll128_whole_gbs={},
    ll128_gbs_of={**_LL128_OF_2_7, "allreduce": 16.7},
    tree_whole_gbs={"volta": (110.0, 110.0, 80.0), "ampere": (110.0, 110.0, 80.0)},
    tree_whole_ll128_gbs={"volta": (110.0, 110.0, 80.0), "ampere": (130.0, 130.0, 105.0)},
    tree_shares=(1 / 3.8, 7 / 9, 0.915),
    tree_ll128_factor=7 / 9,
    ll_share=(1 / 4, 1 / 3),
    ll128_share=(0.92, 0.7),
    bus_gbs={"ampere": 235.0},
    net_steps="joints",
    ll_intra_factor=1.8,
    plateau=((0, 1.9),),
    p2p=True,
    p2p_ll=False,
    p2p_net_channels=1,
    p2p_net_step_bytes=512 << 10,
)
_V2_8 = replace(
    _V2_7,
    source="NVIDIA/nccl v2.8.3-1 (920dbe5b)",
    hw_us=_hw(
        (_by(0.52, 1.25, 28.0), _by(0.47, 1.9, 3.4)),
        _PCI,
        (_by(5.0, 8.5, 28.0), _by(2.7, 4.0, 9.6)),
    ),
    correction=_CORRECTION_2_8,
    search=replace(_SEARCH_2_7, speeds=((0, _SPEEDS_2_8, _SPEEDS_2_8),)),
    ll_max_gbs={"volta": _VOLTA_LL, "ampere": _AMPERE_LL},
    ll128_gbs_of={**_LL128_OF_2_7, "allreduce": 16.9},
    tree_gbs={"volta": _VOLTA_TREE, "ampere": (24.0, 22.5, 16.0)},
    tree_whole_gbs={},
    tree_whole_ll128_gbs={},
    tree_efficiency=0.92,
    tree_ll128_factor=1.0,
)
_V2_10 = replace(
    _V2_8,
    source="NVIDIA/nccl v2.10.3-1 (7e515921)",
    correction=_CORRECTION_2_10,
    search=_SEARCH_2_10,
    ll128_gbs_of={},
    ring_ll128_gbs={"volta": _TWENTY, "ampere": _TWENTY},
    tree_ll128_gbs={"volta": _TWENTY, "ampere": _TWENTY},
    tree_gbs={"volta": _VOLTA_TREE, "ampere": _AMPERE_TREE},
    tree_shares=(1 / 3.8, 7 / 9, 120 / 128),
)
_V2_12 = replace(
    _V2_10,
    source="NVIDIA/nccl v2.12.7-1 (24ee899a)",
    hw_us=_hw(
        (_by(0.52, 1.25, 28.0), _by(0.47, 1.9, 3.4)),
        _PCI,
        (_by(5.0, 8.5, 28.0), _by(2.7, 4.0, 28.0)),
    ),
    net_steps="nodes",
    p2p_ll=True,
)
_V2_14 = replace(
    _V2_12,
    source="NVIDIA/nccl v2.14.3-1 (c4e2aa6c)",
    hw_us=_V2_8.hw_us,
    p2p_net_channels=2,
    p2p_net_step_bytes=128 << 10,
)
_V2_15 = replace(
    _V2_14,
    source="NVIDIA/nccl v2.15.1-1 (da8152e5), the same tables in the library of 2.16.5",
    ll128_on=frozenset({70, 80, 90}),
    arches=_HOPPER,
    ll_max_gbs={**_V2_14.ll_max_gbs, "hopper": _AMPERE_LL},
    ring_ll128_gbs={**_V2_14.ring_ll128_gbs, "hopper": _TWENTY},
    tree_ll128_gbs={**_V2_14.tree_ll128_gbs, "hopper": _TWENTY},
    tree_gbs={**_V2_14.tree_gbs, "hopper": _AMPERE_TREE},
)
_V2_17 = replace(
    _V2_15,
    source="NVIDIA/nccl v2.17.1-1 (5d3ab08b)",
    search=_SEARCH_2_17,
    arches_exact=False,
    ring_ll128_gbs={**_V2_15.ring_ll128_gbs, "hopper": _HOPPER_LL128},
    tree_ll128_gbs={**_V2_15.tree_ll128_gbs, "hopper": _HOPPER_LL128},
    tree_gbs={**_V2_15.tree_gbs, "hopper": (38.7, 41.4, 33.0)},
    bus_gbs={"ampere": 235.0, "hopper": 370.0},
    plateau=((90, 1.5), (0, 1.9)),
    nvls=Nvls(
        *(40.0, None, 0.75, None),
        rings_rate=True,
        widest_shrink=32,
    ),
)
_V2_18_1 = replace(
    _V2_17,
    source="NVIDIA/nccl v2.18.1-1 (d97a32fa)",
    base_us={"Tree": _by(6.8, 14.0, 0.0), "Ring": _by(6.6, 14.0, 8.4)},
    hw_us=_hw(
        (_by(0.6, 1.25, 28.0), _by(0.6, 1.9, 3.4)),
        _PCI,
        (_by(5.0, 8.5, 28.0), _by(2.7, 4.0, 14.0)),
    ),
    search=_SEARCH_2_18,
    bus_gbs={},
    ll_intra_factor=1.0,
    net_overhead=True,
    plateau=((80, 1.4), (0, 1.9)),
    plateau_per_channel=True,
    nvls=Nvls(23.0, 19.0, 0.75, None, early_tree=True),
)
_V2_18 = replace(
    _V2_18_1,
    source="NVIDIA/nccl v2.18.3-1 (ea383122)",
    hw_us=_hw(
        (_by(0.6, 1.25, 4.0), _by(0.6, 1.9, 3.4)),
        (_by(1.0, 1.9, 6.0), _by(1.0, 2.5, 5.7)),
        (_by(5.0, 8.5, 14.0), _by(2.7, 4.0, 14.0)),
    ),
    tree_ll128_gbs={**_V2_18_1.tree_ll128_gbs, "hopper": (36.7, 36.7, 29.0)},
    tree_gbs={**_V2_18_1.tree_gbs, "hopper": (38.7, 41.4, 36.0)},
    nvls=Nvls(23.0, 19.0, 5 / 6, None, early_tree=True),
)
_V2_19 = replace(
    _V2_18,
    source="NVIDIA/nccl v2.19.1-1, v2.20.3-1 (b6475625); the same tables in the library of 2.19.3",
    hw_us=_V2_18_1.hw_us,
    search=_SEARCH_2_19,
    nvls=Nvls(23.0, 14.0, 5 / 6, 5 / 6),
)
_V2_20 = replace(
    _V2_19,
    source="NVIDIA/nccl v2.20.5-1 (ab2b89c4); the same tables in the library of 2.21.5",
    search=_SEARCH_2_20,
    ll_max_gbs={**_V2_19.ll_max_gbs, "hopper": _HOPPER_LL},
    ll_share=(1 / 2, 1 / 2),
    nvls=Nvls(25.0, 14.0, 5 / 6, 5 / 6),
    tree_chunk_shrinks=False,
)
_V2_22 = replace(
    _V2_20,
    source="NVIDIA/nccl v2.22.3-1 (178b6b75)",
    channels_by_traffic=True,
    p2p_ll_by_channels=True,
)
_V2_23 = replace(
    _V2_22,
    source="NVIDIA/nccl v2.24.3-1 (6aae3792); the same tables in the library of 2.23.4",
    base_us={"Tree": _by(6.8, 14.0, 8.4), "Ring": _by(6.6, 14.0, 8.4)},
    hw_us=_hw(
        (_by(0.6, 1.25, 4.0), _by(0.6, 1.9, 3.4)),
        (_by(1.0, 1.9, 4.0), _by(1.0, 2.5, 5.7)),
        (_by(5.0, 8.5, 14.0), _by(2.7, 4.0, 14.0)),
    ),
    ll128_share=(0.92, 0.92),
    net_steps="joints",
    lone_tree_latency=True,
    nvls=Nvls(25.0, 14.0, 5 / 6, 1.0),
)
_V2_25 = replace(
    _V2_23,
    source="NVIDIA/nccl v2.25.1-1 (80f6bda4), v2.26.2-1 (f44ac759)",
    search=_SEARCH_2_25,
    ll128_on=frozenset({70, 80, 90, 100, 120}),
    arches=_BLACKWELL,
    ll_max_gbs={**_V2_23.ll_max_gbs, "blackwell": _twice(_HOPPER_LL)},
    ring_ll128_gbs={**_V2_23.ring_ll128_gbs, "blackwell": _twice(_HOPPER_LL128)},
    tree_ll128_gbs={**_V2_23.tree_ll128_gbs, "blackwell": (73.4, 73.4, 58.0)},
    tree_gbs={**_V2_23.tree_gbs, "blackwell": (77.4, 82.8, 72.0)},
)

# 2.4 chooses by thresholds (see `nccl_thresholds`); its search and sends alone are of use here.
CONSTANTS: dict[str, TuningConstants] = {
    "2.4": replace(_V2_5, source="NVIDIA/nccl v2.4.6-1 (f40ce73e)"),
    "2.5": _V2_5,
    "2.6": _V2_6,
    "2.7": _V2_7,
    "2.8": _V2_8,
    "2.10": _V2_10,
    "2.12": _V2_12,
    "2.14": _V2_14,
    "2.15": _V2_15,
    "2.17": _V2_17,
    "2.18.1": _V2_18_1,
    "2.18": _V2_18,
    "2.19": _V2_19,
    "2.20": _V2_20,
    "2.22": _V2_22,
    "2.23": _V2_23,
    "2.25": _V2_25,
}
