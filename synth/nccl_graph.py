"""The orders of ranks that NCCL's channels follow on a topology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tuccl.sketches import bind
from tuccl.topology import Path, Topology, all_paths

__all__ = ["Chain", "chains", "nccl_channels"]

# Extensions of a partial chain tried at one width before a narrower one is allowed.
_MOST_EXTENSIONS = 20_000
# Rate in GB/s that NCCL gives a ring on NVLink: one link of 25 GB/s (spec/cost-model.md 1.5 and 2).
_RING_GBS = 25.0
_MOST_CHANNELS = 32


class Chain(NamedTuple):
    """The GPUs of one host in the order in which a ring passes them.

    Attributes:
        ranks: From the one where data enters to the one where it leaves.
        head: The one next to the channel's NIC in the tree, one of the two ends.
    """

    ranks: tuple[int, ...]
    head: int

    @property
    def from_head(self) -> tuple[int, ...]:
        """Return the ranks with the head first."""
        return self.ranks if self.ranks[0] == self.head else self.ranks[::-1]


def nccl_channels(t: Topology) -> int:
    """Return how many channels NCCL is taken to open on `t`, a first estimate.

    Notes:
        Inside one host as many rings as a GPU has 25 GB/s NVLinks, between hosts as many as a host
        has NICs in use; NCCL doubles either to have more blocks at work, up to 32 channels. That
        gives 12 on a DGX-1V, 24 on a DGX A100 and 2 on two NDv2, as NCCL reports there.
    """
    rings = len(_nics(t, t.hosts[0])) if len(t.hosts) > 1 else _nvlink_rings(t)
    return min(_MOST_CHANNELS, 2 * max(1, rings))


def _nvlink_rings(t: Topology) -> int:
    first = t.gpus[0].id
    fast = ("nvlink", "xgmi", "c2c")
    total = sum(
        link.bandwidth for link in t.links if first in link.directions()[0] and link.kind in fast
    )
    one_way = any(first == link.dst and not link.duplex and link.kind in fast for link in t.links)
    return round(total / (2 if one_way else 1) / _RING_GBS)


def chains(t: Topology, channels: int) -> list[tuple[Chain, ...]]:
    """Return for each channel the chain of each host; chained one after another they are its ring.

    Notes:
        Channel n leaves hosts by their NIC n modulo the number of NICs. A ring enters a host at a
        GPU of that NIC and leaves it at another GPU of the same or the next NIC, the other way
        round on every second host, so that each hop between hosts keeps to its rail.
    """
    used: dict[tuple[int, int], int] = defaultdict(int)
    result = []
    for channel in range(channels):
        hosts = []
        for number, host in enumerate(t.hosts):
            entry, leave = _ends(t, host, channel)
            if number % 2:
                entry, leave = (leave if leave is not None else entry), entry
            ranks = _chain(t, host, entry, leave, used)
            hosts.append(Chain(ranks, ranks[-1] if number % 2 else ranks[0]))
        result.append(tuple(hosts))
    return result


def _nics(t: Topology, host: str) -> list[tuple[int, ...]]:
    """Return the ranks bound to each NIC in use on a host."""
    bound: dict[str, list[int]] = defaultdict(list)
    bindings = bind(t)
    for rank in t.gpus_of(host):
        if rank in bindings:
            bound[bindings[rank]].append(rank)
    return [tuple(bound[nic]) for nic in t.nics_of(host) if nic in bound]


def _ends(t: Topology, host: str, channel: int) -> tuple[int, int | None]:
    """Return where a channel enters and leaves a host; None where its ring closes inside it."""
    ranks = t.gpus_of(host)
    if len(t.hosts) == 1:
        return ranks[channel % len(ranks)], None
    nics = _nics(t, host) or [ranks]
    nic = nics[channel % len(nics)]
    if len(ranks) == 1:
        return ranks[0], ranks[0]
    if len(nic) > 1:
        return nic[0], nic[1]
    following = nics[(channel + 1) % len(nics)][0]
    other = following if following != nic[0] else next(r for r in ranks if r != nic[0])
    return nic[0], other


def _chain(
    t: Topology, host: str, entry: int, leave: int | None, used: dict[tuple[int, int], int]
) -> tuple[int, ...]:
    """Return an order of the host's ranks over the widest links; counts what it uses."""
    ranks = t.gpus_of(host)
    paths = all_paths(t)
    widths = {
        (src, dst): _width(paths[src, dst], used[src, dst])
        for src in ranks
        for dst in ranks
        if src != dst
    }
    order = ranks
    for least in sorted(set(widths.values()), reverse=True):
        found = next(_orders(ranks, entry, leave, widths, least), None)
        if found is not None:
            order = found
            break
    for pair in zip(order, order[1:] + (order[:1] if leave is None else ()), strict=False):
        used[pair] += 1
    return order


def _width(path: Path, used: int) -> float:
    """Return the GB/s that a direct link has left for one more ring; a switch serves all alike."""
    return path.bandwidth / (1 + used) if len(path.hops) == 1 else path.bandwidth


def _orders(
    ranks: tuple[int, ...],
    entry: int,
    leave: int | None,
    widths: dict[tuple[int, int], float],
    least: float,
) -> Iterator[tuple[int, ...]]:
    """Yield orders from `entry` to `leave`, or closed, over links of at least the width."""
    waiting = [(entry,)]
    for _ in range(_MOST_EXTENSIONS):
        if not waiting:
            return
        order = waiting.pop()
        if len(order) == len(ranks):
            closed = leave is not None or widths.get((order[-1], entry), least) >= least
            if closed and (leave is None or order[-1] == leave):
                yield order
            continue
        start = ranks.index(order[-1])
        for rank in (ranks[start:] + ranks[:start])[:0:-1]:
            early = rank == leave and len(order) < len(ranks) - 1
            if rank not in order and not early and widths[order[-1], rank] >= least:
                waiting.append((*order, rank))
