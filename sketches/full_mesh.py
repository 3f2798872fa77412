"""The sketch that prunes nothing: every ordered pair of ranks is a link."""

from __future__ import annotations

import itertools
from collections import defaultdict

from msgspec.structs import replace

from tuccl.sketches.congestion import with_congestion
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import all_paths, find_path
from tuccl.topology.relays import Path
from tuccl.topology.signature import signature


def full_mesh(topology: Topology) -> Sketch:
    """Return the sketch in which each rank may send wherever the topology's own paths lead.

    Notes:
        What TuCCL calls the default sketch (II.C): all-to-all connectivity between hosts, and
        nothing said of how the links share NICs. Its links carry congestion scores all the same.
    """
    mesh = with_congestion(unmarked_mesh(topology), topology)
    return replace(mesh, symmetry=symmetries(mesh))


def unmarked_mesh(topology: Topology) -> Sketch:
    """Return the full mesh without congestion scores."""
    hosts = host_numbers(topology)
    paths = all_paths(merge_nics(topology))
    return Sketch(
        name="full-mesh",
        ranks=topology.ranks,
        hosts=hosts,
        links=tuple(
            link_over(path, src, dst, hosts[src] != hosts[dst])
            for (src, dst), path in sorted(paths.items())
        ),
        switches=switches(topology),
        signature=signature(topology),
    )


def host_numbers(topology: Topology) -> tuple[int, ...]:
    """Return the index in `topology.hosts` of each rank's host."""
    index = {host: number for number, host in enumerate(topology.hosts)}
    return tuple(index[topology.host_of(rank)] for rank in range(topology.ranks))


def nvlink_pairs(topology: Topology) -> frozenset[tuple[int, int]]:
    """Return the ordered pairs of ranks of one host whose path is NVLink, xGMI or C2C alone."""
    return frozenset(
        pair
        for host in topology.hosts
        for pair in itertools.permutations(topology.gpus_of(host), 2)
        if (path := find_path(topology, *pair)) is not None
        and all(hop.kind in ("nvlink", "xgmi", "c2c") for hop in path.hops)
    )


def link_over(path: Path, src: int, dst: int, inter: bool) -> LogicalLink:
    """Return the logical link from `src` to `dst` with the costs of the path `path`."""
    return LogicalLink(
        src=src,
        dst=dst,
        inter=inter,
        alpha_us=path.latency,
        beta_us_per_mb=1e3 / path.bandwidth,
        nics=(path.nics[0], path.nics[-1]) if inter and len(path.nics) > 1 else (),
    )


def switches(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host that have links to an NVSwitch, where two or more do."""
    switches = {node.id for node in topology.nodes if node.kind == "nvswitch"}
    rank_of = {gpu.id: rank for rank, gpu in enumerate(topology.gpus)}
    ranks_behind: dict[str, set[int]] = defaultdict(set)
    for link in topology.links:
        for src, dst in link.directions():
            if src in rank_of and dst in switches:
                ranks_behind[topology.host_of(rank_of[src])].add(rank_of[src])
    return tuple(
        tuple(sorted(ranks_behind[host])) for host in topology.hosts if len(ranks_behind[host]) > 1
    )
