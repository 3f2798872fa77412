"""What the exact method moves, by which links, and which rule stands in the way of it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.demand import demands_of
from tuccl.synth.model.symmetry import Symmetry
from tuccl.synth.taccl.costs import Costs

__all__ = ["Item", "distances", "items_of"]


@dataclass(frozen=True)
class Item:
    """A chunk to be moved.

    Attributes:
        chunk: Its number in the collective.
        origin: The rank that has it.
        targets: The ranks that must get it.
        wires: Numbers of the wires it may take.
    """

    chunk: int
    origin: int
    targets: frozenset[int]
    wires: tuple[int, ...]


def items_of(
    collective: Collective, sketch: Sketch, costs: Costs, chunks_per_rank: int, group: Symmetry
) -> tuple[Item, ...]:
    """Return one of each set of like chunks that move, with the wires the sketch's rules leave it.

    A chunk leaves its host by the senders that may carry it and does not come back; other hosts
    forward it only where the sketch has no link from its host to theirs. A chunk with one target
    takes ways at most one slow link longer than the shortest.

    Raises:
        Infeasible: a chunk cannot reach a rank; names the sketch, chunk, rank and rule.
    """
    rules = _Rules(collective, sketch, costs, chunks_per_rank)
    demands = demands_of(collective, chunks_per_rank)
    return tuple(
        rules.item(chunk, demands[chunk].source, demands[chunk].targets)
        for chunk in group.representatives
        if demands[chunk].targets
    )


def distances(
    costs: Costs, numbers: Iterable[int], starts: Iterable[int], back: bool = False
) -> dict[int, int]:
    """Return the least ns by the wires `numbers` from `starts` to each rank (`back`: to them)."""
    out: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        wire = costs.wires[number]
        ends = (wire.dst, wire.src) if back else (wire.src, wire.dst)
        out.setdefault(ends[0], []).append((ends[1], wire.takes()))
    found: dict[int, int] = {}
    waiting = [(0, start) for start in starts]
    while waiting:
        spent, rank = heapq.heappop(waiting)
        if rank not in found:
            found[rank] = spent
            for other, time in out.get(rank, ()):
                heapq.heappush(waiting, (spent + time, other))
    return found


class _Rules:
    """Which wires are open to a chunk."""

    def __init__(
        self, collective: Collective, sketch: Sketch, costs: Costs, chunks_per_rank: int
    ) -> None:
        self.collective, self.sketch, self.costs = collective, sketch, costs
        self.chunks_per_rank = chunks_per_rank
        self.hosts = sketch.hosts
        self.slack = max((w.takes() for w in costs.wires if not w.inter), default=0)
        self.numbers = range(len(costs.wires))
        self.between = {(self.hosts[w.src], self.hosts[w.dst]) for w in costs.wires if w.inter}

    def item(self, chunk: int, origin: int, targets: frozenset[int]) -> Item:
        open_wires = self._open(chunk, origin, targets)
        near = distances(self.costs, open_wires, [origin])
        for target in sorted(targets):
            if target not in near:
                raise Infeasible(self._reason(chunk, origin, target, open_wires, near))
        if len(targets) == 1:
            open_wires = self._short(open_wires, near, min(targets))
        return Item(chunk, origin, targets, tuple(open_wires))

    def _open(self, chunk: int, origin: int, targets: frozenset[int]) -> list[int]:
        home = self.hosts[origin]
        goals = {self.hosts[t] for t in targets}
        direct = all(goal == home or (home, goal) in self.between for goal in goals)
        place = self._place(chunk, origin, targets)
        return [n for n in self.numbers if self._may(n, origin, goals, place, direct)]

    def _may(self, number: int, origin: int, goals: set[int], place: int, direct: bool) -> bool:
        wire = self.costs.wires[number]
        home, at, to = self.hosts[origin], self.hosts[wire.src], self.hosts[wire.dst]
        if wire.dst == origin:
            return False
        if not wire.inter:
            return at == home or at in goals or not direct
        if to == home or (direct and (at != home or to not in goals)):
            return False
        return self._carries(wire.src, wire.dst, place, at == home)

    def _carries(self, src: int, dst: int, place: int, leaves_home: bool) -> bool:
        """Return whether the relay rule lets a chunk of rank `place` take a wire between hosts."""
        relays = self.sketch.relays
        if not relays:
            return True
        if self.costs.backwards:  # a sum has no owner: the rule only says which ranks send at all
            return bool(relays.get(dst))
        return place in relays.get(src, ()) if leaves_home else bool(relays.get(src))

    def _place(self, chunk: int, origin: int, targets: frozenset[int]) -> int:
        """Return the rank whose chunk it counts as: what a root has, in turn as all of its host."""
        if self.collective.name not in ("broadcast", "scatter"):
            return origin
        near = self.sketch.ranks_of(self.hosts[origin])
        owner = chunk // self.chunks_per_rank
        return near[self.sketch.ranks_of(self.hosts[owner]).index(owner) % len(near)]

    def _short(self, numbers: list[int], near: dict[int, int], target: int) -> list[int]:
        left = distances(self.costs, numbers, [target], back=True)
        most = near[target] + self.slack

        def fits(number: int) -> bool:
            wire = self.costs.wires[number]
            if wire.src not in near or wire.dst not in left or wire.src == target:
                return False
            return near[wire.src] + wire.takes() + left[wire.dst] <= most

        return [number for number in numbers if fits(number)]

    def _reason(
        self, chunk: int, origin: int, target: int, open_wires: list[int], near: dict[int, int]
    ) -> str:
        """Return which chunk cannot get where, and the rule of the sketch at fault."""
        home, goal = self.hosts[origin], self.hosts[target]
        what = f"sketch {self.sketch.name[:60]}: chunk {chunk} of rank {origin}"
        if self.costs.backwards:
            what = f"sketch {self.sketch.name[:60]}: rank {target}'s part of chunk {chunk}"
            origin, target, home, goal = target, origin, goal, home
        crossing = [self.costs.wires[n] for n in open_wires if self.costs.wires[n].inter]
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
            return f"{lost}: {self._relay_fault(origin)}"
        senders = sorted({w.dst if self.costs.backwards else w.src for w in crossing})[:8]
        return (
            f"{lost}: internode_conn has its relays at GPUs {senders}, and no links inside "
            f"host {home} lead from GPU {origin} to them"
        )

    def _relay_fault(self, origin: int) -> str:
        senders = [s for s, carried in sorted(self.sketch.relays.items()) if origin in carried]
        if not senders:
            return (
                "gpus_to_sender_rev_map has no relay for "
                f"GPU {origin}; add it to one of the senders"
            )
        return (
            f"internode_conn has no link out of GPU {senders[0]}, which gpus_to_sender_rev_map "
            f"names as the relay for GPU {origin}"
        )
