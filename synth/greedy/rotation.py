"""Machines that look the same from every block of ranks: what turns into what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuccl.synth.model.network import Network

__all__ = ["Turning", "turning", "unturned"]


@dataclass(frozen=True)
class Turning:
    """Blocks of ranks in a row round a circle, and the wires that take each other's place.

    Attributes:
        blocks: How many; 1 where no symmetry is used.
        ranks: Ranks of a block.
        orbit: For each wire the number of its orbit: the wires that it is turned into.
        crowd: For each orbit how many blocks' messages each of its wires carries.
    """

    blocks: int
    ranks: int
    orbit: tuple[int, ...]
    crowd: tuple[float, ...]


def unturned(wires: Network) -> Turning:
    """Return the one block of all ranks, whose wires are all different."""
    return Turning(1, wires.ranks, tuple(range(len(wires.rates))), (1.0,) * len(wires.rates))


def turning(wires: Network, alphas: Sequence[float]) -> Turning:
    """Return the smallest blocks of whole hosts that the machine looks the same from.

    Args:
        wires: The pairs and their wires.
        alphas: Latency of each pair in us.

    >>> from tuccl.synth.model.network import sketch_network
    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology.reference import a100_pod
    >>> t = a100_pod(4)
    >>> sketch = full_mesh(t)
    >>> turning(sketch_network(sketch, t), [link.alpha_us for link in sketch.links]).blocks
    4
    """
    ranks, host = wires.ranks, wires.hosts.count(wires.hosts[0])
    for size in range(host, ranks // 2 + 1, host):
        if ranks % size == 0 and (found := _turned_by(wires, alphas, size)) is not None:
            return found
    return unturned(wires)


def _turned_by(wires: Network, alphas: Sequence[float], by: int) -> Turning | None:
    """Return how wires turn with ranks `by` on; None where the machine does not look the same."""
    ranks, after = wires.ranks, [-1] * len(wires.rates)
    if not _hosts_turn(wires.hosts, by):
        return None
    for place, (src, dst) in enumerate(wires.pairs):
        turned = wires.index.get(((src + by) % ranks, (dst + by) % ranks))
        if turned is None or alphas[turned] != alphas[place]:
            return None
        ways = wires.routes[place], wires.routes[turned]
        if len(ways[0]) != len(ways[1]):
            return None
        for one, other in zip(*ways, strict=True):
            if after[one] not in (-1, other) or wires.rates[one] != wires.rates[other]:
                return None
            after[one] = other
    return _orbits(after, ranks // by, by)


def _hosts_turn(hosts: Sequence[int], by: int) -> bool:
    """Return whether ranks of one host are on one host after the turn too, and others are not."""
    turned = {(host, hosts[(rank + by) % len(hosts)]) for rank, host in enumerate(hosts)}
    return len(turned) == len({host for host, _ in turned}) == len({host for _, host in turned})


def _orbits(after: Sequence[int], blocks: int, ranks: int) -> Turning:
    orbit = [-1] * len(after)
    count = 0
    for first in range(len(after)):
        if orbit[first] >= 0:
            continue
        wire = first
        while wire >= 0 and orbit[wire] < 0:
            orbit[wire] = count
            wire = after[wire]
        count += 1
    sizes = Counter(orbit)
    crowd = tuple(blocks / sizes[number] for number in range(count))
    return Turning(blocks, ranks, tuple(orbit), crowd)
