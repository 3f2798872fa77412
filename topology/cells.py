"""A host whose ranks are isolated from each other, as the cluster that libraries take it for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.topology.fabric import join_hosts
from tuccl.topology.graph import Link, Node, Topology, quoted
from tuccl.topology.subset import keep_gpus

_PORT, _PORT_GBS = "veth", 10.0  # nominal: a signature does not hang on what was measured


def split_into_cells(
    host: Topology, cells: Sequence[Sequence[int]], gbs: float, latency_us: float
) -> Topology:
    """Return ``host`` with each cell of its ranks for a host, joined by a bridge.

    Ranks keep their numbers, links within a cell stay, and NICs go: a cell reaches the others by a
    port of its own. One cell alone is the host as it is.

    Args:
        host: One host.
        cells: Ranks that share memory, every rank in one cell.
        gbs: Of a cell's port, GB/s per direction, as measured.
        latency_us: From one cell to another, as measured.

    >>> from tuccl.topology import load_profile
    >>> split_into_cells(load_profile("v100x4"), [(0, 1), (2, 3)], 1.5, 20.0).hosts
    ('cell0', 'cell1')

    Raises:
        InputError: there are several hosts, or a rank that is in no cell or in two.
    """
    order = [rank for cell in cells for rank in cell]
    if len(host.hosts) != 1:
        raise InputError(f"topology {quoted(host.name)}: {len(host.hosts)} hosts, expected one")
    if sorted(order) != list(range(host.ranks)):
        raise InputError(f"cells of ranks {order}: expected each of 0 to {host.ranks - 1} once")
    if len(cells) == 1:
        return host
    parts = [_with_port(keep_gpus(host, cell)) for cell in cells]
    names = [f"cell{number}" for number in range(len(cells))]
    joined, _ = join_hosts(parts, names)
    measured: dict[str, float | str] = {"bandwidth": gbs, "measured": gbs}
    measured |= {"latency": latency_us / 2, "source": "measured by TCP"}
    links = [
        msgspec.structs.replace(link, **measured, assumed=False) if link.kind == "network" else link
        for link in joined.links
    ]
    nodes = [
        node if node.rank is None else msgspec.structs.replace(node, rank=order[node.rank])
        for node in joined.nodes
    ]
    return msgspec.structs.replace(
        joined, name=f"{len(cells)} cells of {host.name}", nodes=tuple(nodes), links=tuple(links)
    )


def _with_port(part: Topology) -> Topology:
    """Return a cell with a port in place of its NICs, which each GPU reaches by itself."""
    nics = {node.id for node in part.nodes if node.kind == "nic"}
    nodes = [node for node in part.nodes if node.id not in nics]
    links = [link for link in part.links if not {link.src, link.dst} & nics]
    port = Node(_PORT, "nic", host=part.gpus[0].host, model=_PORT, port_gbs=_PORT_GBS)
    links += [
        Link(gpu.id, _PORT, "pcie", _PORT_GBS, 0.0, duplex=True, assumed=True, source="none")
        for gpu in part.gpus
    ]
    return msgspec.structs.replace(part, nodes=(*nodes, port), links=tuple(links))
