"""The sketch that prunes nothing: every ordered pair of ranks is a link."""

from __future__ import annotations

import itertools
from collections import defaultdict

from msgspec.structs import replace

from tuccl.sketches.congestion import with_congestion
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.topology.graph import Topology
from tuccl.topology.paths import Path, all_paths
from tuccl.topology.signature import signature

__all__ = ["full_mesh", "host_numbers", "link_over", "nvlink_pairs", "switches", "unmarked_mesh"]


def full_mesh(t: Topology) -> Sketch:
    """Return the sketch in which each rank may send wherever the topology's own paths lead.

    Notes:
        What TuCCL calls the default sketch (II.C): all-to-all connectivity between hosts, and
        nothing said of how the links share NICs. Its links carry congestion scores all the same.
    """
    mesh = with_congestion(unmarked_mesh(t), t)
    return replace(mesh, symmetry=symmetries(mesh))


def unmarked_mesh(t: Topology) -> Sketch:
    """Return the full mesh without congestion scores."""
    hosts = host_numbers(t)
    paths = all_paths(t)
    return Sketch(
        name="full-mesh",
        ranks=t.ranks,
        hosts=hosts,
        links=tuple(
            link_over(way, src, dst, hosts[src] != hosts[dst])
            for (src, dst), way in sorted(paths.items())
        ),
        switches=switches(t),
        signature=signature(t),
    )


def host_numbers(t: Topology) -> tuple[int, ...]:
    """Return the index in `t.hosts` of each rank's host."""
    index = {host: number for number, host in enumerate(t.hosts)}
    return tuple(index[t.host_of(rank)] for rank in range(t.ranks))


def nvlink_pairs(t: Topology) -> frozenset[tuple[int, int]]:
    """Return the ordered pairs of ranks of one host whose path is NVLink, xGMI or C2C alone."""
    paths = all_paths(t)
    return frozenset(
        (src, dst)
        for host in t.hosts
        for src, dst in itertools.permutations(t.gpus_of(host), 2)
        if (src, dst) in paths
        and all(hop.kind in ("nvlink", "xgmi", "c2c") for hop in paths[src, dst].hops)
    )


def link_over(way: Path, src: int, dst: int, inter: bool) -> LogicalLink:
    """Return the logical link from `src` to `dst` with the costs of the path `way`."""
    return LogicalLink(
        src=src,
        dst=dst,
        inter=inter,
        alpha_us=way.latency,
        beta_us_per_mb=1e3 / way.bandwidth,
        nics=(way.nics[0], way.nics[-1]) if inter and len(way.nics) > 1 else (),
    )


def switches(t: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host that have links to an NVSwitch, where two or more do."""
    switches = {node.id for node in t.nodes if node.kind == "nvswitch"}
    rank_of = {gpu.id: rank for rank, gpu in enumerate(t.gpus)}
    behind: dict[str, set[int]] = defaultdict(set)
    for link in t.links:
        for src, dst in link.directions():
            if src in rank_of and dst in switches:
                behind[t.host_of(rank_of[src])].add(rank_of[src])
    return tuple(tuple(sorted(behind[host])) for host in t.hosts if len(behind[host]) > 1)
