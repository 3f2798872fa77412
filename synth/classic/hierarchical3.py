"""Three phases on lanes: sum inside hosts, sum across hosts on every lane at once, spread inside.

A lane is a way round all hosts: on each host the rank it comes in by and the rank it leaves by.
Each lane has its share of the chunks, so that all NICs work at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.fan_in import FanIn, prefers_aside
from tuccl.synth.classic.hierarchical import part_pieces, require_hosts
from tuccl.synth.classic.host_moves import Gateways, reversed_sketch, run_down, run_up
from tuccl.synth.classic.local_routes import host_path, host_tree, slowest
from tuccl.synth.classic.ring import segment_count, segments
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

__all__ = ["HIERARCHICAL3_COLLECTIVES", "Lane", "hierarchical3", "lanes_of"]


class Lane(NamedTuple):
    """Where a lane comes into and leaves each host; it goes from host h to h + 1."""

    into: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def straight(self) -> bool:
        """Return whether it leaves every host by the rank that it came in by."""
        return self.into == self.out


def hierarchical3(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule that passes chunks from host to host on lanes.

    Raises:
        Infeasible: there is one host only, the links between hosts make no lane, or
            `hierarchical2` does the same.
    """
    require_hosts(problem.sketch, "hierarchical3")
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical3")
    _BUILD[problem.collective.name](trace, problem.sketch, problem.nbytes)
    return trace.schedule()


def lanes_of(sketch: Sketch) -> list[Lane]:
    """Return the lanes of `sketch`.

    There is one for each place in a host that links to the same place in the next, or else one
    for each NIC.

    Raises:
        Infeasible: some host has no link to the next.
    """
    hosts = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    rails = []
    for place in range(min(len(members) for members in hosts)):
        ranks = tuple(members[place] for members in hosts)
        if all(sketch.link(a, b) for a, b in pairwise((*ranks, ranks[0]))):
            rails.append(Lane(ranks, ranks))
    return rails or _lanes_by_nic(sketch)


def _lanes_by_nic(sketch: Sketch) -> list[Lane]:
    gateways = Gateways(sketch)
    used: Counter[object] = Counter()
    crossings: list[list[LogicalLink]] = []
    for host in range(sketch.nhosts):
        following = (host + 1) % sketch.nhosts
        links = gateways.between[host, following]
        if not links:
            raise Infeasible(
                f"hierarchical3: sketch {sketch.name[:60]} has no link from host {host} to host "
                f"{following}; use hierarchical2 or greedy, or allow one"
            )
        count = min(len({gateways.ends(link)[way] for link in links}) for way in (0, 1))
        chosen = []
        for _ in range(count):
            link = min(links, key=partial(_crossing_cost, gateways, used))
            used.update((*gateways.ends(link), ("rank", link.src), ("rank", link.dst)))
            chosen.append(link)
        crossings.append(chosen)
    return [
        Lane(
            tuple(crossings[host - 1][k].dst for host in range(sketch.nhosts)),
            tuple(crossings[host][k].src for host in range(sketch.nhosts)),
        )
        for k in range(min(len(chosen) for chosen in crossings))
    ]


def _crossing_cost(
    gateways: Gateways, used: Counter[object], link: LogicalLink
) -> tuple[float, ...]:
    out, into = gateways.ends(link)
    ranks = used["rank", link.src] + used["rank", link.dst]
    return used[out] + used[into], ranks, link.beta_us_per_mb, link.src, link.dst


class _Timeline:
    """Actions by round; actions of a round run in the order they were added."""

    def __init__(self) -> None:
        self.actions: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time: int, action: Callable[[], None]) -> None:
        self.actions.append((time, len(self.actions), action))

    def run(self) -> None:
        for _, _, action in sorted(self.actions, key=lambda entry: entry[:2]):
            action()


