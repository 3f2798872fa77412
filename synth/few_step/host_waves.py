"""Few steps on one host, mapped to all equal hosts, with few large messages in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations

from tuccl.synth.few_step.waves import Wave
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network
from tuccl.synth.model.symmetry import isomorphic

__all__ = [
    "EqualParts",
    "Inside",
    "broadcast_between",
    "equal_parts",
    "gather_between",
    "inside_waves",
]

# Solves a spread of items inside one host: (step, sending place, receiving place, item), None where
# there is no way or no time.
Inside = Callable[[Network, tuple[Demand, ...]], Sequence[tuple[int, int, int, int]] | None]


@dataclass(frozen=True)
class EqualParts:
    """Hosts with as many ranks and the same pairs inside, joined between equal places.

    Attributes:
        wires: All pairs.
        members: Ranks of each host, by place.
        gates: Places that have a pair to the same place of every other host.
    """

    wires: Network
    members: tuple[tuple[int, ...], ...]
    gates: tuple[int, ...]

    @property
    def places(self) -> int:
        """Return the ranks of a host."""
        return len(self.members[0])

    @cached_property
    def inside(self) -> Network:
        """Return the pairs inside the first host, by place."""
        return self.wires.subnetwork(self.members[0])

    @cached_property
    def doors(self) -> tuple[tuple[int, ...], ...]:
        """Return the gates in sets whose ways to another host share a wire, such as a NIC."""
        found: list[tuple[set[int], list[int]]] = []
        here, there = self.members[0], self.members[1]
        for gate in self.gates:
            wires = set(self.wires.routes[self.wires.index[here[gate], there[gate]]])
            places = [gate]
            for known in [door for door in found if door[0] & wires]:
                found.remove(known)
                wires |= known[0]
                places += known[1]
            found.append((wires, sorted(places)))
        return tuple(sorted(tuple(places) for _, places in found))

    def others(self, host: int) -> Iterator[int]:
        """Yield the other hosts, the next one first."""
        count = len(self.members)
        yield from ((host + ahead) % count for ahead in range(1, count))


@lru_cache(maxsize=16)
def equal_parts(wires: Network, size: int | None = None) -> EqualParts | None:
    """Return the hosts, or blocks of `size` ranks, where they are alike; else None."""
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(wires.hosts):
        groups.setdefault(rank // size if size else host, []).append(rank)
    members = tuple(tuple(own) for own in groups.values())
    if len(members) < 2 or not isomorphic(wires.index, members):
        return None
    gates = tuple(
        place
        for place in range(len(members[0]))
        if all((a[place], b[place]) in wires.index for a, b in permutations(members, 2))
    )
    return EqualParts(wires, members, gates) if gates else None


def gather_between(hosts: EqualParts, chunks: int, solve: Inside) -> Iterator[list[Wave]]:
    """Yield ways to spread every rank's chunks to all.

    - Every rank sends its chunks to its place on all hosts; these spread inside (one hop more).
    - Chunks spread inside; every rank sends its place all of the host's: more bytes, but one message
      a host that lies in a row at both ends.
    - One gate for each NIC sends what the ranks around it have, as one; that spreads inside.
    """
    every = tuple(range(hosts.places))
    own = solve(
        hosts.inside, tuple(_to_all(place, every) for place in every for _ in range(chunks))
    )
    if own is None:
        return
    at_home = [
        Wave(step, ranks[src], ranks[dst], ranks[item // chunks] * chunks + item % chunks, 1)
        for ranks in hosts.members
        for step, src, dst, item in own
    ]
    steps = 1 + max((wave.step for wave in at_home), default=-1)
    if hosts.gates == every:
        yield [*at_home, *_by_place(hosts, chunks, own)]
        yield [*at_home, *_as_wholes(hosts, chunks, steps)]
    if len(hosts.doors) < hosts.places:
        lean = _by_doors(hosts, chunks, at_home, solve)
        if lean is not None:
            yield [*at_home, *lean]


def _to_all(place: int, every: Sequence[int]) -> Demand:
    return Demand(place, frozenset(every) - {place})


def _by_place(
    hosts: EqualParts, chunks: int, own: Sequence[tuple[int, int, int, int]]
) -> Iterator[Wave]:
    """Yield each rank's chunks to its place on other hosts, and inside those as at home."""
    for home, ranks in enumerate(hosts.members):
        for host in hosts.others(home):
            there = hosts.members[host]
            for place, rank in enumerate(ranks):
                yield Wave(0, rank, there[place], rank * chunks, chunks)
            for step, src, dst, item in own:
                chunk = ranks[item // chunks] * chunks + item % chunks
                yield Wave(step + 1, there[src], there[dst], chunk, 1)


def _as_wholes(hosts: EqualParts, chunks: int, steps: int) -> Iterator[Wave]:
    """Yield all chunks of a host from each of its ranks to the same place of the others."""
    for home, ranks in enumerate(hosts.members):
        for host in hosts.others(home):
            for place, rank in enumerate(ranks):
                for owner in ranks:
                    yield Wave(steps, rank, hosts.members[host][place], owner * chunks, chunks)


def _by_doors(
    hosts: EqualParts, chunks: int, at_home: Sequence[Wave], solve: Inside
) -> list[Wave] | None:
    """Return what one gate for each NIC sends for the ranks around it, and how that spreads."""
    gates = [door[0] for door in hosts.doors]
    every = tuple(range(hosts.places))
    spread = solve(hosts.inside, tuple(_to_all(gate, every) for gate in gates))
    if spread is None:
        return None
    share = [
        every[len(every) * n // len(gates) : len(every) * (n + 1) // len(gates)]
        for n in range(len(gates))
    ]
    came = {(wave.dst, wave.first): wave.step for wave in at_home}
    waves = []
    for home, ranks in enumerate(hosts.members):
        blocks = [
            [ranks[place] * chunks + k for place in part for k in range(chunks)] for part in share
        ]
        ready = [
            1 + max(came.get((ranks[gate], chunk), -1) for chunk in block)
            for gate, block in zip(gates, blocks, strict=True)
        ]
        for host in hosts.others(home):
            there = hosts.members[host]
            for gate, block, at in zip(gates, blocks, ready, strict=True):
                waves += [Wave(at, ranks[gate], there[gate], chunk, 1) for chunk in block]
            for step, src, dst, item in spread:
                waves += [
                    Wave(ready[item] + 1 + step, there[src], there[dst], chunk, 1)
                    for chunk in blocks[item]
                ]
    return waves


def broadcast_between(
    hosts: EqualParts, total: int, root: int, solve: Inside
) -> Iterator[list[Wave]]:
    """Yield ways to spread the root's `total` chunks to all ranks."""
    [home] = [number for number, ranks in enumerate(hosts.members) if root in ranks]
    place = hosts.members[home].index(root)
    every = tuple(range(hosts.places))
    gates = [door[0] for door in hosts.doors]
    for gate in dict.fromkeys((place if place in hosts.gates else gates[0], gates[0])):
        before = solve(hosts.inside, (_to_all(place, every),))
        after = solve(hosts.inside, (_to_all(gate, every),))
        if before is None or after is None:
            return
        ready = 1 + max((step for step, _, dst, _ in before if dst == gate), default=-1)
        yield [
            *inside_waves(hosts.members[home], before, 0, [(0, total)]),
            *(
                wave
                for host in hosts.others(home)
                for wave in (
                    Wave(ready, hosts.members[home][gate], hosts.members[host][gate], 0, total),
                    *inside_waves(hosts.members[host], after, ready + 1, [(0, total)]),
                )
            ),
        ]


def inside_waves(
    ranks: Sequence[int],
    sends: Sequence[tuple[int, int, int, int]],
    start: int,
    runs: Sequence[tuple[int, int]],
) -> Iterator[Wave]:
    """Yield what is sent inside a host of `ranks` from step `start` on; an item is a run of chunks."""
    for step, src, dst, item in sends:
        yield Wave(start + step, ranks[src], ranks[dst], *runs[item])
