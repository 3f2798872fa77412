"""Stage 2: NICs of matching bandwidth on different hosts form groups that talk to each other."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from statistics import pvariance

from tuccl.errors import InputError
from tuccl.sketches.nic_paths import NicPaths
from tuccl.topology.graph import Topology


@dataclass(frozen=True)
class Grouping:
    """The result of stage 2.

    Attributes:
        groups: NIC ids; every NIC with bound GPUs is in at least one group, and no group has two
            NICs of one host.
        notes: What was done where hosts have different NICs, one fact each.
    """

    groups: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def group(topology: Topology, bindings: dict[int, str]) -> Grouping:
    """Return groups of NICs, one NIC a host at most, with the least variance of bandwidth in each.

    Greedy: the NICs of the host that has most of them open one group each; then host by host the
    NIC and group are paired that leave the group's bandwidths with the least variance, among
    equals those fewest network hops apart, then those of the most similar place on their hosts
    (rails). Where hosts differ a group may lack some hosts, and afterwards

    * a NIC with bandwidth to spare joins a further group that lacks its host, and
    * where two hosts still share no group, a NIC of one joins a group of the other,

    both with a note. A topology of one host has none.

    Raises:
        InputError: two hosts have no NICs that reach each other over the network.

    Notes:
        TuCCL III.B, stage 2; what happens with uneven hosts is ours.
    """
    if len(topology.hosts) < 2:
        return Grouping(())
    work = _Groups(topology, bindings)
    work.open_and_fill()
    work.use_spare_bandwidth()
    work.join_hosts()
    work.note_idle()
    return Grouping(tuple(tuple(nics) for nics in work.groups), tuple(work.notes))


class _Groups:
    """Groups under construction."""

    def __init__(self, topology: Topology, bindings: dict[int, str]) -> None:
        self._nic_paths = topology.derived(NicPaths)
        self._topology = topology = self._nic_paths.topology
        self._capacity = self._nic_paths.capacity
        bound_nics = set(bindings.values())
        self._nics = {
            host: [nic for nic in topology.nics_of(host) if nic in bound_nics]
            for host in topology.hosts
        }
        self._host = {nic: host for host, nics in self._nics.items() for nic in nics}
        self._place = {nic: place for nics in self._nics.values() for place, nic in enumerate(nics)}
        self.groups: list[list[str]] = []
        self.notes: list[str] = []

    def _network_hops(self, src: str, dst: str) -> int | None:
        """Return the hops between two NICs by the network alone, None if it does not join them."""
        path = self._nic_paths.network_path(src, dst)
        return len(path.hops) if path else None

    def _variance(self, nics: list[str]) -> float:
        return round(pvariance([self._capacity[nic] for nic in nics]), 9)

    def _fits(self, nic: str, nics: list[str]) -> bool:
        return (
            self._host[nic] not in {self._host[other] for other in nics}
            and self._network_hops(nics[0], nic) is not None
        )

    def open_and_fill(self) -> None:
        largest_host = max(self._nics, key=lambda host: len(self._nics[host]))
        self.groups = [[nic] for nic in self._nics[largest_host]]
        for host, nics in self._nics.items():
            if host != largest_host:
                self._place_host(nics)

    def _place_host(self, nics: list[str]) -> None:
        unplaced = list(nics)
        while unplaced:
            choices = [
                (self._cost(nic, group), index, self._place[nic], nic)
                for index, group in enumerate(self.groups)
                for nic in unplaced
                if self._fits(nic, group)
            ]
            if not choices:
                self.groups.extend([nic] for nic in unplaced)
                return
            _, index, _, nic = min(choices)
            self.groups[index].append(nic)
            unplaced.remove(nic)

    def _cost(self, nic: str, nics: list[str]) -> tuple[float, int, int]:
        return (
            self._variance([*nics, nic]),
            self._network_hops(nics[0], nic) or 0,
            abs(self._place[nic] - self._place[nics[0]]),
        )

    def _memberships(self) -> Counter[str]:
        return Counter(nic for nics in self.groups for nic in nics)

    def use_spare_bandwidth(self) -> None:
        """Let NICs that are wider than their group serve groups that lack their host."""
        for nics, host in itertools.product(self.groups, self._nics):
            if host in {self._host[nic] for nic in nics}:
                continue
            slowest = min(self._capacity[nic] for nic in nics)
            groups_of = self._memberships()
            share = {
                nic: self._capacity[nic] / (groups_of[nic] + 1)
                for nic in self._nics[host]
                if self._fits(nic, nics)
            }
            widest = max(share, key=share.__getitem__, default=None)
            if widest is not None and share[widest] >= 0.99 * slowest:
                nics.append(widest)
                self.notes.append(f"{widest} has bandwidth to spare and also joins {nics[0]}")

    def join_hosts(self) -> None:
        """Let every two hosts share a group."""
        for one, other in itertools.combinations(self._nics, 2):
            if any({one, other} <= {self._host[nic] for nic in nics} for nics in self.groups):
                continue
            groups_of = self._memberships()
            choices = [
                (groups_of[nic], *self._cost(nic, nics), index, nic)
                for index, nics in enumerate(self.groups)
                for nic in self._nics[one] + self._nics[other]
                if {one, other} & {self._host[member] for member in nics} and self._fits(nic, nics)
            ]
            if not choices:
                raise InputError(
                    f"topology {self._topology.name[:60]!r}: no NIC of host {one[:60]!r} reaches "
                    f"one of {other[:60]!r} over the network: join them by a switch"
                )
            *_, index, nic = min(choices)
            self.groups[index].append(nic)
            self.notes.append(
                f"{nic} also joins {self.groups[index][0]}: hosts {one} and {other} shared no group"
            )

    def note_idle(self) -> None:
        """Say which NICs are left without a partner or without a GPU."""
        for nics in self.groups:
            if len(nics) == 1:
                self.notes.append(
                    f"{nics[0]} has no partner: its GPUs leave the host by other NICs"
                )
        for host, nics in self._nics.items():
            if unbound := len(self._topology.nics_of(host)) - len(nics):
                self.notes.append(f"{unbound} NICs of host {host} have no GPU bound to them")