class _Phases:
    """What the phases of all collectives are made of."""

    def __init__(self, trace: Trace, sketch: Sketch, nbytes: int) -> None:
        self.trace = trace
        self.sketch = sketch
        self.nbytes = nbytes
        self.lanes = lanes_of(sketch)
        self.hosts = sketch.nhosts
        self.total = trace.collective.nchunks(trace.chunks_per_rank)
        self.timeline = _Timeline()

    def shares(self) -> Iterator[tuple[Lane, range]]:
        """Yield each lane and its chunks."""
        parts = segments(range(self.total), len(self.lanes))
        yield from zip(self.lanes, parts, strict=False)

    def collect(self, time: int, rank: int, piece: range, *, aside: bool = False) -> int:
        """Sum `piece` over the rank's host on it, from `time` on; return when that is done.

        With `aside` all that meets is added up at one go, whatever its size.
        """
        back = reversed_sketch(self.sketch)
        levels: dict[int, dict[int, list[int]]] = {}
        for parent, child, depth in host_tree(back, rank):
            levels.setdefault(depth, {}).setdefault(parent, []).append(child)
        for _, meetings in sorted(levels.items(), reverse=True):
            for parent, children in meetings.items():
                self.timeline.at(time, partial(self.meet, parent, children, piece, aside))
            time += 1
        return time

    def meet(self, rank: int, senders: list[int], piece: range, aside: bool) -> None:
        aside |= prefers_aside(len(senders), self.nbytes * len(piece) / self.total, len(piece))
        fan = FanIn(self.trace, rank, piece.start, len(piece), aside=aside)
        for sender in senders:
            fan.receive(sender)
        fan.finish()

    def spread(self, time: int, rank: int, piece: range, besides: int = -1) -> None:
        """Send `piece` to all of the rank's host from `time` on (`besides` has it anyway)."""
        tree = host_tree(self.sketch, rank)
        parents = {parent for parent, _, _ in tree}
        for parent, child, depth in tree:
            if child != besides or child in parents:
                self.timeline.at(time + depth - 1, partial(self.send, piece, parent, child))

    def send(self, piece: range, src: int, dst: int) -> None:
        self.trace.send(piece.start, src, dst, count=len(piece))

    def walk(self, piece: range, src: int, dst: int) -> None:
        """Send `piece` from `src` to `dst` of one host."""
        for a, b in pairwise(host_path(self.sketch, src, dst)):
            self.send(piece, a, b)

    def cross(self, lane: Lane, host: int, piece: range, *, adding: bool) -> None:
        """Take `piece` from `host` to the next on `lane`; `adding` sums it there."""
        src, dst = lane.out[host], lane.into[(host + 1) % self.hosts]
        self.walk(piece, lane.into[host], src)
        move = self.trace.reduce if adding else self.trace.send
        move(piece.start, src, dst, count=len(piece))


def _allreduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    phases = _Phases(trace, sketch, nbytes)
    swap = phases.hosts == 2 and all(lane.straight for lane in phases.lanes)
    for lane, chunks in phases.shares():
        if swap:
            for wave, piece in enumerate(segments(chunks, trace.chunks_per_rank)):
                _swap(phases, lane, wave, piece)
            continue
        for block, part in enumerate(segments(chunks, phases.hosts)):
            for wave, piece in enumerate(segments(part, trace.chunks_per_rank)):
                _go_round(phases, lane, wave, piece, block)
    phases.timeline.run()


def _swap(phases: _Phases, lane: Lane, wave: int, piece: range) -> None:
    """Sum on both hosts, exchange the sums, spread: one hop between hosts.

    Every rank of a host sums a part, and all parts set out at once: chains of additions would leave
    the way between hosts idle first, which costs more than touching bytes again.
    """
    one, other = lane.into
    done = max(phases.collect(wave, rank, piece, aside=True) for rank in (one, other))
    exchange = partial(phases.trace.exchange, piece.start, one, other, count=len(piece), last=True)
    phases.timeline.at(done, exchange)
    for rank in (one, other):
        phases.spread(done + 1, rank, piece)


