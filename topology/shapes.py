"""Machines made by a rule: NVLink domains of several trays, tori and meshes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Link, Node, Topology, quoted

_ICI_GBS = 50.0  # Google: 400 GB/s both ways over four links (v5e), TPU v4 alike over six
_ICI_US = 1.0
_MOST_DIMENSIONS = 3
_MOST_RANKS = 1024


def nvlink_domain(tray: Topology, trays: int) -> Topology:
    """Return ``trays`` copies of the host ``tray`` whose NVSwitches are one.

    The trays are one host, for NCCL counts the GPUs of an NVLink domain as one node; ids get the
    tray in front (``t1/gpu0``). `join` then joins such racks through their NICs.

    >>> from tuccl.topology import load_profile, path
    >>> rack = nvlink_domain(load_profile("gb200"), 18)
    >>> rack.ranks, rack.hosts, path(rack, 0, 71).bandwidth
    (72, ('n0',), 900.0)

    Raises:
        InputError: ``tray`` has no NVSwitch or is a cluster, or there are too many GPUs.
    """
    switches = [node for node in tray.nodes if node.kind == "nvswitch"]
    if not switches or len(tray.hosts) != 1:
        raise InputError(
            f"topology {quoted(tray.name)}: an NVLink domain is made of hosts with an NVSwitch"
        )
    if not 1 <= trays <= _MOST_RANKS // tray.ranks:
        raise InputError(
            f"{trays} trays of {tray.ranks} GPUs: expected 1 to {_MOST_RANKS // tray.ranks} trays"
        )
    shared = {switch.id for switch in switches}

    def name(node_id: str, number: int) -> str:
        return node_id if node_id in shared else f"t{number}/{node_id}"

    nodes, links = list(switches), []
    for number in range(trays):
        for node in tray.nodes:
            if node.id not in shared:
                rank = None if node.rank is None else node.rank + number * tray.ranks
                nodes.append(msgspec.structs.replace(node, id=name(node.id, number), rank=rank))
        for link in tray.links:
            src, dst = name(link.src, number), name(link.dst, number)
            if number == 0 or not {link.src, link.dst} <= shared:
                links.append(msgspec.structs.replace(link, src=src, dst=dst))
    rank_count = trays * tray.ranks
    return Topology(f"{tray.name}-nvl{rank_count}"[:255], tuple(nodes), tuple(links))


def torus(
    shape: Sequence[int], gbs: float = _ICI_GBS, latency_us: float = _ICI_US, *, wrap: bool = True
) -> Topology:
    """Return accelerators in a grid of ``shape``, each joined to its neighbours alone.

    Ranks rise fastest along the last dimension. Data passes other accelerators on its way, so
    programs, not links, carry it beyond a neighbour.

    Args:
        shape: Two or three sizes, such as (4, 4, 4).
        gbs: Of a link, in GB/s per direction.
        latency_us: Of a link.
        wrap: Whether the ends of each dimension are joined (a torus) or not (a mesh).

    >>> torus((4, 4)).ranks, len(torus((4, 4)).links), len(torus((4, 4), wrap=False).links)
    (16, 32, 24)

    Raises:
        InputError: the shape has another number of dimensions, or too many or too few ranks.
    """
    text = "x".join(map(str, shape))
    ranks = math.prod(shape)
    if not 2 <= len(shape) <= _MOST_DIMENSIONS or min(shape) < 1 or not 2 <= ranks <= _MOST_RANKS:
        raise InputError(
            f"shape {quoted(text)}: expected two or three sizes, 2 to {_MOST_RANKS} in all, "
            "like 4x4x4"
        )
    places = list(itertools.product(*map(range, shape)))
    rank_of = {place: rank for rank, place in enumerate(places)}
    nodes = tuple(Node(f"gpu{rank}", "gpu", "n0", rank) for rank in range(ranks))
    source = "TPU v4 and v5e: 50 GB/s a link and direction; about 1 us a hop, estimate"
    links = []
    for place in places:
        for axis, size in enumerate(shape):
            after = (place[axis] + 1) % size
            # Two in a row are joined once: around is the same link.
            if after > place[axis] or (wrap and size > 2):
                to = rank_of[*place[:axis], after, *place[axis + 1 :]]
                ends = f"gpu{rank_of[place]}", f"gpu{to}"
                links.append(Link(*ends, "nvlink", gbs, latency_us, True, True, source))
    return Topology(f"{'torus' if wrap else 'mesh'}-{text}", nodes, tuple(links))
