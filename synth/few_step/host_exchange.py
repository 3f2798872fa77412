"""An all-to-all over equal hosts: few large messages between them, few steps inside each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuccl.synth.few_step.host_waves import EqualParts, Inside
from tuccl.synth.few_step.waves import Wave, steps_of
from tuccl.synth.model.demand import Demand

__all__ = ["exchange_between"]

_Sends = Sequence[tuple[int, int, int, int]]


def exchange_between(hosts: EqualParts, chunks: int, solve: Inside) -> Iterator[list[Wave]]:
    """Yield ways on which every rank's chunks get to the one rank each is for.

    - Inside, chunks go to the place that they are for, wherever its host; then every rank sends
      its place on each other host all that its host has for it, as one message.
    - One gate for each NIC gathers what the ranks around it have for other hosts, sends each of
      these one message, and its place there hands out what came (more steps, fewer messages).
    """
    every = range(hosts.places)
    trips = [(src, dst) for src in every for dst in every if src != dst]
    inside = solve(hosts.inside, tuple(Demand(src, frozenset({dst})) for src, dst in trips))
    if inside is None:
        return
    if hosts.gates == tuple(every):
        yield [*_to_places(hosts, chunks, inside, trips), *_by_places(hosts, chunks, inside)]
    if len(hosts.doors) < hosts.places and (lean := _by_doors(hosts, chunks, solve)) is not None:
        at_home = _chunk_waves(hosts, chunks, inside, [[trip] for trip in trips], 0, here=True)
        yield [*at_home, *lean]


def _to_places(
    hosts: EqualParts, chunks: int, inside: _Sends, trips: list[tuple[int, int]]
) -> Iterator[Wave]:
    """Yield what goes inside each host to the place that it is for, on this host or another."""
    runs = [[trip] for trip in trips]
    yield from _chunk_waves(hosts, chunks, inside, runs, 0, here=True)
    yield from _chunk_waves(hosts, chunks, inside, runs, 0, here=False)


def _chunk_waves(
    hosts: EqualParts,
    chunks: int,
    sends: _Sends,
    trips: Sequence[Sequence[tuple[int, int]]],
    start: int,
    *,
    here: bool,
) -> Iterator[Wave]:
    """Yield `sends` in each host; item n is all of `trips[n]`, (from place, to place).

    `here`: to places of the same host, else to those of every other host.
    """
    for home, ranks in enumerate(hosts.members):
        for host in (home,) if here else hosts.others(home):
            there = hosts.members[host]
            for step, src, dst, item in sends:
                for source, target in trips[item]:
                    first = _first(hosts, ranks[source], there[target], chunks)
                    yield Wave(start + step, ranks[src], ranks[dst], first, chunks)


def _by_places(hosts: EqualParts, chunks: int, inside: _Sends) -> Iterator[Wave]:
    """Yield all that a host has for each rank of another, from that rank's place."""
    last = 1 + max((step for step, *_ in inside), default=-1)
    for home, ranks in enumerate(hosts.members):
        for host in hosts.others(home):
            for gate, target in zip(ranks, hosts.members[host], strict=True):
                for source in ranks:
                    yield Wave(last, gate, target, _first(hosts, source, target, chunks), chunks)


def _by_doors(hosts: EqualParts, chunks: int, solve: Inside) -> list[Wave] | None:
    """Return what one gate for each NIC gathers, sends and hands out; None where not solved."""
    every = list(range(hosts.places))
    gates = [door[0] for door in hosts.doors]
    count = len(gates)
    share = [every[len(every) * n // count : len(every) * (n + 1) // count] for n in range(count)]
    gathered = [(place, n) for n, own in enumerate(share) for place in own if place != gates[n]]
    dealt = [(place, n) for n in range(count) for place in every if place != gates[n]]
    to = solve(hosts.inside, tuple(Demand(place, frozenset({gates[n]})) for place, n in gathered))
    off = solve(hosts.inside, tuple(Demand(gates[n], frozenset({place})) for place, n in dealt))
    if to is None or off is None:
        return None
    waves: list[Wave] = []
    trips = [[(place, target) for target in every] for place, _ in gathered]
    waves += _chunk_waves(hosts, chunks, to, trips, 0, here=False)
    across = steps_of(waves)
    for home, ranks in enumerate(hosts.members):
        for there in (hosts.members[host] for host in hosts.others(home)):
            for gate, own in zip(gates, share, strict=True):
                waves += [
                    Wave(
                        across,
                        ranks[gate],
                        there[gate],
                        _first(hosts, source, target, chunks),
                        chunks,
                    )
                    for source in (ranks[place] for place in own)
                    for target in there
                ]
            for step, src, dst, item in off:
                place, n = dealt[item]
                waves += [
                    Wave(
                        across + 1 + step,
                        there[src],
                        there[dst],
                        _first(hosts, ranks[source], there[place], chunks),
                        chunks,
                    )
                    for source in share[n]
                ]
    return waves


def _first(hosts: EqualParts, source: int, target: int, chunks: int) -> int:
    """Return the first of the chunks that one rank has for another."""
    return (source * hosts.wires.ranks + target) * chunks