def _go_round(phases: _Phases, lane: Lane, wave: int, piece: range, block: int) -> None:
    """Sum `piece` from host to host, ending on host `block`, then send it round again."""
    hosts = phases.hosts
    done = max(phases.collect(wave, rank, piece) for rank in lane.into)
    for step in range(hosts - 1):
        host = (block + 1 + step) % hosts
        phases.timeline.at(done + step, partial(phases.cross, lane, host, piece, adding=True))
    done += hosts - 1
    for step in range(hosts):
        host = (block + step) % hosts
        phases.spread(done + step, lane.into[host], piece)
        if step < hosts - 1:
            phases.timeline.at(done + step, partial(phases.cross, lane, host, piece, adding=False))


def _lane_segments(phases: _Phases, chunks: range) -> list[range]:
    """Return `chunks` in segments that pass down a lane one behind the other."""
    lane = phases.lanes[0]
    links = ((lane.out[h], lane.into[(h + 1) % phases.hosts]) for h in range(phases.hosts))
    nbytes = phases.nbytes * len(chunks) / phases.total
    count = segment_count(phases.hosts + 1, nbytes, *slowest(phases.sketch, links))
    return segments(chunks, count)


def _broadcast(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    """Deal the buffer out to the lanes; each passes its share on and spreads it everywhere."""
    phases = _Phases(trace, sketch, nbytes)
    root = trace.collective.root
    home = sketch.hosts[root]
    for lane, chunks in phases.shares():
        for wave, piece in enumerate(_lane_segments(phases, chunks)):
            first = lane.out[home]
            phases.timeline.at(wave, partial(phases.walk, piece, root, first))
            phases.spread(wave + 1, first, piece, besides=root)
            for step in range(1, phases.hosts):
                host = (home + step) % phases.hosts
                start = partial(_pass_on, phases, lane, (host - 1) % phases.hosts, piece, first)
                phases.timeline.at(wave + step, start)
                phases.spread(wave + step + 1, lane.into[host], piece)
    phases.timeline.run()


def _pass_on(phases: _Phases, lane: Lane, host: int, piece: range, first: int) -> None:
    if lane.out[host] == first:  # the root's host, where it starts on the way out
        phases.send(piece, first, lane.into[(host + 1) % phases.hosts])
    else:
        phases.cross(lane, host, piece, adding=False)


def _reduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    """Sum each lane's share from host to host, the root's last, and bring it to the root."""
    phases = _Phases(trace, sketch, nbytes)
    root = trace.collective.root
    home = sketch.hosts[root]
    for lane, chunks in phases.shares():
        for wave, piece in enumerate(_lane_segments(phases, chunks)):
            done = max(phases.collect(wave, rank, piece) for rank in lane.into)
            for step in range(phases.hosts - 1):
                host = (home + 1 + step) % phases.hosts
                crossing = partial(phases.cross, lane, host, piece, adding=True)
                phases.timeline.at(done + step, crossing)
            last = partial(phases.walk, piece, lane.into[home], root)
            phases.timeline.at(done + phases.hosts - 1, last)
    phases.timeline.run()


def _require_three_hosts(trace: Trace, sketch: Sketch) -> None:
    if sketch.nhosts == 2:
        raise Infeasible(
            f"hierarchical3: {trace.collective.name} over two hosts is what hierarchical2 does"
        )


def _allgather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_three_hosts(trace, sketch)
    run_down(trace, part_pieces(sketch, trace.chunks_per_rank, around=True))


def _reduce_scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_three_hosts(trace, sketch)
    back = reversed_sketch(sketch)
    run_up(trace, part_pieces(back, trace.chunks_per_rank, around=True), nbytes)


_BUILD: dict[str, Callable[[Trace, Sketch, int], None]] = {
    "allgather": _allgather,
    "reduce-scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
}
HIERARCHICAL3_COLLECTIVES = frozenset(_BUILD)
