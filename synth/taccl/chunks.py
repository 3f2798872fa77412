"""Chunks that TACCL routes, the links they may take, and the rule at fault where there are none."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.demand import demands_of
from tuccl.synth.taccl.costs import LinkCosts
from tuccl.topology.symmetry import (
    LinkGraph,
    Symmetry,
    free_symmetry,
    host_sets,
    rotation,
    set_images,
)


@dataclass(frozen=True)
class Chunk:
    """A chunk to be routed.

    Attributes:
        id: Its number in the collective.
        source: The rank that has it.
        targets: The ranks that must get it.
        links: Numbers of the links it may take.
    """

    id: int
    source: int
    targets: frozenset[int]
    links: tuple[int, ...]


def sketch_symmetry(
    collective: Collective, sketch: Sketch, costs: LinkCosts, chunks_per_rank: int
) -> Symmetry:
    """Return the group that the sketch's symmetries generate, as far as they can all hold.

    A symmetry is left out if it moves a root, changes a cost or a rule, or would have two sends of
    one orbit exclude each other on a link or a port.
    """
    links = costs.links
    graph = LinkGraph(
        costs.ranks,
        ends=[(link.src, link.dst) for link in links],
        costs=[(link.alpha, link.beta, link.inter) for link in links],
        resources=[link.ports for link in links],
        sets=[demand.rank_sets for demand in demands_of(collective, chunks_per_rank)],
    )
    # Hosts go to hosts as a whole, and relays with what they carry to relays.
    rules = host_sets(sketch.hosts)
    rules += [("relay", frozenset({rank}), frozenset(of)) for rank, of in sketch.relays.items()]
    rotations = [rotation(sketch.ranks, *each) for each in sketch.symmetry if not collective.rooted]
    kept = [each for each in rotations if set_images(rules, each) is not None]
    return free_symmetry(graph, kept, exclusive=True)


def representative_chunks(
    collective: Collective,
    sketch: Sketch,
    costs: LinkCosts,
    chunks_per_rank: int,
    symmetry: Symmetry,
) -> tuple[Chunk, ...]:
    """Return one chunk of each orbit that moves, with the links the sketch's rules leave it.

    A chunk leaves its host by the senders that may carry it and does not come back; other hosts
    forward it only where the sketch has no link from its host to theirs. A chunk with one target
    takes routes at most one slow link longer than the shortest.

    Raises:
        Infeasible: a chunk cannot reach a rank; names the sketch, chunk, rank and rule.
    """
    rules = _Rules(collective, sketch, costs, chunks_per_rank)
    demands = demands_of(collective, chunks_per_rank)
    return tuple(
        rules.route(chunk, demands[chunk].source, demands[chunk].targets)
        for chunk in symmetry.representatives
        if demands[chunk].targets
    )


def distances(
    costs: LinkCosts, numbers: Iterable[int], starts: Iterable[int], back: bool = False
) -> dict[int, int]:
    """Return the least ns by the links `numbers` from `starts` to each rank (`back`: to them)."""
    out: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        link = costs.links[number]
        ends = (link.dst, link.src) if back else (link.src, link.dst)
        out.setdefault(ends[0], []).append((ends[1], link.message_ns()))
    times: dict[int, int] = {}
    waiting = [(0, start) for start in starts]
    while waiting:
        spent, rank = heapq.heappop(waiting)
        if rank not in times:
            times[rank] = spent
            for other, time in out.get(rank, ()):
                heapq.heappush(waiting, (spent + time, other))
    return times


class _Rules:
    """The sketch's rules: links that are open to a chunk."""

    def __init__(
        self, collective: Collective, sketch: Sketch, costs: LinkCosts, chunks_per_rank: int
    ) -> None:
        self.collective, self.sketch, self.costs = collective, sketch, costs
        self.chunks_per_rank = chunks_per_rank
        self.hosts = sketch.hosts
        self.slack = max((w.message_ns() for w in costs.links if not w.inter), default=0)
        self.numbers = range(len(costs.links))
        self.between = {(self.hosts[w.src], self.hosts[w.dst]) for w in costs.links if w.inter}

    def route(self, chunk: int, source: int, targets: frozenset[int]) -> Chunk:
        open_links = self._open(chunk, source, targets)
        near = distances(self.costs, open_links, [source])
        for target in sorted(targets):
            if target not in near:
                raise Infeasible(self._reason(chunk, source, target, open_links, near))
        if len(targets) == 1:
            open_links = self._short(open_links, near, min(targets))
        return Chunk(chunk, source, targets, tuple(open_links))

    def _open(self, chunk: int, source: int, targets: frozenset[int]) -> list[int]:
        home = self.hosts[source]
        goals = {self.hosts[t] for t in targets}
        direct = all(goal == home or (home, goal) in self.between for goal in goals)
        owner = self._owner(chunk, source, targets)
        return [n for n in self.numbers if self._allows(n, source, goals, owner, direct)]

    def _allows(self, number: int, source: int, goals: set[int], owner: int, direct: bool) -> bool:
        link = self.costs.links[number]
        home, at, to = self.hosts[source], self.hosts[link.src], self.hosts[link.dst]
        if link.dst == source:
            return False
        if not link.inter:
            return at == home or at in goals or not direct
        if to == home or (direct and (at != home or to not in goals)):
            return False
        return self._relays(link.src, link.dst, owner, at == home)

    def _relays(self, src: int, dst: int, owner: int, leaves_home: bool) -> bool:
        """Return whether the relay rule lets a chunk of rank `owner` take a link between hosts."""
        relays = self.sketch.relays
        if not relays:
            return True
        if self.costs.backwards:  # a sum has no owner: the rule only says which ranks send at all
            return bool(relays.get(dst))
        return owner in relays.get(src, ()) if leaves_home else bool(relays.get(src))

    def _owner(self, chunk: int, source: int, targets: frozenset[int]) -> int:
        """Return the rank whose chunk it counts as: a root's, in turn as of all of its host."""
        if self.collective.name not in ("broadcast", "scatter"):
            return source
        near = self.sketch.ranks_of(self.hosts[source])
        rank = chunk // self.chunks_per_rank
        return near[self.sketch.ranks_of(self.hosts[rank]).index(rank) % len(near)]

    def _short(self, numbers: list[int], near: dict[int, int], target: int) -> list[int]:
        left = distances(self.costs, numbers, [target], back=True)
        most = near[target] + self.slack

        def fits(number: int) -> bool:
            link = self.costs.links[number]
            if link.src not in near or link.dst not in left or link.src == target:
                return False
            return near[link.src] + link.message_ns() + left[link.dst] <= most

        return [number for number in numbers if fits(number)]

    def _reason(
        self, chunk: int, source: int, target: int, open_links: list[int], near: dict[int, int]
    ) -> str:
        """Return the chunk, the rank it cannot reach, and the rule of the sketch at fault."""
        home, goal = self.hosts[source], self.hosts[target]
        what = f"sketch {self.sketch.name[:60]}: chunk {chunk} of rank {source}"
        if self.costs.backwards:
            what = f"sketch {self.sketch.name[:60]}: rank {target}'s part of chunk {chunk}"
            source, target, home, goal = target, source, goal, home
        crossing = [self.costs.links[n] for n in open_links if self.costs.links[n].inter]
        arrived = any(self.hosts[rank] == goal for rank in near) or home == goal
        if arrived and not self.costs.backwards:
            lost = f"{what} cannot reach rank {target}"
            return f"{lost}: no links of the sketch lead there inside host {goal}; add one"
        lost = f"{what} cannot leave host {home} for rank {target}"
        if home == goal:
            return f"{what} cannot reach rank {target}: no links inside host {home} lead there"
        if not any(pair[0] == home for pair in self.between) and not self.costs.backwards:
            return f"{lost}: internode_conn has no link out of host {home}; add a sender"
        if not crossing:
            return f"{lost}: {self._relay_fault(source)}"
        senders = sorted({w.dst if self.costs.backwards else w.src for w in crossing})[:8]
        return (
            f"{lost}: internode_conn has its relays at GPUs {senders}, and no links inside "
            f"host {home} lead from GPU {source} to them"
        )

    def _relay_fault(self, source: int) -> str:
        senders = [s for s, carried in sorted(self.sketch.relays.items()) if source in carried]
        if not senders:
            return (
                "gpus_to_sender_rev_map has no relay for "
                f"GPU {source}; add it to one of the senders"
            )
        return (
            f"internode_conn has no link out of GPU {senders[0]}, which gpus_to_sender_rev_map "
            f"names as the relay for GPU {source}"
        )
