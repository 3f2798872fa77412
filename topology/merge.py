"""Merging NICs: the ports of one card, or all NICs that a GPU's channels take in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import permutations

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.topology.graph import FixedRoute, Node, Topology, quoted
from tuccl.topology.nics import nearest_nics, own_nics, tied_via
from tuccl.topology.relays import RelayPaths

MERGE_LEVELS = ("port", "gpu")
_MOST_CHARACTERS = 255


def merge_nics(topology: Topology, level: str = "gpu") -> Topology:
    """Return ``topology`` with NICs merged into one of the sum of their rates.

    Switches and bridges that join the same parts once the NICs are one are merged as well.
    Where nothing is to be merged, that is ``topology`` itself.

    Args:
        topology: The machine.
        level: ``port``: ports of one card, as NCCL 2.27 and later merge them
            (NCCL_NET_MERGE_LEVEL); ``gpu``: all NICs of a GPU, as aws-ofi-nccl does. Programs are
            planned on the latter: channels use a GPU's NICs evenly. NICs that the topology's fixed
            routes pass stay apart there.

    >>> from tuccl.topology import load_profile
    >>> [nic.port_gbs for nic in merge_nics(load_profile("p5")).nodes if nic.kind == "nic"][:2]
    [50.0, 50.0]

    Raises:
        InputError: no such level.
    """
    if level not in MERGE_LEVELS:
        raise InputError(f"merge level {quoted(level)}: expected one of {', '.join(MERGE_LEVELS)}")
    if level == "gpu":
        return topology.derived(MergedNics).topology
    return _contracted(topology, _representatives(topology, _cards(topology)))


class MergedNics:
    """A topology with the NICs of each GPU merged.

    Attributes:
        topology: The merged one, or the same where each GPU has one NIC.
        members: For each merged NIC, switch or bridge the ids of its parts, in the file's order.
    """

    def __init__(self, topology: Topology) -> None:
        """Merge the NICs of each GPU of ``topology``."""
        merged = _representatives(topology, _shared_sets(topology))
        nics = {rank: merged.get(own[0], own[0]) for rank, own in own_nics(topology).items()}
        bare = _contracted(topology, merged)
        ties = tuple(_tie_routes(bare, nics)) if merged else ()
        self.topology = replace(bare, routes=bare.routes + ties) if ties else bare
        members: dict[str, list[str]] = defaultdict(list)
        for node in topology.nodes:
            if node.id in merged:
                members[merged[node.id]].append(node.id)
        self.members = {name: tuple(parts) for name, parts in members.items()}


def _shared_sets(topology: Topology) -> list[set[str]]:
    """Return disjoint sets of NICs that channels of one GPU or of several take in turn."""
    pinned = {node for route in topology.routes for node in route.via}
    sets: list[set[str]] = []
    for nics in own_nics(topology).values():
        if len(nics) > 1 and not pinned & set(nics):
            touched = [each for each in sets if each & set(nics)]
            sets = [each for each in sets if not each & set(nics)]
            sets.append(set(nics).union(*touched))
    return sets


def _tie_routes(merged: Topology, nics: dict[int, str]) -> Iterator[FixedRoute]:
    """Yield routes by the GPUs' own merged NICs where others are as near, as `join` fixes them."""
    nearest = {rank: nearest_nics(merged, rank) for rank in nics}
    fixed = {(route.src, route.dst) for route in merged.routes}
    relays = merged.derived(RelayPaths)
    for src, dst in permutations(nics, 2):
        ends = merged.gpus[src].id, merged.gpus[dst].id
        near = merged.host_of(src) == merged.host_of(dst) or ends in fixed or ends in relays.hops
        if near or len(nearest[src]) == len(nearest[dst]) == 1:
            continue
        if (path := relays.between(*ends)) is not None:
            via = tied_via(merged, path, ends, nics[src], [nics[dst], *nearest[dst]])
            if via is not None:
                yield FixedRoute(*ends, via)


def _cards(topology: Topology) -> list[set[str]]:
    """Return the NICs of each card, which is a bridge with a model."""
    nics = {node.id for node in topology.nodes if node.kind == "nic"}
    ports = _neighbours(topology)
    cards = (node.id for node in topology.nodes if node.kind == "pcie" and node.model)
    return [ports[card] & nics for card in cards if len(ports[card] & nics) > 1]


def _neighbours(topology: Topology) -> dict[str, set[str]]:
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in topology.links:
        neighbours[link.src].add(link.dst)
        neighbours[link.dst].add(link.src)
    return neighbours


def _representatives(topology: Topology, sets: Iterable[set[str]]) -> dict[str, str]:
    """Return the new id of each NIC of ``sets``, and of each relay that becomes one with others."""
    merged: dict[str, str] = {}
    for nics in sets:
        merged |= dict.fromkeys(nics, _name(topology, nics))
    neighbours = _neighbours(topology)
    relays = [node for node in topology.nodes if node.kind in ("pcie", "switch")]
    before = -1
    while len(merged) > before:
        before = len(merged)
        alike: dict[tuple[str | None, frozenset[str]], set[str]] = defaultdict(set)
        for node in relays:
            if node.id not in merged and not neighbours[node.id].isdisjoint(merged):
                joined = frozenset(merged.get(each, each) for each in neighbours[node.id])
                alike[node.host, joined].add(node.id)
        for ids in alike.values():
            if len(ids) > 1:
                merged |= dict.fromkeys(ids, _name(topology, ids))
    return merged


def _name(topology: Topology, ids: set[str]) -> str:
    """Return an id for all of ``ids``: ``n0/nic0+nic1``, or the first's where that is too long."""
    first, *others = [node.id for node in topology.nodes if node.id in ids]
    name = "+".join([first, *(other.rpartition("/")[2] for other in others)])
    taken = len(name) > _MOST_CHARACTERS or any(node.id == name for node in topology.nodes)
    return first if taken else name


def _contracted(topology: Topology, merged: dict[str, str]) -> Topology:
    if not merged:
        return topology
    parts: dict[str, list[Node]] = defaultdict(list)
    for node in topology.nodes:
        parts[merged.get(node.id, node.id)].append(node)
    links = [
        replace(link, src=merged.get(link.src, link.src), dst=merged.get(link.dst, link.dst))
        for link in topology.links
    ]
    routes = (
        FixedRoute(r.src, r.dst, tuple(dict.fromkeys(merged.get(n, n) for n in r.via)))
        for r in topology.routes
    )
    return replace(
        topology,
        nodes=tuple(_one(name, nodes) for name, nodes in parts.items()),
        links=tuple(link for link in links if link.src != link.dst),
        routes=tuple(routes),
    )


def _one(name: str, nodes: list[Node]) -> Node:
    """Return the one node that stands for ``nodes``."""
    if len(nodes) == 1:
        return nodes[0]
    ports = [node.port_gbs for node in nodes if node.port_gbs is not None]
    devices = "+".join(node.device or "" for node in nodes)
    return replace(
        nodes[0],
        id=name,
        port_gbs=sum(ports) if len(ports) == len(nodes) else None,
        device=devices if devices.strip("+") and len(devices) <= _MOST_CHARACTERS else None,
        guid=None,
    )
