"""Bounds on groups that call at once, whatever programs they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.groups.joint_flow import Call, joint_flow
from tuccl.groups.layout import Groups
from tuccl.synth import Collective, bound
from tuccl.topology import Topology, keep_gpus

_ALIKE = 1e-3  # times of rules that close count as equal


class Rule(NamedTuple):
    """One rule of a bound: its name, the us that no programs beat, and why, in words."""

    name: str
    us: float
    words: str


@dataclass(frozen=True)
class JointBound:
    """The least time of calls that start together, over links as `tuccl.synth.bound` says.

    Attributes:
        rules: ``alone``: what a group alone needs on an empty machine; ``cut``: what all send over
            a cut, over its rate; ``hosts``: what all send between hosts, over the sum of their
            rates; ``flow``: the linear program of `joint_flow`, where it is solved. With relays
            all but the first.
        why_no_flow: Why the last rule is left out; empty where it is not.
    """

    rules: tuple[Rule, ...]
    why_no_flow: str = ""

    @property
    def us(self) -> float:
        """Return the greatest of the rules."""
        return max(rule.us for rule in self.rules)

    @property
    def binding(self) -> Rule:
        """Return the first rule that gives the bound, to within 0.1 %."""
        return next(rule for rule in self.rules if rule.us >= (1 - _ALIKE) * self.us)

    def rule_us(self, name: str) -> float | None:
        """Return what a rule gives, None where it is left out."""
        return next((rule.us for rule in self.rules if rule.name == name), None)


def joint_bound(topology: Topology, calls: Sequence[Call], *, relays: bool = False) -> JointBound:
    """Return the us that no programs beat where calls start together, rule by rule.

    Cuts are GPUs, hosts, and switches with the hosts that have no other. Of collectives with a root
    only the first rule counts; with relays they have no bound.

    Args:
        topology: The whole machine.
        calls: What groups call.
        relays: Whether GPUs pass on what other groups send, as in `joint_flow`.

    >>> from tuccl.topology import join, load_profile
    >>> hosts = join(load_profile("v100x4"), 2)  # each with a NIC for two GPUs
    >>> best = joint_bound(hosts, [Call((n, n + 4), "allgather", 1 << 28) for n in range(4)])
    >>> best.binding.words
    '537 MB out of n0 over 25 GB/s'

    Raises:
        InputError: the members of a group are not joined.

    Notes:
        Each value of an allreduce goes between hosts 2(h - 1) times if its group is on h of them:
        h - 1 times to be reduced, and as often with the result (Patarasuk and Yuan, JPDC 2009).
    """
    rules = [] if relays else [_alone(topology, calls)]
    rules += [_crossing(topology, calls), _between_hosts(topology, calls, relays)]
    try:
        flow = joint_flow(topology, calls, relays=relays)
    except InputError as why:
        return JointBound(tuple(rules), str(why))
    if flow is not None:
        us = flow.time_us(max(call.nbytes for call in calls))
        rules.append(Rule("flow", us, f"flows of all calls fill {flow.links}"))
    return JointBound(tuple(rules))


def bound_between_members(topology: Topology, calls: Sequence[Call]) -> JointBound:
    """Return `joint_bound` without relays, infinite where no links between members join them."""
    for call in calls:
        Collective(call.collective, len(call.members))  # raises what is wrong with the call
    try:
        return joint_bound(topology, calls)
    except InputError:
        return JointBound((Rule("alone", inf, "only other GPUs join the members"),))


def joint_bound_us(topology: Topology, groups: Groups, collective: str, nbytes: int) -> float:
    """Return the us that no programs beat where all groups make one call at once."""
    return joint_bound(topology, kind_calls(groups, collective, nbytes)).us


def kind_calls(groups: Groups, collective: str, nbytes: int) -> list[Call]:
    """Return the calls of all groups of a kind that make one call at once."""
    return [Call(group, collective, nbytes) for group in groups]


def _alone(topology: Topology, calls: Sequence[Call]) -> Rule:
    largest: dict[tuple[Topology, str], int] = {}
    for members, collective, nbytes in calls:
        alone = keep_gpus(topology, members), collective
        largest[alone] = max(nbytes, largest.get(alone, 0))
    rules = []
    for (part, collective), nbytes in largest.items():
        own = bound(part, Collective(collective, part.ranks))
        rules.append(Rule("alone", own.time_us(nbytes), own.bottleneck))
    return max(rules, key=lambda rule: rule.us)


def _crossing(topology: Topology, calls: Sequence[Call]) -> Rule:
    tightest = Rule("cut", 0.0, "")
    for words, inside, gbs in _cuts(topology):
        sent = sum(_sent(call.collective, {*call.members}, inside, call.nbytes) for call in calls)
        if gbs > 0 and sent / (gbs * 1e3) > tightest.us:
            tightest = Rule("cut", sent / (gbs * 1e3), _load_words(sent, words, gbs))
    return tightest


def _between_hosts(topology: Topology, calls: Sequence[Call], relays: bool) -> Rule:
    sent, senders = 0.0, set[str]()
    for members, collective, nbytes in calls:
        local = Counter(map(topology.host_of, members))
        if len(local) > 1:
            senders |= local.keys()
            apart = sum(count * (len(members) - count) for count in local.values())
            sent += nbytes * {
                "allgather": len(local) - 1,
                "reduce-scatter": len(local) - 1,
                "allreduce": 2 * (len(local) - 1),
                "alltoall": apart / len(members),
            }.get(collective, 0)
    if relays:
        senders = set(topology.hosts)
    nodes = ({n.id for n in topology.nodes if n.host == name} for name in senders)
    gbs = sum(_rate_gbs(topology, each) for each in nodes)
    if not sent or not gbs:
        return Rule("hosts", 0.0, "")
    words = f"between {len(senders)} hosts"
    return Rule("hosts", sent / (gbs * 1e3), _load_words(sent, words, gbs))


def _load_words(sent: float, where: str, gbs: float) -> str:
    return f"{sent / 1e6:.3g} MB {where} over {gbs:.4g} GB/s"


def _sent(collective: str, members: set[int], inside: set[int], nbytes: int) -> float:
    """Bytes that must leave ``inside`` for a call of ``members``."""
    within = len(members & inside)
    outside = len(members) - within
    if not within or not outside:
        return 0.0
    part = nbytes / len(members)
    return {
        "allgather": within * part,
        "reduce-scatter": outside * part,
        "alltoall": within * outside * part,
        "allreduce": float(nbytes),
    }.get(collective, 0.0)


def _cuts(topology: Topology) -> Iterator[tuple[str, set[int], float]]:
    """Yield where a cut is, the ranks inside, and the GB/s of the links out of it.

    Each set of nodes is followed by all others: what they must send goes into it.
    """
    hosts = {name: {n.id for n in topology.nodes if n.host == name} for name in topology.hosts}
    around: dict[str, set[str]] = {node.id: set() for node in topology.nodes}
    for link in topology.links:
        for src, dst in link.directions():
            around[src].add(dst)
            around[dst].add(src)
    sets = [(gpu.id, {gpu.id}) for gpu in topology.gpus] + list(hosts.items())
    for switch in (node.id for node in topology.nodes if node.kind == "switch"):
        below = {switch}
        for nodes in hosts.values():
            beyond = set().union(*(around[node] for node in nodes)) - nodes
            if beyond == {switch}:
                below |= nodes
        sets.append((f"what is behind {switch}", below))
    rank_of = {gpu.id: rank for rank, gpu in enumerate(topology.gpus)}
    for name, nodes in sets:
        inside = {rank_of[node] for node in nodes if node in rank_of}
        yield f"out of {name}", inside, _rate_gbs(topology, nodes)
        others = set(rank_of.values()) - inside
        yield f"into {name}", others, _rate_gbs(topology, nodes, inward=True)


def _rate_gbs(topology: Topology, nodes: set[str], *, inward: bool = False) -> float:
    """GB/s of the links out of ``nodes``, or into them."""
    port_gbs = {node.id: node.port_gbs or float("inf") for node in topology.nodes}
    return sum(
        min(link.bandwidth, port_gbs[src], port_gbs[dst])
        for link in topology.links
        for src, dst in link.directions()
        if (src in nodes, dst in nodes) == (not inward, inward)
    )
