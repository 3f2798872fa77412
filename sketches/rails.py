"""The sketch of very many ranks: links inside hosts, and between equal places of hosts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.congestion import with_congestion
from tuccl.sketches.full_mesh import host_numbers, link_over, switches
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import find_path
from tuccl.topology.signature import signature


def rails(topology: Topology) -> Sketch:
    """Return the sketch whose links join ranks of one host, or of equal place on their hosts.

    The full mesh of many ranks has more links than can be looked at: a million of 1,024 ranks.

    >>> from tuccl.topology import join, load_profile
    >>> len(rails(join(load_profile("dgx-a100"), 4)).links)  # 4 hosts of 56, 8 rails of 12
    320

    Raises:
        InputError: the topology joins no such ranks.
    """
    links = tuple(_links(merge_nics(topology)))
    if not links:
        raise InputError(
            f"topology {topology.name[:60]!r}: no links inside hosts nor between equal places"
        )
    sketch = Sketch(
        name="rails",
        ranks=topology.ranks,
        hosts=host_numbers(topology),
        links=links,
        switches=switches(topology),
        signature=signature(topology),
    )
    sketch = with_congestion(sketch, topology)
    return replace(sketch, symmetry=symmetries(sketch))


def _links(topology: Topology) -> Iterator[LogicalLink]:
    hosts = host_numbers(topology)
    rail_of: dict[int, list[int]] = defaultdict(list)
    for host in topology.hosts:
        for place, rank in enumerate(topology.gpus_of(host)):
            rail_of[place].append(rank)
    sets = [*(topology.gpus_of(host) for host in topology.hosts), *rail_of.values()]
    for src, dst in sorted(pair for ranks in sets for pair in itertools.permutations(ranks, 2)):
        route = find_path(topology, src, dst)
        if route is not None:  # else only other GPUs join them
            yield link_over(route, src, dst, hosts[src] != hosts[dst])
