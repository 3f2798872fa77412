"""Differences between two descriptions of a machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Topology
from tuccl.topology.paths import all_paths
from tuccl.topology.signature import signature
from tuccl.topology.subset import keep_gpus

_TOLERANCE = 0.1
_MOST_LINES = 20


def differences(old: Topology, new: Topology) -> tuple[str, ...]:
    """Return the differences of ``new`` from ``old``, one line each; none where it did not drift.

    It compares hosts, ranks, models, NICs, the nominal path of each pair of ranks, the signature,
    and, where both topologies hold them, measured rates of links of equal ends. A measured rate
    changed if it is more than 10 % and more than both spreads apart. Where the network was probed
    in one of the two alone, hosts are compared without it.

    >>> from tuccl.topology import keep_gpus, load_profile
    >>> t = load_profile("v100x4")
    >>> differences(t, t)
    ()
    >>> differences(t, keep_gpus(t, [0, 1]))[0]
    '4 GPUs before, 2 now'
    """
    lines = [*_parts(old, new), *_measured(old, new)]
    if old.ranks == new.ranks and _has_probed_network(old) != _has_probed_network(new):
        lines += [] if lines else _host_differences(old, new)
        return tuple(lines[:_MOST_LINES])
    if old.ranks == new.ranks:
        lines += _path_differences(old, new)
    if not lines and signature(old) != signature(new):
        lines.append(f"signature {signature(old)} before, {signature(new)} now")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]
    return tuple(lines)


def _parts(old: Topology, new: Topology) -> Iterator[str]:
    old_counts, new_counts = (
        Counter(str(node.kind) for node in topology.nodes) for topology in (old, new)
    )
    for kind, name in (("gpu", "GPUs"), ("nic", "NICs")):
        if old_counts[kind] != new_counts[kind]:
            yield f"{old_counts[kind]} {name} before, {new_counts[kind]} now"
    if len(old.hosts) != len(new.hosts):
        yield f"{len(old.hosts)} hosts before, {len(new.hosts)} now"
    for rank, (old_gpu, new_gpu) in enumerate(zip(old.gpus, new.gpus, strict=False)):
        if old_gpu.model != new_gpu.model:
            before, now = (gpu.model or "unknown" for gpu in (old_gpu, new_gpu))
            yield f"rank {rank}: {before} before, {now} now"


def _has_probed_network(topology: Topology) -> bool:
    return any(not link.has_nominal_rate for link in topology.links)


def _host_differences(old: Topology, new: Topology) -> Iterator[str]:
    """Yield the differences of hosts at the same place, each without its network."""
    for old_name, new_name in zip(old.hosts, new.hosts, strict=True):
        before, now = _host(old, old_name), _host(new, new_name)
        if before is not None and now is not None:
            yield from (f"host {new_name[:60]}: {line}" for line in differences(before, now))


def _host(topology: Topology, host: str) -> Topology | None:
    """Return a host alone, None where only the network joins its GPUs."""
    alone = keep_gpus(topology, topology.gpus_of(host))
    try:
        return msgspec.structs.replace(
            alone,
            nodes=tuple(node for node in alone.nodes if node.kind != "switch"),
            links=tuple(link for link in alone.links if link.kind != "network"),
            routes=(),
        )
    except InputError:
        return None


def _path_differences(old: Topology, new: Topology) -> Iterator[str]:
    new_paths = all_paths(new)
    probed = {
        ends
        for topology in (old, new)
        for link in topology.links
        if not link.has_nominal_rate
        for ends in link.directions()
    }
    for (src, dst), path in all_paths(old).items():
        new_path = new_paths.get((src, dst))
        if new_path is None:
            yield f"rank {src} to {dst}: joined only through other GPUs now"
            continue
        # Measured rates vary; `_measured` compares them link by link.
        ends = {(hop.src, hop.dst) for hop in (*path.hops, *new_path.hops)}
        tolerance = 1e-6 if ends.isdisjoint(probed) else math.inf
        if abs(path.bandwidth - new_path.bandwidth) > tolerance * path.bandwidth:
            yield (
                f"rank {src} to {dst}: {path.bandwidth:g} GB/s (nominal) before, "
                f"{new_path.bandwidth:g} now"
            )
        elif [hop.kind for hop in path.hops] != [hop.kind for hop in new_path.hops]:
            yield f"rank {src} to {dst}: another kind of path, at the same nominal rate"


def _measured(old: Topology, new: Topology) -> Iterator[str]:
    old_links = {ends: link for link in old.links for ends in link.directions()}
    for link in new.links:
        for src, dst in link.directions():
            before = old_links.get((src, dst))
            if before is None or before.measured is None or link.measured is None:
                continue
            noise = (before.spread_gbs or 0.0) + (link.spread_gbs or 0.0)
            if abs(link.measured - before.measured) > max(_TOLERANCE * before.measured, noise):
                yield (
                    f"link {src[:60]} to {dst[:60]}: {before.measured:g} GB/s measured before, "
                    f"{link.measured:g} now"
                )
                break  # the other direction is the same link
