"""The sketches worth trying for one collective and size, ranked."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tuccl.errors import InputError
from tuccl.sketches.parameters import (
    MOST_MESHED,
    SketchParameters,
    SketchSpace,
    with_chunks,
)
from tuccl.sketches.rails import RAILS, rails
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.topology.graph import Topology
from tuccl.topology.machines import as_topology
from tuccl.units import Size, size_bytes

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
# What is tried on pruned rails; others have other distances between hosts in `rails`.
_PRUNED_RAILS = frozenset({"allgather", "reduce-scatter", "allreduce"})
_LINKS_PER_EXIT = (4, 2)
# Score inside hosts that share PCIe, where no NVLink can be preferred: four links through a hop.
_CROWD_INSIDE = 3.0
_MESSAGE_US = 1.0


class _Named(Protocol):
    """A collective as a value."""

    @property
    def name(self) -> str: ...


def candidate_sketches(
    topology: Topology | str | os.PathLike[str], collective: str | _Named, size: Size
) -> tuple[Sketch, ...]:
    """Return the sketches to try for `collective` of `size`, the most promising first.

    For several hosts: the paper's three stages with one GPU for each NIC (``one``), with all its
    GPUs (``paired``), with numbers between (``pairs-2``), and with another GPU receiving than
    sending (``split``); the full mesh pruned by congestion (``mesh-congestion-3`` and so on).
    For one host the mesh without its crowded links. Where only some pairs of a host have NVLink,
    each also with NVLink paths alone (``-nvlink``); where none has, without crowded links inside
    (``-inside-3``). Sketches are distinct, carry congestion
    scores and the symmetries found, and the full mesh comes last. More than 128 ranks get `rails`
    for a mesh: of allgathers, reduce-scatters and allreduces those with other paths inside hosts,
    also with fewer GPUs for each NIC (``one-free-nvlink``), and `rails` last.

    Args:
        topology: The machine, or the path of its file.
        collective: It weighs bytes against latency.
        size: The whole array in bytes.

    >>> from tuccl.topology import load_profile
    >>> [sketch.name for sketch in candidate_sketches(load_profile("v100x4"), "allgather", "16M")]
    ['full-mesh']

    Raises:
        InputError: no such collective, or a size below 1.
    """
    sketches, _ = searched_sketches(as_topology(topology), collective, size)
    return sketches


def searched_sketches(
    topology: Topology,
    collective: str | _Named,
    size: Size,
    given: tuple[Sketch, ...] = (),
    solver: bool = False,
) -> tuple[tuple[Sketch, ...], SketchSpace | None]:
    """Return `candidate_sketches`, and the space that they are the starting points of.

    None: more than 128 ranks try no others, or sketches are ``given``, which then stand for
    the candidates before the full mesh. With ``solver`` it has what TACCL's alone heeds.
    """
    collective = collective if isinstance(collective, str) else collective.name
    nbytes = size_bytes(size)
    if collective not in _VOLUMES:
        known = " ".join(_VOLUMES)
        raise InputError(f"collective {collective[:40]!r}: expected one of {known}")
    if topology.ranks > MOST_MESHED and given:
        return given, None
    if topology.ranks > MOST_MESHED:
        last = with_chunks(rails(topology, collective), nbytes, symmetry_known=True)
        if collective not in _PRUNED_RAILS:
            return (last,), None
        space = SketchSpace(topology, nbytes)
        return (*pruned_sketches(space, collective, nbytes), last), None
    space = SketchSpace(topology, nbytes, solver)
    full = space.sketch(SketchParameters().name)
    if given:
        last = next((sketch for sketch in given if sketch.name == full.name), full)
        return (*(sketch for sketch in given if sketch is not last), last), None
    return (*pruned_sketches(space, collective, nbytes), full), space


def pruned_sketches(space: SketchSpace, collective: str, nbytes: int) -> tuple[Sketch, ...]:
    """Return the candidates with fewer links than the mesh of ``space``, the most promising first.

    Sketches differ by their links: of two with the same links, the first says more.
    """
    candidates = {frozenset(space.mesh.pairs): (0.0, space.mesh)}
    for parameters in _starting_points(space):
        pairs = frozenset(space.pruned(parameters).pairs)
        if pairs not in candidates:
            candidate = space.sketch(parameters.name)
            candidates[pairs] = rank_estimate_us(candidate, collective, nbytes), candidate
    _, *ranked = candidates.values()
    ranked.sort(key=lambda each: round(each[0], 6))
    return tuple(sketch for _, sketch in ranked)


def _starting_points(space: SketchSpace) -> Iterator[SketchParameters]:
    """Yield the parameters of the candidates: the paper's stages, and the mesh without crowds."""
    axes = space.axes
    if space.mesh.name == RAILS:
        yield from _on_rails(axes)
        return
    for rest in ({}, *_inside(axes)):
        if "bound" in axes:
            *counts, _ = axes.get("connections", (0,))
            for count in (*counts, 0):
                yield SketchParameters(bound=True, connections=count, **rest)
            if counts:
                yield SketchParameters(bound=True, connections=1, split=True, **rest)
        elif rest and space.mesh.nhosts == 1:
            yield SketchParameters(**rest)
        for score in axes.get("congestion", ()):
            if score is not None and space.links_per_exit(score) in _LINKS_PER_EXIT:
                yield SketchParameters(congestion=score, **rest)


def _on_rails(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[SketchParameters]:
    """Yield those of pruned rails: other links inside hosts, and fewer GPUs for each NIC.

    Fewer GPUs alone gained nothing where it was measured. No relay rule keeps methods out.
    """
    for rest in _inside(axes):
        for count in axes.get("connections", (0,))[:-1]:
            yield SketchParameters(bound=True, connections=count, free=True, **rest)
        yield SketchParameters(**rest)


def _inside(axes: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return the parameters of other links inside hosts than all: NVLink's, or uncrowded ones."""
    if "nvlink" in axes:
        return [{"nvlink": True}]
    crowded = "bound" in axes and _CROWD_INSIDE in axes.get("inside", ())
    return [{"inside": _CROWD_INSIDE}] if crowded else []


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
