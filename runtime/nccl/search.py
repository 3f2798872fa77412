"""Channels that NCCL's search finds for rings and trees, and their rates.

NCCL searches a graph for each algorithm (ncclTopoCompute, src/graph/search.cc): rings at the first
speed of the largest sum, then as many trees at the highest speed, whose rate inside the host a
second pass raises up to twice that between hosts. The tests hold the closed forms here to what the
code of each version finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.runtime.nccl.constants import MAX_CHANNELS, Search

_LEAST_SHARE = 0.49  # the search stops at speeds below this share of the best
_ROUNDING = 1e-6
_FALLBACK_GBS = 0.1


@dataclass(frozen=True)
class Channels:
    """Channels of one pattern; rates of each in GB/s, inside a host and between hosts.

    ``lone_head`` says that one GPU of a host has all of a tree's network traffic
    (NCCL_TOPO_PATTERN_TREE), ``relayed`` that the data of some GPU reaches a NIC through another
    (PATH_PXN).
    """

    count: int
    intra_gbs: float
    inter_gbs: float
    lone_head: bool = False
    relayed: bool = False

    def bandwidth_gbs(self, hosts: int) -> float:
        """Return the rate of all channels as the tuning model takes it."""
        return self.count * (self.intra_gbs if hosts <= 2 else self.inter_gbs)


@dataclass(frozen=True)
class HostLinks:
    """The links of one host; rates as NCCL believes them, in GB/s.

    Attributes:
        gpus: Number of GPUs.
        nvlink: Whether NVLink joins them.
        capability: Least compute capability times ten.
        link_gbs: Of one NVLink.
        total_gbs: Out of a GPU.
        pairs: Of each GPU to its peers, one by one; empty behind a switch, where any GPU reaches
            any other at the full rate.
        nics: Of each NIC; empty for a single host.
        gpus_at_nic: GPUs nearest to a NIC, the fewest.
        head_gbs: Of the link between the first two of them.
        bus_gbs: Between a GPU and its NICs.
        near: Whether no CPU stands between them.
    """

    gpus: int
    nvlink: bool
    capability: int
    link_gbs: float
    total_gbs: float
    pairs: tuple[tuple[float, ...], ...] = ()
    nics: tuple[float, ...] = ()
    gpus_at_nic: int = 0
    head_gbs: float = 0.0
    bus_gbs: float = 0.0
    near: bool = True

    def speeds(self, search: Search) -> tuple[float, ...]:
        """Return the rates that the search tries for these GPUs, the highest first."""
        _, intra, between = next(row for row in search.speeds if self.capability >= row[0])
        return between if self.nics else intra

    def nic_channels(self, gbs: float) -> int:
        """Return how many channels of ``gbs`` the NICs and the buses to them have room for."""
        # A GPU before Ampere that sends and receives by one bus pays a tenth for the requests.
        both = 1.1 if self.gpus == 1 and self.capability < 80 else 1.0
        bus = self.gpus * int(self.bus_gbs / (gbs * both) + _ROUNDING)
        return min(bus, sum(int(nic / gbs + _ROUNDING) for nic in self.nics))

    def rings(self, gbs: float) -> int:
        """Return for how many rings of ``gbs`` the links of every GPU leave room."""
        if self.gpus == 1:
            return MAX_CHANNELS
        rows = self.pairs or ((self.total_gbs,),)
        return min(sum(int(rate / gbs + _ROUNDING) for rate in row) for row in rows)

    def chains(self, count: int, gbs: float) -> bool:
        """Return whether ``count`` chains of ``gbs`` through all GPUs find room.

        A chain leaves its last GPU out. Where NICs do not make chains start at every GPU, the
        search finds those that do only with some room to spare, or where there are two GPUs.
        """
        if self.gpus == 1:
            return True
        if self.pairs:
            room = sum(int(rate / gbs + _ROUNDING) for row in self.pairs for rate in row)
            return room > count * (self.gpus - 1) or room == count * (self.gpus - 1) == count
        most = int(self.total_gbs / gbs + _ROUNDING)
        if self.nics:  # a channel each in their order, those of the first GPU first
            spread = count // self.gpus if count >= len(self.nics) >= self.gpus else 0
            return count - spread <= most
        room = self.gpus * most - count * (self.gpus - 1)
        return count <= most or room > 0 or (room == 0 and self.gpus == 2)


def rings(search: Search, links: HostLinks) -> Channels:
    """Return the rings, inside one host or each in and out by NICs of the host.

    Where each NIC is next to one GPU alone, rings return to it over NVLink, or from 2.20 on leave
    by the NIC of another GPU.

    >>> search = Search(((0, (40.0, 30.0, 20.0, 12.0), ()),), ())
    >>> rings(search, HostLinks(8, True, 80, 20.0, 240.0))
    Channels(count=12, intra_gbs=20.0, inter_gbs=20.0, lone_head=False, relayed=False)
    """
    if links.gpus == 1 and not links.nics:
        return Channels(1, links.link_gbs * MAX_CHANNELS, links.link_gbs * MAX_CHANNELS)
    back = links.gpus_at_nic == 1 and links.gpus > 1 and links.nvlink
    fastest = _fastest(search, links, back=back and not search.crosses_nics)
    if back and search.crosses_nics:
        closed = _fastest(search, links, back=True)
        back = closed == fastest
    count, gbs = _duplicated(search, links, *fastest)
    return Channels(count, gbs, gbs, relayed=back)


def _fastest(search: Search, links: HostLinks, *, back: bool) -> tuple[int, float]:
    """Return number and rate of the rings of the first speed of the largest sum."""
    count, gbs = 0, 0.0
    speeds = links.speeds(search)
    for speed in speeds:
        if count and speed / gbs <= _LEAST_SHARE:
            break
        found = min(_rings_at(links, speed, back=back), search.max_channels // 2)
        if found * speed > count * gbs + _ROUNDING:
            count, gbs = found, speed
        if links.gpus > 1 and count * gbs >= links.total_gbs - _ROUNDING:
            break
    return (count, gbs) if count else (1, _FALLBACK_GBS)


def _rings_at(links: HostLinks, gbs: float, *, back: bool) -> int:
    if not links.nics:
        return links.rings(gbs)
    if not links.nvlink and links.near:  # every second ring crosses the sockets in reverse
        opposite = min(2, len(links.nics)) * int(links.total_gbs / gbs + _ROUNDING)
        return min(links.nic_channels(gbs), int(links.bus_gbs / gbs + _ROUNDING), opposite)
    if back or not links.nvlink:
        return min(links.nic_channels(gbs), links.rings(gbs))
    most = range(min(links.nic_channels(gbs), MAX_CHANNELS), 0, -1)
    return next((count for count in most if links.chains(count, gbs)), 0)


def _duplicated(search: Search, links: HostLinks, count: int, gbs: float) -> tuple[int, float]:
    """Return each fast ring as two channels of half its rate (ncclTopoDupChannels)."""
    most = search.spared_above
    spared = most is not None and links.capability > 80 and count > most
    if gbs < 25 or (spared and gbs < 50):
        return count, gbs
    doubled = min(2 * count, search.max_channels // 2)
    return doubled, gbs / -(-doubled // count)


def trees(search: Search, links: HostLinks, count: int) -> Channels:
    """Return ``count`` trees at the highest rate, which inside the host the second pass raises.

    A tree's parent and one child talk to the first GPU of a chain, the other child to the second;
    where only one GPU is next to the NIC, all to the first (Hopper, from 2.18.3 on) or the second
    relays through it.

    >>> search = Search(((0, (), (30.0, 24.0, 18.0, 12.0)),), ())
    >>> node = HostLinks(8, True, 80, 20.0, 240.0, (), (12.5,) * 8, gpus_at_nic=2, bus_gbs=24.0)
    >>> trees(search, node, 8)
    Channels(count=8, intra_gbs=24.0, inter_gbs=12.0, lone_head=False, relayed=False)
    """
    lone = links.gpus == 1 or (bool(links.nics) and links.gpus_at_nic == 1)
    relayed = lone and links.gpus > 1 and not (search.lone_heads and links.capability >= 90)
    speeds = links.speeds(search)
    if links.gpus == 1 and not links.nics:
        ring = rings(search, links)
        return Channels(1, ring.intra_gbs, ring.inter_gbs, lone_head=True)

    def fits(intra: float, inter: float) -> bool:
        if links.nics and links.nic_channels(inter) < count:
            return False
        if links.nics and links.gpus > 1 and not links.nvlink:
            if not links.near:
                return intra + inter / 2 <= links.total_gbs + _ROUNDING
            crossing = -(-count // 2) * intra <= links.total_gbs + _ROUNDING
            return crossing and count * intra + inter / 2 <= links.bus_gbs + _ROUNDING
        if links.pairs and links.nics and not relayed and intra > links.head_gbs + _ROUNDING:
            return False
        if relayed:
            return count * intra + inter / 2 <= links.total_gbs + _ROUNDING
        return links.chains(count, intra)

    inter = next((gbs for gbs in speeds if fits(gbs, gbs)), _FALLBACK_GBS)
    intra = inter
    for faster in reversed(speeds):
        if links.nics and inter < faster and intra < 2 * inter:
            if not fits(faster, inter):
                break
            intra = faster
    spread = not links.pairs and links.nvlink and count * intra > links.total_gbs + _ROUNDING
    hopper = search.lone_heads and links.capability >= 90
    alone = hopper and spread and not links.nics and links.gpus > 2
    return Channels(count, intra, inter, lone_head=(lone and not relayed) or alone, relayed=relayed)
