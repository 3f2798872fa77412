"""Differences between two descriptions of a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tuccl.topology.graph import Topology
from tuccl.topology.paths import all_paths
from tuccl.topology.signature import signature

__all__ = ["check"]

_TOLERANCE = 0.1
_MOST_LINES = 20


def check(old: Topology, new: Topology) -> tuple[str, ...]:
    """Return the differences of ``new`` from ``old``, one line each; none where it did not drift.

    Compared are hosts, ranks, models, NICs, the nominal path of every pair of ranks, the signature,
    and, where both topologies hold them, measured rates of links of equal ends (10 % apart counts).

    >>> from tuccl.topology import keep_gpus, load_profile
    >>> t = load_profile("v100x4")
    >>> check(t, t)
    ()
    >>> check(t, keep_gpus(t, [0, 1]))[0]
    '4 GPUs before, 2 now'
    """
    lines = [*_parts(old, new), *_measured(old, new)]
    if old.ranks == new.ranks:
        lines += _ways(old, new)
    if not lines and signature(old) != signature(new):
        lines.append(f"signature {signature(old)} before, {signature(new)} now")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]
    return tuple(lines)


def _parts(old: Topology, new: Topology) -> Iterator[str]:
    before, now = (Counter(str(node.kind) for node in topology.nodes) for topology in (old, new))
    for kind, name in (("gpu", "GPUs"), ("nic", "NICs")):
        if before[kind] != now[kind]:
            yield f"{before[kind]} {name} before, {now[kind]} now"
    if len(old.hosts) != len(new.hosts):
        yield f"{len(old.hosts)} hosts before, {len(new.hosts)} now"
    for rank, (mine, other) in enumerate(zip(old.gpus, new.gpus, strict=False)):
        if mine.model != other.model:
            yield f"rank {rank}: {mine.model or 'unknown model'} before, {other.model} now"


def _ways(old: Topology, new: Topology) -> Iterator[str]:
    now = all_paths(new)
    for (src, dst), path in all_paths(old).items():
        other = now[src, dst]
        if abs(path.bandwidth - other.bandwidth) > 1e-6 * path.bandwidth:
            yield (
                f"rank {src} to {dst}: {path.bandwidth:g} GB/s (nominal) before, "
                f"{other.bandwidth:g} now"
            )
        elif [hop.kind for hop in path.hops] != [hop.kind for hop in other.hops]:
            yield f"rank {src} to {dst}: another kind of path, at the same nominal rate"


def _measured(old: Topology, new: Topology) -> Iterator[str]:
    before = {(link.src, link.dst): link.measured for link in old.links}
    for link in new.links:
        was = before.get((link.src, link.dst))
        if was and link.measured and abs(link.measured - was) > _TOLERANCE * was:
            yield (
                f"link {link.src[:60]} to {link.dst[:60]}: {was:g} GB/s measured before, "
                f"{link.measured:g} now"
            )
