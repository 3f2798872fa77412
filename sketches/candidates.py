"""The sketches worth trying for one collective and size, ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.binding import bind
from tuccl.sketches.checks import checked
from tuccl.sketches.congestion import prune_congested, with_congestion
from tuccl.sketches.full_mesh import nvlink_pairs, unmarked_mesh
from tuccl.sketches.grouping import group
from tuccl.sketches.rails import rails
from tuccl.sketches.size import (
    NVLINK_FIRST_BYTES,
    PACKET_BYTES,
    aligned_chunks,
    for_size,
    prefer_links,
)
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.sketches.transformation import transform
from tuccl.topology.graph import Topology
from tuccl.units import Size, size_bytes

__all__ = ["candidate_sketches", "rank_estimate_us"]

# Share of the array that crosses to another host, for the estimate that ranks sketches.
_VOLUMES = {
    "allgather": 1.0,
    "reduce-scatter": 1.0,
    "allreduce": 2.0,
    "alltoall": 0.5,
    "broadcast": 1.0,
    "reduce": 1.0,
    "gather": 1.0,
    "scatter": 1.0,
}
_LINKS_PER_EXIT = (4, 2)
# Ranks above which the full mesh has more links than can be looked at.
_MOST_MESHED = 128
_MESSAGE_US = 1.0


class _Named(Protocol):
    """A collective as a value."""

    @property
    def name(self) -> str: ...


def candidate_sketches(
    topology: Topology, collective: str | _Named, size: Size
) -> tuple[Sketch, ...]:
    """Return the sketches to try for `collective` of `size`, the most promising first.

    For several hosts: the paper's three stages with one GPU for each NIC (``one``), with all its
    GPUs (``paired``), with numbers between (``pairs-2``), and with another GPU receiving than
    sending (``split``); the full mesh pruned by congestion (``mesh-congestion-3`` and so on).
    For one host the mesh without its crowded links. Where only some pairs of a host have NVLink,
    each also with NVLink paths alone (``-nvlink``). Sketches are distinct, carry congestion
    scores and the symmetries found, and the full mesh comes last. More than 128 ranks get `rails`
    alone.

    Args:
        topology: The machine.
        collective: It weighs bytes against latency.
        size: The whole array in bytes.

    >>> from tuccl.topology import load_profile
    >>> [sketch.name for sketch in candidate_sketches(load_profile("v100x4"), "allgather", "16M")]
    ['full-mesh']

    Raises:
        InputError: no such collective, or a size below 1.
    """
    collective = collective if isinstance(collective, str) else collective.name
    nbytes = size_bytes(size)
    if collective not in _VOLUMES:
        known = " ".join(_VOLUMES)
        raise InputError(f"collective {collective[:40]!r}: expected one of {known}")
    if topology.ranks > _MOST_MESHED:
        return (_with_chunks(rails(topology), nbytes),)
    mesh = with_congestion(
        prefer_links(unmarked_mesh(topology), nvlink_pairs(topology), NVLINK_FIRST_BYTES),
        topology,
    )
    full = _with_chunks(mesh, nbytes)
    # Sketches differ by their links: of two with the same links, the first says more.
    candidates = {frozenset(full.pairs): (0.0, full)}
    for sketch in _variants(mesh, topology, nbytes):
        pairs = frozenset(sketch.pairs)
        if pairs not in candidates:
            candidate = checked(_with_chunks(with_congestion(sketch, topology), nbytes))
            candidates[pairs] = rank_estimate_us(candidate, collective, nbytes), candidate
    _, *ranked = candidates.values()
    ranked.sort(key=lambda each: round(each[0], 6))
    return (*(sketch for _, sketch in ranked), full)


def _variants(mesh: Sketch, topology: Topology, nbytes: int) -> Iterator[Sketch]:
    """Yield the sketches made from the mesh and, if it differs, from its preferred links alone.

    The latter are candidates at every size; from the preferred size on they are ranked first.
    """
    prune = _across_hosts if mesh.nhosts > 1 else _inside_host
    yield from prune(mesh, topology)
    preferred = for_size(mesh, max(nbytes, NVLINK_FIRST_BYTES))
    if preferred is not mesh:
        for sketch in prune(with_congestion(preferred, topology), topology):
            yield replace(sketch, name=f"{sketch.name}-nvlink")


def _across_hosts(mesh: Sketch, topology: Topology) -> Iterator[Sketch]:
    try:
        bindings = bind(topology)
        grouping = group(topology, bindings)
    except InputError as error:
        # Hosts may be joined by other means than NICs; then only the mesh itself can be pruned.
        yield from _pruned_meshes(replace(mesh, notes=(f"no NIC groups: {error}",)), topology)
        return
    most = max(list(bindings.values()).count(nic) for nic in set(bindings.values()))
    counts = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    for connections in (*counts, None):
        yield transform(topology, bindings, grouping, connections=connections, mesh=mesh)
    if most > 1:
        yield transform(topology, bindings, grouping, connections=1, split=True, mesh=mesh)
    yield from _pruned_meshes(mesh, topology)


def _pruned_meshes(mesh: Sketch, topology: Topology) -> Iterator[Sketch]:
    inter = mesh.nhosts > 1
    worst_score = max((link.congestion for link in mesh.links if link.inter == inter), default=0.0)
    for links in _LINKS_PER_EXIT:
        # A NIC with so many links to each other host; a GPU with so many inside its host.
        score = links * max(1, mesh.nhosts - 1) - 1.0
        if worst_score > score:
            pruned = prune_congested(mesh, topology, score, inter=inter)
            yield replace(pruned, name=f"mesh-congestion-{score:g}")


def _inside_host(mesh: Sketch, topology: Topology) -> Iterator[Sketch]:
    yield replace(mesh, name="mesh")
    if not mesh.switches:
        # Behind a switch a GPU's links share nothing but its own port, whichever are dropped.
        yield from _pruned_meshes(mesh, topology)


def _with_chunks(sketch: Sketch, nbytes: int) -> Sketch:
    share = max(1, nbytes // sketch.ranks)
    chunks = 2 if nbytes >= NVLINK_FIRST_BYTES else 1
    return replace(
        sketch,
        symmetry=symmetries(sketch),
        chunks_per_rank=aligned_chunks(share, chunks, PACKET_BYTES),
        align_bytes=PACKET_BYTES,
    )


def rank_estimate_us(sketch: Sketch, collective: str, nbytes: int) -> float:
    """Return a rough time in us by which candidate sketches are ordered; no prediction.

    Bytes that cross hosts over the NICs that the sketch uses, slowed a tenth for each unit of
    mean congestion, plus latency, plus a microsecond for each message that a NIC has to start,
    plus the hop to the relay where GPUs do not send for themselves. Inside hosts: the same with
    the slowest link instead of NICs.
    """
    links_out = [link for link in sketch.links if link.inter] or list(sketch.links)
    if not links_out:
        return 0.0
    rate, starts = _exits(sketch, links_out)
    crowding = sum(link.congestion for link in links_out) / len(links_out)
    relayed = len({link.src for link in links_out}) < sketch.ranks
    hop = 2 * min((link.alpha_us for link in sketch.links if not link.inter), default=0.0)
    return (
        _VOLUMES[collective] * nbytes / (rate * 1e3) * (1 + crowding / 10 + _stray(sketch, nbytes))
        + max(link.alpha_us for link in links_out)
        + starts * _MESSAGE_US
        + hop * relayed
    )


def _exits(sketch: Sketch, links: list[LogicalLink]) -> tuple[float, int]:
    """Return the GB/s out of the slowest host, and the most links that leave by one NIC or GPU."""
    exit_gbs: dict[tuple[int, str], float] = {}
    starts: Counter[tuple[int, str]] = Counter()
    for link in links:
        exit_ = (sketch.hosts[link.src], link.nics[0] if link.nics else str(link.src))
        exit_gbs[exit_] = max(exit_gbs.get(exit_, 0.0), link.bandwidth_gbs)
        starts[exit_] += 1
    rates: dict[int, float] = {}
    for (host, _), rate in exit_gbs.items():
        rates[host] = rates.get(host, 0.0) + rate
    return min(rates.values()), max(starts.values())


def _stray(sketch: Sketch, nbytes: int) -> float:
    """Return the part of the links inside hosts that the size says not to prefer."""
    intra = [link for link in sketch.links if not link.inter]
    sizes = {link.prefer_from_bytes for link in intra} - {0}
    if not sizes or nbytes < min(sizes):
        return 0.0
    return sum(link.prefer_from_bytes == 0 for link in intra) / len(intra)
