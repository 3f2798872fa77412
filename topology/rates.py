"""Nominal rates (GB/s per direction) and latencies (us) of links, each with its source.

Rates are those after line coding, as data sheets give them, so that cut bounds
stay bounds; what software reaches of them (NCCL reckons 20 of an NVLink's 25) is the machine
class's business.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tuccl.topology.models import gcn_name


class Rate(NamedTuple):
    """A link's nominal rate.

    Attributes:
        gbs: GB/s per direction.
        source: where the number is from.
        assumed: whether something was filled in to get it.
    """

    gbs: float
    source: str
    assumed: bool = False


# Latencies of links in us, from one end of the link to the other.
NVLINK_US = 0.3  # TACCL's profile of NDv2: alpha 0.3 us
NVSWITCH_US = 0.175  # half of 0.35 us through the switch (TE-CCL's DGX-2)
PCIE_US = 0.44  # (2.6 us GPU to GPU over IB, TACCL, less 0.83 us ib_send_lat) / 4 hops
CPU_US = 0.15  # assumed
NETWORK_US = 0.415
NETWORK_US_SOURCE = "half of 0.83 us, ib_send_lat of 32 B over one switch"
SPINE_US = 0.3
SPINE_US_SOURCE = "0.3 us a switch assumed"

# GT/s -> GB/s per lane, after line coding.
_LANE_GBS = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.97, 32.0: 3.94, 64.0: 7.56}
_LANES = (1, 2, 4, 8, 12, 16, 32)
_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d{1,3})?)\s*GT/s")

_NVLINK_GBS = {60: 20.0, 70: 25.0, 80: 25.0, 86: 14.0625, 87: 25.0, 90: 25.0, 100: 50.0}
_XGMI_GBS = {"906": 46.0, "908": 46.0, "90a": 50.0, "942": 64.0, "950": 76.8}


def pcie_rate(link_speed: str | None, link_width: str | None, likely_gts: float = 8.0) -> Rate:
    """Return the rate in GB/s of a PCIe link written as NCCL writes it.

    Where the speed is unknown it is ``likely_gts``, where the width is, 16 lanes.

    >>> pcie_rate("32.0 GT/s PCIe", "16").gbs
    63.04
    >>> pcie_rate("", "0")
    Rate(gbs=15.76, source='link speed unknown, width unknown: 8 GT/s x16 taken', assumed=True)
    """
    match = _SPEED.match(link_speed or "")
    speed = float(match[1]) if match else 0.0
    lanes = int(link_width) if link_width and re.fullmatch("[0-9]{1,2}", link_width) else 0
    gaps = []
    if speed not in _LANE_GBS:
        gaps.append("link speed unknown")
        speed = likely_gts
    if lanes not in _LANES:
        gaps.append("width unknown")
        lanes = 16
    text = f"{speed:g} GT/s x{lanes}"
    if gaps:
        text = f"{', '.join(gaps)}: {text} taken"
    return Rate(round(_LANE_GBS[speed] * lanes, 4), text, bool(gaps))


def nvlink_rate(sm: int | None) -> Rate:
    """Return the rate in GB/s of one NVLink of a GPU with compute capability ``sm``.

    Notes:
        Data sheets: NVLink 1 20 (P100), 2 25 (V100), 3 25 (A100; 14.06 on GA102), 4 25 (H100:
        18 links, 450), 5 50 (B200). NCCL's own estimates are 18, 20, 20, 12, 20.6 and 40.1.
    """
    if sm is None:
        return Rate(25.0, "25 GB/s an NVLink (compute capability unknown)", True)
    generations = [generation for generation in _NVLINK_GBS if generation <= sm]
    gbs = _NVLINK_GBS[max(generations, default=60)]
    return Rate(gbs, f"{gbs:g} GB/s an NVLink of sm_{sm} (data sheet)")


def xgmi_rate(gcn: str) -> Rate:
    """Return the rate in GB/s of one x16 xGMI link of an AMD GPU, by its ``gcn`` in RCCL's files.

    Notes:
        AMD's architecture pages: 23 GT/s (MI50, MI100), 25 GT/s (MI200), 32 GT/s (MI300) and
        38.4 GT/s (MI350), two bytes a transfer. RCCL's own estimates are 24, 24, 36, 48 and 48.
    """
    name = gcn_name(gcn)
    if name not in _XGMI_GBS:
        return Rate(46.0, "46 GB/s an xGMI link (architecture unknown)", True)
    return Rate(_XGMI_GBS[name], f"{_XGMI_GBS[name]:g} GB/s an xGMI link of gfx{name} (AMD)")


def cpu_rate(vendor: str, arch: str, family: int | None, model: int | None) -> Rate:
    """Return the rate in GB/s assumed between two sockets (or NUMA nodes), as NCCL assumes it.

    Notes:
        NCCL 2.30 src/graph/topo.h: Intel 6 (Broadwell and before), 10 (Skylake), 22 (Sapphire
        Rapids), 40 (Emerald Rapids); AMD 16, POWER9 32, ARM 6, Zhaoxin 6.
    """
    source = "assumed, as NCCL does for"
    if vendor == "GenuineIntel":
        steps = ((0xCF, 40.0, "ERP"), (0x8F, 22.0, "SPR"), (0x55, 10.0, "SKL"))
        for first, gbs, generation in steps:
            if family == 6 and model is not None and model >= first:
                return Rate(gbs, f"{source} Intel {generation}", True)
        return Rate(6.0, f"{source} Intel Broadwell", True)
    if vendor == "AuthenticAMD":
        return Rate(16.0, f"{source} AMD", True)
    if arch == "ppc64":
        return Rate(32.0, f"{source} POWER9", True)
    return Rate(6.0, f"{source} other CPUs", True)
