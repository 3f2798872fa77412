"""TACCL's own costs of its profiles, and a checker of timed schedules that shares costs alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tuccl.errors import InputError
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.taccl.costs import Link, LinkCosts, switch_ports
from tuccl.synth.taccl.problem import TimedMessage

__all__ = ["schedule_fault", "schedule_time_us", "taccl_costs"]


def schedule_time_us(
    messages: Sequence[TimedMessage],
    collective: Collective,
    sketch: Sketch,
    costs: LinkCosts,
    chunks_per_rank: int,
) -> float:
    """Return what a plan takes in us under `costs`, after proving that it keeps every rule.

    Raises:
        ValueError: it breaks one; says which.
    """
    fault = schedule_fault(messages, collective, sketch, costs, chunks_per_rank)
    if fault is not None:
        raise ValueError(fault)
    return max((message.end for message in messages), default=0) / 1e3


def schedule_fault(
    messages: Sequence[TimedMessage],
    collective: Collective,
    sketch: Sketch,
    costs: LinkCosts,
    chunks_per_rank: int,
) -> str | None:
    """Return what is wrong with a plan, None if nothing is.

    Checked: every message takes what its link charges; a link carries one message at a time, and
    a switch port or NIC direction is held by one; a sender has what it sends; chunks leave their
    host by the relays named for their owner, a relay's own first where the sketch says so; every
    rank ends with what the collective demands, each contribution to a sum counted once.
    """
    checks = (
        _wrong_times(messages, costs),
        _overlaps(messages, costs),
        _relay_faults(messages, collective, sketch, chunks_per_rank),
        _late_own(messages, collective, sketch, chunks_per_rank),
        _wrong_ends(messages, collective, sketch, chunks_per_rank),
    )
    return next((fault for check in checks for fault in check), None)


def _wrong_times(messages: Sequence[TimedMessage], costs: LinkCosts) -> Iterator[str]:
    for m in messages:
        link = costs.links[m.link]
        if m.start < 0 or not m.chunks or len(set(m.chunks)) != len(m.chunks):
            yield f"{m}: expected different chunks, from time 0 on"
        if len(m.chunks) > 1 and not link.contiguous:
            yield f"{m}: link {link.src} to {link.dst} takes chunks one by one"
        if m.end - m.start != link.alpha + len(m.chunks) * link.beta:
            yield f"{m}: expected {link.alpha} + {len(m.chunks)} x {link.beta} ns"


def _overlaps(messages: Sequence[TimedMessage], costs: LinkCosts) -> Iterator[str]:
    spans: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for m in messages:
        link = costs.links[m.link]
        spans["link", link.src, link.dst].append((m.start, m.end))
        held = m.end - m.start if link.holds_ports else len(m.chunks) * link.beta
        for port in link.ports:
            spans[port].append((m.start, m.start + held) if m.reduce else (m.end - held, m.end))
    for resource, windows in spans.items():
        windows.sort()
        for (_, end), (start, _) in pairwise(windows):
            if start < end:
                yield f"{resource}: in use until {end} and again from {start} ns"


def _relay_faults(
    messages: Sequence[TimedMessage], collective: Collective, sketch: Sketch, parts: int
) -> Iterator[str]:
    """Yield chunks that leave the host of their owner by a sender not named for it."""
    for m in messages:
        link = sketch.links[m.link]
        carried = sketch.relays.get(link.src, ())
        if not link.inter or not sketch.relays:
            continue
        if m.reduce and not carried:
            yield f"{m}: rank {link.src} is no relay"
        if m.reduce or collective.rooted:
            continue
        for chunk in m.chunks:
            owner = _owner(chunk, collective, parts)
            if sketch.hosts[owner] == sketch.hosts[link.src] and owner not in carried:
                yield f"{m}: rank {link.src} is no relay for chunks of rank {owner}"


def _owner(chunk: int, collective: Collective, parts: int) -> int:
    return chunk // parts // (collective.ranks if collective.name == "alltoall" else 1)


def _late_own(
    messages: Sequence[TimedMessage], collective: Collective, sketch: Sketch, parts: int
) -> Iterator[str]:
    """Yield relays' own chunks that leave by a link after chunks carried for others."""
    carried: set[int] = set()
    if not sketch.own_chunks_first or collective.rooted:
        return
    for m in sorted(messages, key=lambda m: m.start):
        link = sketch.links[m.link]
        if m.reduce or not link.inter:
            continue
        own = [_owner(chunk, collective, parts) == link.src for chunk in m.chunks]
        if any(own) and m.link in carried:
            yield f"{m}: rank {link.src} sends a chunk of its own after those it carries"
        if not all(own):
            carried.add(m.link)


