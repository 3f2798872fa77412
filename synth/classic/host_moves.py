"""How one rank's part reaches everybody: inside its host, across to the others, inside those."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.fan_in import FanIn, prefers_aside
from tuccl.synth.classic.local_routes import host_tree
from tuccl.synth.model.trace import Trace

__all__ = ["Gateways", "Move", "Piece", "reversed_sketch", "run_down", "run_up", "spread_moves"]


class Move(NamedTuple):
    """A part goes from `src` to `dst` in round `time`; rounds count up along its way."""

    time: int
    src: int
    dst: int


class Piece(NamedTuple):
    """A run of chunks that moves as one, the moves of its way, and when it sets out."""

    chunk: int
    length: int
    start: int
    moves: tuple[Move, ...]


class Gateways:
    """Which link a chunk leaves one host for another by: what is bound, then what is least used."""

    def __init__(self, sketch: Sketch) -> None:
        """Start with every link unused."""
        self.sketch = sketch
        self.uses: Counter[tuple[str, str]] = Counter()
        self.between: dict[tuple[int, int], list[LogicalLink]] = defaultdict(list)
        self.local = {
            rank: place
            for host in range(sketch.nhosts)
            for place, rank in enumerate(sketch.ranks_of(host))
        }
        for link in sketch.links:
            if link.inter:
                self.between[sketch.hosts[link.src], sketch.hosts[link.dst]].append(link)

    def choose(self, owner: int, at: int, host: int, target: int | None = None) -> LogicalLink:
        """Return the link for `owner`'s chunk, now on rank `at`, to `host` (best: to `target`).

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
        goal = self.local[at if target is None else target]

        def cost(link: LogicalLink) -> tuple[float, ...]:
            out, into = self.ends(link)
            return (
                link.dst != target if target is not None else 0,
                link.src != at if target is None else self.local[link.src] != goal,
                self.uses[out] + self.uses[into],
                self.local[link.dst] != goal,
                link.beta_us_per_mb,
                link.src,
                link.dst,
            )

        best = min(allowed, key=cost)
        self.uses.update(self.ends(best))
        return best

    def may_carry(self, link: LogicalLink, owner: int) -> bool:
        """Return whether the relay rule lets `link` carry `owner`'s chunks off their own host."""
        if self.sketch.hosts[link.src] != self.sketch.hosts[owner]:
            return True  # passing through: the rule is about the owner's host
        carried = self.sketch.relays.get(link.src, ())
        return not carried or owner == link.src or owner in carried

    def ends(self, link: LogicalLink) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the two NICs that `link` uses, as (direction, name)."""
        bindings = self.sketch.bindings
        nics = link.nics or (
            bindings.get(link.src, f"rank {link.src}"),
            bindings.get(link.dst, f"rank {link.dst}"),
        )
        return ("out", nics[0]), ("in", nics[-1])


def spread_moves(
    sketch: Sketch, gateways: Gateways, owner: int, *, around: bool
) -> tuple[Move, ...]:
    """Return the moves that take `owner`'s part to all ranks, in an order that they may run in.

    Across hosts it goes from the owner's to each other, or `around`: from host to host.
    """
    home = sketch.hosts[owner]
    moves: list[Move] = []
    reached = {home: _inside(sketch, owner, 0, moves)}
    landed = {home: owner}
    previous = home
    for ahead in range(1, sketch.nhosts):
        host = (home + ahead) % sketch.nhosts
        origin = previous if around else home
        link = gateways.choose(owner, landed[origin], host)
        time = reached[origin][link.src] + 1
        moves.append(Move(time, link.src, link.dst))
        reached[host] = _inside(sketch, link.dst, time, moves)
        landed[host] = link.dst
        previous = host
    return tuple(moves)


def _inside(sketch: Sketch, root: int, time: int, moves: list[Move]) -> dict[int, int]:
    """Add the moves from `root`, which has the part in round `time`; return who has it when."""
    tree = host_tree(sketch, root)
    moves += [Move(time + depth, parent, child) for parent, child, depth in tree]
    return {root: time} | {child: time + depth for _, child, depth in tree}


@lru_cache(maxsize=64)
def reversed_sketch(sketch: Sketch) -> Sketch:
    """Return `sketch` with all links turned round: what spreads on it, run backwards, is a sum.

    The relay rule goes: a sum has no owner.
    """
    links = sorted(
        (replace(link, src=link.dst, dst=link.src, nics=link.nics[::-1]) for link in sketch.links),
        key=lambda link: (link.src, link.dst),
    )
    return replace(sketch, links=tuple(links), relays={})


def run_down(trace: Trace, pieces: Iterable[Piece]) -> None:
    """Send each piece along its moves, by time; across hosts first."""
    timed = [
        (piece.start + move.time, order, piece, move)
        for order, piece in enumerate(pieces)
        for move in piece.moves
    ]
    for _, _, piece, move in sorted(timed, key=lambda entry: entry[:2]):
        trace.send(piece.chunk, move.src, move.dst, count=piece.length)


def run_up(trace: Trace, pieces: Iterable[Piece], nbytes: int) -> None:
    """Sum each piece along its moves backwards: what spread from a rank comes together on it."""
    chunk_bytes = nbytes / trace.collective.nchunks(trace.chunks_per_rank)
    meetings: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for order, piece in enumerate(pieces):
        last = max(move.time for move in piece.moves)
        for move in piece.moves:
            when = piece.start + last - move.time
            meetings[when, order, move.src, piece.chunk].append(move.dst)
    counts = {order: piece.length for order, piece in enumerate(pieces)}
    for (_, order, rank, chunk), senders in sorted(meetings.items()):
        count = counts[order]
        aside = prefers_aside(len(senders), chunk_bytes * count, count)
        fan = FanIn(trace, rank, chunk, count, aside=aside)
        for sender in senders:
            fan.receive(sender)
        fan.finish()
