"""Rings that NCCL's search finds, and their speed."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.runtime.nccl.constants import MAX_CHANNELS, Search

__all__ = ["IntraNode", "Rings", "rings_across", "rings_inside"]

_MOST_RINGS = MAX_CHANNELS // 2  # each is comm_channels twice
_LEAST_SHARE = 0.49  # the search stops at speeds below this share of the best
_ROUNDING = 1e-6


@dataclass(frozen=True)
class IntraNode:
    """The links of one node: ``total_gbs`` out of a GPU, ``pairs`` those of each GPU one by one.

    ``pairs`` is empty behind a switch, where any GPU reaches any other at the full rate.
    """

    gpus: int
    nvlink: bool
    capability: int
    link_gbs: float
    total_gbs: float
    pairs: tuple[tuple[float, ...], ...] = ()

    def speeds(self, search: Search, *, across: bool) -> tuple[float, ...]:
        """Return the rates that the search tries for these GPUs, the highest first."""
        _, intra, between = next(row for row in search.speeds if self.capability >= row[0])
        return between if across else intra

    def rings(self, gbs: float) -> int:
        """Return for how many rings of ``gbs`` the links of every GPU leave room."""
        if self.gpus == 1:
            return _MOST_RINGS
        if not self.nvlink:
            return 1 if gbs <= self.total_gbs + _ROUNDING else 0
        rows = self.pairs or ((self.total_gbs,),)
        return min(sum(int(rate / gbs + _ROUNDING) for rate in row) for row in rows)


@dataclass(frozen=True)
class Rings:
    """A number of rings and the rate of each."""

    count: int
    gbs: float


def rings_inside(search: Search, intra: IntraNode) -> Rings:
    """Return the rings on one node.

    >>> search = Search(((0, (40.0, 30.0, 20.0, 12.0), ()),), ())
    >>> rings_inside(search, IntraNode(8, True, 80, 20.0, 240.0))
    Rings(count=12, gbs=20.0)
    """
    if intra.gpus == 1:
        return Rings(1, intra.link_gbs * MAX_CHANNELS)
    speeds = intra.speeds(search, across=False)
    rings = _fastest_rings(speeds, {gbs: intra.rings(gbs) for gbs in speeds}, intra.total_gbs)
    return _duplicated(search, intra, rings)


def rings_across(search: Search, intra: IntraNode, nics: list[float]) -> Rings:
    """Return the rings through several nodes, each in and out by one NIC of a node.

    A GPU's links carry all rings but the one that leaves the node there.
    """
    speeds = intra.speeds(search, across=True)
    passing = 1 - 1 / intra.gpus if intra.nvlink and intra.gpus > 1 else 1.0
    counts = {
        gbs: min(sum(int(nic / gbs + _ROUNDING) for nic in nics), intra.rings(gbs * passing))
        for gbs in speeds
    }
    return _duplicated(search, intra, _fastest_rings(speeds, counts, intra.total_gbs))


def _fastest_rings(speeds: tuple[float, ...], counts: dict[float, int], total_gbs: float) -> Rings:
    """Return the first speed of the largest sum; one ring at the slowest where none fits."""
    rings = Rings(0, 0.0)
    for gbs in speeds:
        if rings.count and gbs / rings.gbs <= _LEAST_SHARE:
            break
        count = min(counts[gbs], _MOST_RINGS)
        if count * gbs > rings.count * rings.gbs + _ROUNDING:
            rings = Rings(count, gbs)
        if rings.count * rings.gbs >= total_gbs - _ROUNDING:
            break
    return rings if rings.count else Rings(1, speeds[-1])


def _duplicated(search: Search, intra: IntraNode, rings: Rings) -> Rings:
    """Return each fast ring as two channels of half its rate (ncclTopoDupChannels)."""
    most = search.spared_above
    spared = most is not None and intra.capability > 80 and rings.count > most
    if rings.gbs < 25 or (spared and rings.gbs < 50):
        return rings
    count = min(2 * rings.count, _MOST_RINGS)
    return Rings(count, rings.gbs / -(-count // rings.count))