def _wrong_ends(
    messages: Sequence[TimedMessage], collective: Collective, sketch: Sketch, parts: int
) -> Iterator[str]:
    """Follow contributions, one bit a rank, through the messages in time."""
    held: dict[tuple[int, int], int] = {}
    for rank in range(collective.ranks):
        for _, chunk in collective.inputs(rank, parts):
            held[chunk, rank] = 1 << rank
    arrivals = sorted(messages, key=lambda m: m.end)
    upcoming = 0
    for m in sorted(messages, key=lambda m: m.start):
        while upcoming < len(arrivals) and arrivals[upcoming].end <= m.start:
            yield from _arrive(arrivals[upcoming], sketch, held)
            upcoming += 1
        for chunk in m.chunks:
            value = held.get((chunk, sketch.links[m.link].src))
            if value is None:
                yield f"{m}: rank {sketch.links[m.link].src} does not have chunk {chunk} yet"
            held[chunk, ~m.link] = value or 0  # on its route: a link holds one message at a time
    for m in arrivals[upcoming:]:
        yield from _arrive(m, sketch, held)
    everyone = (1 << collective.ranks) - 1
    for rank in range(collective.ranks):
        for _, chunk in collective.outputs(rank, parts):
            value = held.get((chunk, rank), 0)
            if not value or (collective.reducing and value != everyone):
                yield f"rank {rank} ends without chunk {chunk}"


def _arrive(m: TimedMessage, sketch: Sketch, held: dict[tuple[int, int], int]) -> Iterator[str]:
    dst = sketch.links[m.link].dst
    for chunk in m.chunks:
        value, own = held[chunk, ~m.link], held.get((chunk, dst), 0)
        if m.reduce and value & own:
            yield f"{m}: adds contributions to chunk {chunk} that rank {dst} already has"
        held[chunk, dst] = value | own if m.reduce else value


def taccl_costs(
    sketch: Sketch, chunk_bytes: int, us_per_unit: float, rounded: bool = False
) -> LinkCosts:
    """Return the costs in ns that TACCL itself gives `sketch`, read on one of its profiles.

    Args:
        sketch: Made by `taccl_to_sketch` with a profile.
        chunk_bytes: The chunk of the profile (`SHIPPED_UNITS`).
        us_per_unit: Its time unit in us; TACCL cuts most times to whole units.
        rounded: As TACCL's routing counts: a chunk between hosts takes ``int(alpha + beta)``
            each. Else as its scheduling does: ``alpha + k * beta`` for k chunks in one message.

    Raises:
        InputError: `us_per_unit` or `chunk_bytes` is not above 0.

    Notes:
        microsoft/taccl 426bd1e: inside a node a chunk takes ``int(alpha + beta)`` (generic.py,
        _div_beta_add_alpha); between nodes beta is multiplied by the links out of a node per NIC
        and cut (cli/arguments.py); one chunk at a time for each switch port and, from three nodes
        on, for each direction of a GPU's links to other nodes (topologies/topology.py).
    """
    if not us_per_unit > 0 or chunk_bytes < 1:
        raise InputError(f"{chunk_bytes} bytes, unit {us_per_unit} us: expected both above 0")
    unit = us_per_unit * 1e3

    def cut(us: float) -> int:
        return round(int(us / us_per_unit + 1e-6) * unit)

    share = _links_a_nic(sketch)
    links = []
    for link in sketch.links:
        beta_us = link.beta_us_per_mb * chunk_bytes / 1e6
        alpha, beta = 0, cut(link.alpha_us + beta_us)
        ports = switch_ports(sketch, link)
        if link.inter:
            alpha, beta = round(link.alpha_us * 1e3), cut(beta_us * share)
            if rounded:
                alpha, beta = 0, cut((alpha + beta) / 1e3)
            ports = _gpu_ports(link) if sketch.nhosts > 2 else ()
        contiguous = link.inter and not rounded
        links.append(
            Link(link.src, link.dst, link.inter, alpha, beta, contiguous, ports, holds_ports=True)
        )
    return LinkCosts(sketch.ranks, sketch.hosts, tuple(links))


def _links_a_nic(sketch: Sketch) -> float:
    """Return the links from one host to another for each NIC of a host."""
    between = Counter(
        (sketch.hosts[link.src], sketch.hosts[link.dst]) for link in sketch.links if link.inter
    )
    nics = {nic for rank, nic in sketch.bindings.items() if sketch.hosts[rank] == 0}
    return max(between.values(), default=1) / max(1, len(nics))


def _gpu_ports(link: LogicalLink) -> tuple[tuple[str, object, object], ...]:
    return ("remote out", 0, link.src), ("remote in", 0, link.dst)
