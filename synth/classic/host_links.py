"""The links between hosts: the one that each chunk takes, and lanes through all hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.local_routes import link_nics


class HostLinks:
    """The links between each two hosts of a sketch, and how often each NIC is used so far."""

    def __init__(self, sketch: Sketch) -> None:
        """Start with every NIC unused."""
        self.sketch = sketch
        self.uses: Counter[tuple[str, str]] = Counter()
        self.between: dict[tuple[int, int], list[LogicalLink]] = defaultdict(list)
        self.local_rank = {
            rank: index
            for host in range(sketch.nhosts)
            for index, rank in enumerate(sketch.ranks_of(host))
        }
        for link in sketch.links:
            if link.inter:
                self.between[sketch.hosts[link.src], sketch.hosts[link.dst]].append(link)

    def choose(self, owner: int, at: int, host: int, target: int | None = None) -> LogicalLink:
        """Return the link for `owner`'s chunk, now on rank `at`, to `host` (preferably `target`).

        The link that starts (or ends) at the right rank comes first, then the least used NICs.

        Raises:
            Infeasible: no link of the sketch may carry it there.
        """
        links = self.between[self.sketch.hosts[at], host]
        allowed = [link for link in links if self.may_carry(link, owner)]
        if not allowed:
            raise Infeasible(
                f"sketch {self.sketch.name[:60]}: no link may carry chunks of rank {owner} from "
                f"host {self.sketch.hosts[at]} to host {host}; use method greedy, or allow one"
            )
        goal = self.local_rank[at if target is None else target]

        def cost(link: LogicalLink) -> tuple[float, ...]:
            out, into = link_nics(self.sketch, link)
            return (
                link.dst != target if target is not None else 0,
                link.src != at if target is None else self.local_rank[link.src] != goal,
                self.uses[out] + self.uses[into],
                self.local_rank[link.dst] != goal,
                link.beta_us_per_mb,
                link.src,
                link.dst,
            )

        cheapest = min(allowed, key=cost)
        self.uses.update(link_nics(self.sketch, cheapest))
        return cheapest

    def may_carry(self, link: LogicalLink, owner: int) -> bool:
        """Return whether the relay rule lets `link` carry `owner`'s chunks off their host."""
        if self.sketch.hosts[link.src] != self.sketch.hosts[owner]:
            return True  # passing through: the rule is about the owner's host
        carried = self.sketch.relays.get(link.src, ())
        return not carried or owner == link.src or owner in carried


class Lane(NamedTuple):
    """A ring through all hosts, from host h to h + 1: its ranks of entry to and exit from each."""

    entries: tuple[int, ...]
    exits: tuple[int, ...]


def lanes_of(sketch: Sketch) -> list[Lane]:
    """Return the lanes of `sketch`, each of which uses other NICs.

    There is one for each local rank that links to the same local rank of the next host, or else
    one for each NIC.

    Raises:
        Infeasible: some host has no link to the next.
    """
    hosts = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    rails = [
        Lane(ranks, ranks)
        for ranks in zip(*hosts, strict=False)
        if all(sketch.link(a, b) for a, b in pairwise((*ranks, ranks[0])))
    ]
    return rails or _lanes_by_nic(sketch)


def _lanes_by_nic(sketch: Sketch) -> list[Lane]:
    between = HostLinks(sketch).between
    uses: Counter[object] = Counter()

    def cost(link: LogicalLink) -> tuple[float, ...]:
        out, into = link_nics(sketch, link)
        ranks = uses["rank", link.src] + uses["rank", link.dst]
        return uses[out] + uses[into], ranks, link.beta_us_per_mb, link.src, link.dst

    crossings: list[list[LogicalLink]] = []
    for host in range(sketch.nhosts):
        following = (host + 1) % sketch.nhosts
        links = between[host, following]
        if not links:
            raise Infeasible(
                f"hierarchical3: sketch {sketch.name[:60]} has no link from host {host} to host "
                f"{following}; use hierarchical2 or greedy, or allow one"
            )
        nics = zip(*(link_nics(sketch, link) for link in links), strict=True)
        crossings.append([])
        for _ in range(min(len(set(ends)) for ends in nics)):
            link = min(links, key=cost)
            uses.update((*link_nics(sketch, link), ("rank", link.src), ("rank", link.dst)))
            crossings[host].append(link)
    return [
        Lane(
            tuple(link.dst for link in (links[-1], *links[:-1])), tuple(link.src for link in links)
        )
        for links in zip(*crossings, strict=False)
    ]
