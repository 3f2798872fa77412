"""Fabrics: the switches of a network and the adapters on them, as a fabric file lists them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import quoted

_MOST_NODES = 65536
_MOST_CHARACTERS = 255


class Adapter(msgspec.Struct, frozen=True):
    """A port of a NIC on a switch; without device and GUID, all NICs of its host.

    Attributes:
        id: its name, unique in the fabric.
        switch: the switch that its cable goes to.
        gbs: what the cable carries in GB/s per direction, where known.
        host: the host it is in, where known.
        device: what the host calls it, like mlx5_0, where known.
        guids: 16 hexadecimal digits each: its own first, then those that ports of a card share.
        aggregation: whether it is a switch's own reduction engine (SHARP), in no host.
    """

    id: str
    switch: str
    gbs: float | None = None
    host: str | None = None
    device: str | None = None
    guids: tuple[str, ...] = ()
    aggregation: bool = False


class Trunk(msgspec.Struct, frozen=True):
    """All cables between two switches.

    Attributes:
        src: a switch.
        dst: another one.
        gbs: what they carry together in GB/s per direction, where known.
        cables: their number.
    """

    src: str
    dst: str
    gbs: float | None = None
    cables: int = 1


class Fabric(msgspec.Struct, frozen=True, dict=True):
    """The switches of a network, the cables between them and the adapters on them.

    Raises:
        InputError: a name or GUID is a duplicate, or a cable ends nowhere or where it begins.

    >>> fabric = Fabric("rack", ("leaf",), (Adapter("a", "leaf", 50.0, device="mlx5_0"),))
    >>> fabric.tiers, len(fabric.parts)
    ({'leaf': 1}, 1)
    """

    name: str
    switches: tuple[str, ...]
    adapters: tuple[Adapter, ...] = ()
    trunks: tuple[Trunk, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a fabric whose parts contradict each other."""
        if not self.switches:
            raise InputError("no switch; a fabric needs at least one")
        if len(self.switches) + len(self.adapters) > _MOST_NODES:
            raise InputError(f"more than {_MOST_NODES} switches and adapters")
        _check_unique("switch", self.switches)
        _check_unique("adapter", (adapter.id for adapter in self.adapters))
        _check_unique("GUID", (adapter.guids[0] for adapter in self.adapters if adapter.guids))
        switches = set(self.switches)
        for adapter in self.adapters:
            if adapter.switch not in switches:
                raise InputError(
                    f"adapter {quoted(adapter.id)}: no switch {quoted(adapter.switch)}"
                )
        for trunk in self.trunks:
            if trunk.src == trunk.dst:
                raise InputError(f"switch {quoted(trunk.src)} has a loop: a cable to itself")
            for end in (trunk.src, trunk.dst):
                if end not in switches:
                    raise InputError(f"a cable to {quoted(end)}, which is no switch of the file")
        _check_unique("trunk", ("|".join(sorted((t.src, t.dst))) for t in self.trunks))

    @property
    def names_adapters(self) -> bool:
        """Return whether adapters are distinguished, not only the hosts that they are in."""
        return any(adapter.guids or adapter.device for adapter in self.adapters)

    @property
    def cables(self) -> int:
        """Return the number of cables, to adapters and between switches."""
        return len(self.adapters) + sum(trunk.cables for trunk in self.trunks)

    @property
    def gives_rates(self) -> bool:
        """Return whether the rates between all switches are known."""
        return all(trunk.gbs is not None for trunk in self.trunks)

    @cached_property
    def neighbours(self) -> Mapping[str, tuple[str, ...]]:
        """Return the switches that each switch has cables to, in natural order."""
        around: dict[str, list[str]] = {switch: [] for switch in self.switches}
        for trunk in self.trunks:
            around[trunk.src].append(trunk.dst)
            around[trunk.dst].append(trunk.src)
        return {switch: tuple(sorted(others, key=natural)) for switch, others in around.items()}

    @cached_property
    def parts(self) -> tuple[frozenset[str], ...]:
        """Return the sets of switches that cables join, the largest first."""
        parts: list[frozenset[str]] = []
        reached: set[str] = set()
        for switch in self.switches:
            if switch not in reached:
                part = frozenset(distances(self.neighbours, [switch]))
                reached |= part
                parts.append(part)
        return tuple(sorted(parts, key=len, reverse=True))

    @cached_property
    def tiers(self) -> Mapping[str, int]:
        """Return the tier of each switch: 1 with hosts on it, else one more than the one below.

        Switches that lead to no host are left out.
        """
        leaves = [adapter.switch for adapter in self.adapters if not adapter.aggregation]
        steps = distances(self.neighbours, dict.fromkeys(leaves))
        return {switch: step + 1 for switch, step in steps.items()}

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that the file names, by rack: in the order of the switches above them.

        Hosts of one switch are in natural order of their names.
        """
        switch_of: dict[str, str] = {}
        for adapter in sorted(self.adapters, key=lambda a: natural(f"{a.device or ''} {a.id}")):
            if adapter.host is not None:
                switch_of.setdefault(adapter.host, adapter.switch)
        keys = {switch: self._place(switch) for switch in set(switch_of.values())}
        return tuple(sorted(switch_of, key=lambda host: (keys[switch_of[host]], natural(host))))

    @cached_property
    def _first_of(self) -> Mapping[str, str]:
        around = {
            switch: [other for other in others if other in self.tiers]
            for switch, others in self.neighbours.items()
            if switch in self.tiers
        }
        return merged(around, self.tiers)

    def _place(self, leaf: str) -> tuple[tuple[str | int, ...], ...]:
        """Return the names of the switches from the top down to ``leaf``, to sort by.

        Switches that are one to those below count as the first of them.
        """
        names = [leaf]
        while above := [
            self._first_of[other]
            for other in self.neighbours[names[-1]]
            if self.tiers.get(other, 0) > self.tiers[names[-1]]
        ]:
            names.append(min(above, key=natural))
        return tuple(natural(name) for name in reversed(names))

    def describe(self) -> str:
        """Return a line that says what the fabric is made of, and whether all of it is joined.

        >>> Fabric("rack", ("leaf",), (Adapter("a", "leaf", 50.0, device="ib0"),)).describe()
        'rack: 1 switch in 1 tier, 1 adapter, 1 cable; connected'
        """
        per_tier = [count for _, count in sorted(Counter(self.tiers.values()).items())]
        tiers = f" in {_counted(len(per_tier), 'tier')}" if per_tier else ""
        if len(per_tier) > 1:
            tiers += f" ({' + '.join(map(str, per_tier))})"
        parts = [f"{_counted(len(self.switches), 'switch', 'switches')}{tiers}"]
        if self.names_adapters:
            aggregation = sum(adapter.aggregation for adapter in self.adapters)
            of_switches = f" ({aggregation} of them switches' own)" if aggregation else ""
            parts.append(_counted(len(self.adapters), "adapter") + of_switches)
        if self.hosts:
            parts.append(_counted(len(self.hosts), "named host"))
        if self.names_adapters:
            parts.append(_counted(self.cables, "cable"))
        else:
            parts.append(_counted(len(self.trunks), "link") + " between switches")
        apart = f"{len(self.parts)} parts that no cable joins"
        return f"{self.name}: {', '.join(parts)}; {'connected' if len(self.parts) == 1 else apart}"


def united(fabrics: Sequence[Fabric]) -> Fabric:
    """Return several fabrics, as the rails of a cluster may be, as one of several parts.

    Raises:
        InputError: a switch, adapter or GUID is in two of them.
    """
    if len(fabrics) == 1:
        return fabrics[0]
    name = " + ".join(fabric.name for fabric in fabrics)
    try:
        return Fabric(
            name[:_MOST_CHARACTERS],
            tuple(switch for fabric in fabrics for switch in fabric.switches),
            tuple(adapter for fabric in fabrics for adapter in fabric.adapters),
            tuple(trunk for fabric in fabrics for trunk in fabric.trunks),
        )
    except InputError as error:
        raise InputError(f"{name[:200]}: {error}") from None


def distances(neighbours: Mapping[str, Iterable[str]], starts: Iterable[str]) -> dict[str, int]:
    """Return the fewest cables from any of ``starts`` to each switch that they lead to."""
    steps = dict.fromkeys(starts, 0)
    pending = deque(steps)
    while pending:
        switch = pending.popleft()
        for other in neighbours[switch]:
            if other not in steps:
                steps[other] = steps[switch] + 1
                pending.append(other)
    return steps


def merged(neighbours: Mapping[str, Iterable[str]], tiers: Mapping[str, int]) -> dict[str, str]:
    """Return for each switch the first of those that are one to the switches below.

    Those are the switches of a tier that share a switch below, also through others of them: traffic
    from below spreads over them.
    """
    parent = {switch: switch for switch in neighbours}

    def root(switch: str) -> str:
        while parent[switch] != switch:
            parent[switch] = parent[parent[switch]]
            switch = parent[switch]
        return switch

    for switch, others in neighbours.items():
        above = [root(other) for other in others if tiers[other] > tiers[switch]]
        for other in above[1:]:
            parent[root(other)] = root(above[0])
    members: dict[str, list[str]] = defaultdict(list)
    for switch in neighbours:
        members[root(switch)].append(switch)
    firsts = {place: min(group, key=natural) for place, group in members.items()}
    return {switch: firsts[place] for place, group in members.items() for switch in group}


def natural(text: str) -> tuple[str | int, ...]:
    """Return a key that sorts node2 before node10.

    >>> sorted(["node10", "node2"], key=natural)
    ['node2', 'node10']
    """
    parts = re.split("([0-9]{1,18})", text)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def _counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _check_unique(what: str, names: Iterable[str]) -> None:
    places: dict[str, int] = defaultdict(int)
    for name in names:
        if not name or len(name) > _MOST_CHARACTERS or not name.isprintable():
            raise InputError(f"{what} {quoted(name)}: expected 1 to 255 printable characters")
        places[name] += 1
        if places[name] > 1:
            raise InputError(f"duplicate {what} {quoted(name)}")
