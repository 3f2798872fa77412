"""Rules on sketches beyond the types of their fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from tuccl.errors import InputError
from tuccl.sketches.reachability import unreachable_pair
from tuccl.sketches.sketch import SKETCH_FORMAT, STAGES, LogicalLink, Sketch
from tuccl.topology.symmetry import rotation


def checked(sketch: Sketch, path: str = "<sketch>") -> Sketch:
    """Return `sketch` itself after checking every rule on it.

    Raises:
        InputError: a rule is broken; the message holds the JSON path and the remedy.
    """
    for where, what in _faults(sketch):
        raise InputError(f"{path[:200]}: {where}: {what}")
    return sketch


def _faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    yield from _head_faults(sketch)
    yield from _link_faults(sketch)
    yield from _rule_faults(sketch)
    yield from _pruned_faults(sketch)
    yield from _graph_faults(sketch)


def _head_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    if sketch.format != SKETCH_FORMAT:
        yield "$.format", f"{sketch.format[:40]!r}: expected {SKETCH_FORMAT!r}"
    if sketch.ranks < 1:
        yield "$.ranks", f"{sketch.ranks} ranks: expected at least 1"
    if len(sketch.hosts) != sketch.ranks:
        yield "$.hosts", f"{len(sketch.hosts)} hosts for {sketch.ranks} ranks: expected one a rank"
    known = -1
    for rank, host in enumerate(sketch.hosts):
        if not 0 <= host <= known + 1:
            yield f"$.hosts[{rank}]", f"host {host}: expected hosts counted 0, 1, 2 as ranks rise"
        known = max(known, host)
    if not 1 <= sketch.chunks_per_rank <= 1 << 20:
        yield "$.chunks_per_rank", f"{sketch.chunks_per_rank}: expected 1 to {1 << 20}"
    if not 1 <= sketch.align_bytes <= 1 << 30:
        yield "$.align_bytes", f"{sketch.align_bytes}: expected 1 to {1 << 30}"


def _rank_faults(sketch: Sketch, where: str, ranks: Iterable[int]) -> Iterator[tuple[str, str]]:
    for rank in ranks:
        if not 0 <= rank < sketch.ranks:
            yield where, f"rank {rank}: expected 0 to {sketch.ranks - 1}"


def _link_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    seen: set[tuple[int, int]] = set()
    for index, link in enumerate(sketch.links):
        where = f"$.links[{index}]"
        yield from _rank_faults(sketch, where, (link.src, link.dst))
        pair = (link.src, link.dst)
        if pair in seen or link.src == link.dst:
            yield where, f"link {link.src} to {link.dst}: expected two ranks, each pair once"
        seen.add(pair)
        if link.inter != (sketch.hosts[link.src] != sketch.hosts[link.dst]):
            yield f"{where}.inter", "expected true exactly where $.hosts of the two ranks differ"
        yield from ((f"{where}.{name}", what) for name, what in _number_faults(link))


def _number_faults(link: LogicalLink) -> Iterator[tuple[str, str]]:
    if not (math.isfinite(link.alpha_us) and link.alpha_us >= 0):
        yield "alpha_us", f"{link.alpha_us}: expected a latency of at least 0 us"
    if not (math.isfinite(link.beta_us_per_mb) and link.beta_us_per_mb > 0):
        yield "beta_us_per_mb", f"{link.beta_us_per_mb}: expected a time above 0 us"
    if not (math.isfinite(link.congestion) and link.congestion >= 0):
        yield "congestion", f"{link.congestion}: expected a score of at least 0"
    if link.prefer_from_bytes < 0:
        yield "prefer_from_bytes", f"{link.prefer_from_bytes}: expected at least 0 bytes"
    if len(link.nics) not in ((0, 2) if link.inter else (0,)):
        yield "nics", "expected the sender's and the receiver's NIC on a link between hosts only"


def _rule_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    yield from _rank_faults(sketch, "$.bindings", sketch.bindings)
    owner: dict[str, int] = {}
    for rank, nic in sketch.bindings.items():
        if owner.setdefault(nic, sketch.hosts[rank]) != sketch.hosts[rank]:
            yield f"$.bindings.{rank}", f"{nic[:60]!r} is bound to ranks of two hosts: expected one"
    for index, group in enumerate(sketch.groups):
        if unbound := [nic for nic in group if nic not in owner]:
            yield f"$.groups[{index}]", f"{unbound[0][:60]!r}: expected NICs that $.bindings names"
        if len({owner[nic] for nic in group}) < len(group):
            yield f"$.groups[{index}]", "two NICs of one host: expected at most one a host"
    for sender, carried in sketch.relays.items():
        where = f"$.relays.{sender}"
        yield from _rank_faults(sketch, where, (sender, *carried))
        if len(set(carried)) < len(carried):
            yield where, "a rank stands twice: expected each once"
        if any(sketch.hosts[rank] != sketch.hosts[sender] for rank in carried):
            yield where, "a rank of another host: expected ranks of the sender's host"
    yield from _switch_faults(sketch)


def _switch_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    for index, switch in enumerate(sketch.switches):
        where = f"$.switches[{index}]"
        yield from _rank_faults(sketch, where, switch)
        if len(set(switch)) < len(switch) or len({sketch.hosts[rank] for rank in switch}) != 1:
            yield where, "expected different ranks of one host"
        for other in sketch.switches[:index]:
            if set(other) & set(switch) and set(other) != set(switch):
                yield where, "overlaps another switch in part: expected the same ranks or none"
    if sketch.switch_strategy and len(sketch.switch_strategy) != len(sketch.switches):
        yield "$.switch_strategy", "expected one for each of $.switches"
    for index, strategy in enumerate(sketch.switch_strategy):
        if strategy not in ("uc-min", "uc-max"):
            yield f"$.switch_strategy[{index}]", f"{strategy[:40]!r}: expected uc-min or uc-max"


def _pruned_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    seen: set[tuple[int, int]] = set()
    for index, link in enumerate(sketch.pruned):
        where, pair = f"$.pruned[{index}]", (link.src, link.dst)
        yield from _rank_faults(sketch, where, pair)
        if pair in seen or link.src == link.dst or sketch.link(*pair):
            yield where, f"link {link.src} to {link.dst}: expected each once and not in $.links"
        seen.add(pair)
        if link.stage not in STAGES:
            yield f"{where}.stage", f"{link.stage[:40]!r}: expected one of {', '.join(STAGES)}"


def _graph_faults(sketch: Sketch) -> Iterator[tuple[str, str]]:
    if lost := unreachable_pair(sketch.ranks, ((link.src, link.dst) for link in sketch.links)):
        yield "$.links", f"no path from rank {lost[0]} to rank {lost[1]}: add links between them"
    for index, (offset, size) in enumerate(sketch.symmetry):
        where = f"$.symmetry[{index}]"
        if not 0 < offset < size <= sketch.ranks or sketch.ranks % size:
            yield where, f"({offset}, {size}): expected 0 < offset < size, a divisor of the ranks"
            continue
        to = rotation(sketch.ranks, offset, size)
        for link in sketch.links:
            image = sketch.link(to[link.src], to[link.dst])
            if image is None or image.inter != link.inter:
                taken = f"({offset}, {size}) takes link {link.src} to {link.dst} to none"
                yield where, f"{taken}: remove the symmetry or add the link"
