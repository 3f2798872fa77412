"""Groups that call at once, simulated on the whole machine, beside the bound on what they take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tuccl.errors import Infeasible, InputError
from tuccl.groups.equivalence import group_hops
from tuccl.groups.layout import Groups
from tuccl.program import Knobs, Program
from tuccl.runtime import (
    NCCL_VERSION,
    Candidate,
    ConfiguredProgram,
    SimExecutor,
    Table,
    time_baseline,
)
from tuccl.runtime.executors.executor import Call, StepLoop, Timing
from tuccl.runtime.executors.sim import GroupCall, timing_of
from tuccl.synth import Collective, bound
from tuccl.topology import Topology, keep_gpus
from tuccl.topology.relays import Hop

Choose = Callable[[Topology, str, int], ConfiguredProgram]
"""Chooses for a group's part of the machine, a collective and a size in bytes."""


def nccl_choice(version: str = NCCL_VERSION) -> Choose:
    """Return what chooses as a version of NCCL does."""

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        executor = SimExecutor(part)
        return time_baseline(executor, part, "nccl", collective, nbytes, version=version)

    return choose


def group_call(own: ConfiguredProgram, members: Sequence[int], nbytes: int) -> GroupCall:
    """Return the call of a program by ``members`` on the whole array of ``nbytes`` bytes."""
    return GroupCall(members, own.program, own.knobs, nbytes, own.loop)


class GroupExecutor(SimExecutor):
    """Times a program as all groups of a kind run it at the same time, on the whole machine.

    To a search it is an executor of one group's part. Sketches are made for the part's share of the
    links: their rates over the number of groups that use them.
    """

    def __init__(
        self,
        topology: Topology,
        groups: Groups,
        orbit: Sequence[int],
        company: Sequence[GroupCall] = (),
        launch: str = "mpi",
    ) -> None:
        """Prepare for the groups of an orbit.

        Args:
            topology: The whole machine.
            groups: Ranks of each group of the kind. Those that are not in the orbit run the
                program too: they are there, but their times do not count.
            orbit: Numbers of the groups that are alike; the first gives the part.
            company: Calls of other groups that begin at the same time.
            launch: As in `SimExecutor`.
        """
        super().__init__(keep_gpus(topology, groups[orbit[0]]), launch=launch)
        self._whole = SimExecutor(topology, launch=launch)
        hops = group_hops(topology, groups)
        # The others of the orbit end when the first does; company may lie beside any of them.
        near = range(len(groups)) if company else sharers(hops, orbit[0])
        self._counted = [n for n, number in enumerate(near) if number in orbit]
        self._groups = [groups[number] for number in near]
        self._company = tuple(company)
        self._planned = share(self._topology, hops)

    @property
    def label(self) -> str:
        """That it simulates, on what, and how many groups call at once."""
        beside = f" beside {len(self._company)} calls of others" if self._company else ""
        return f"{super().label}, {self.concurrent} groups at once{beside}"

    @property
    def concurrent(self) -> int:
        """The groups that are simulated: those that share links with the first, itself counted."""
        return len(self._groups)

    def _timing(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        repeats: int,
        loop: StepLoop,
        exact_to_us: float = math.inf,
    ) -> Timing:
        self._check(program, loop)
        if repeats < 1 or nbytes < 1:
            raise InputError(f"{nbytes} bytes, {repeats} repeats: expected at least one of each")
        calls = [GroupCall(group, program, knobs, nbytes, loop) for group in self._groups]
        times = self._whole.time_groups([*calls, *self._company])
        us = max(times[number] for number in self._counted)
        return timing_of(program, us, (us,) * repeats)

    def time_all(
        self, program: Program, calls: Sequence[Call], *, root: int = 0, threads: int = 1
    ) -> list[float]:
        """Return the simulated time in us of each of ``calls``, infinite for what is refused."""
        times = []
        for knobs, nbytes in calls:
            try:
                times.append(self.time(program, knobs, nbytes, root=root).us)
            except (Infeasible, InputError):
                times.append(math.inf)
        return times


def sharers(hops: Sequence[set[Hop]], number: int) -> list[int]:
    """Return the groups that share links with a group, or with one that does; itself too.

    Args:
        hops: `group_hops` of all groups.
        number: Of the group.
    """
    import networkx as nx  # a verb's start does not pay for it

    graph = nx.Graph()
    graph.add_nodes_from(range(len(hops)))
    first: dict[tuple[str, str], int] = {}
    for group, used in enumerate(hops):
        graph.add_edges_from((group, first.setdefault((hop.src, hop.dst), group)) for hop in used)
    return sorted(nx.node_connected_component(graph, number))


def share(part: Topology, hops: Sequence[set[Hop]]) -> Topology | None:
    """Return a group's part with each link's rate over the number of groups that use it.

    None where it shares nothing. Links are used by the routes between a group's members.
    """
    users = Counter((hop.src, hop.dst) for used in hops for hop in used)
    links = tuple(
        msgspec.structs.replace(link, bandwidth=link.bandwidth / count)
        for link in part.links
        for count in [max(1, *(users[way] for way in link.directions()))]
    )
    if links == part.links:
        return None
    return msgspec.structs.replace(part, links=links)


def table_choice(tables: Mapping[Topology, Table], version: str = NCCL_VERSION) -> Choose:
    """Return what chooses as the table of a group's part does.

    Args:
        tables: By the part.
        version: The NCCL whose own choice a table's default is.
    """

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        candidate = tables[part].select(collective, nbytes).candidate
        return candidate_run(tables[part], candidate, collective, nbytes, version)

    return choose


def candidate_run(
    table: Table, candidate: Candidate, collective: str, nbytes: int, version: str
) -> ConfiguredProgram:
    """Return what a candidate of a table runs for a call; ``version`` is that of NCCL's own."""
    part, program = table.topology, table.program(candidate)
    if program is not None and candidate.knobs is not None:
        return ConfiguredProgram(program, candidate.knobs.knobs, name=candidate.name)
    if candidate.nccl is not None:
        from tuccl.runtime.baseline import time_nccl

        call = Collective(collective, part.ranks)
        return time_nccl(SimExecutor(part), part, call, nbytes, candidate.nccl, version=version)
    return nccl_choice(version)(part, collective, nbytes)


@dataclass(frozen=True)
class ConcurrentTime:
    """Simulated times in us of a call by groups of one kind.

    Attributes:
        alone_us: Of a group of each orbit that calls alone, by the orbit's first group.
        together_us: From the start of all groups to the end of the last.
        bound_us: No programs end earlier when all groups call at once.
        choice: The runtime's or the program's name.
    """

    alone_us: dict[int, float]
    together_us: float
    bound_us: float
    choice: str

    @property
    def slowdown(self) -> float:
        """Return how many times as long all groups take as the slowest of them alone."""
        return self.together_us / max(self.alone_us.values())


def time_groups(
    topology: Topology,
    groups: Groups,
    orbits: Sequence[Sequence[int]],
    collective: str,
    nbytes: int,
    choose: Choose,
    company: Sequence[GroupCall] = (),
) -> ConcurrentTime:
    """Return what a call takes a group alone, and all groups at once, in simulation.

    Routes are those of the whole machine, also of a group alone.

    Args:
        topology: The whole machine.
        groups: Ranks of each group, all of one kind.
        orbits: Numbers of groups that are alike (`group_orbits`); each gets one program.
        collective: Its name.
        nbytes: The whole array in bytes, as nccl-tests counts.
        choose: What the first group of an orbit runs.
        company: Calls of other groups that begin when all groups call at once.

    Raises:
        InputError: the simulator refuses the call.
    """
    executor = SimExecutor(topology)
    calls: list[GroupCall] = []
    alone_us: dict[int, float] = {}
    names: dict[str, None] = {}
    for head, *others in orbits:
        own = choose(keep_gpus(topology, groups[head]), collective, nbytes)
        mine = [group_call(own, groups[number], nbytes) for number in (head, *others)]
        calls += mine
        [alone_us[head]] = executor.time_groups(mine[:1])
        names[own.name] = None
    together_us = max(executor.time_groups([*calls, *company])[: len(calls)])
    bound_us = joint_bound_us(topology, groups, collective, nbytes)
    return ConcurrentTime(alone_us, together_us, bound_us, ", ".join(names))


def joint_bound_us(topology: Topology, groups: Groups, collective: str, nbytes: int) -> float:
    """Return the us that no programs beat where all groups call at once.

    The greatest of three: what a group alone needs on an empty machine; for each cut of the machine
    what all groups must send over it, over its rate; and of an allreduce what hosts send in all,
    over the sum of their rates. Cuts are GPUs, hosts, and switches with the hosts that have no
    other. Of collectives with a root only the first counts.

    Notes:
        Each value of an array goes between hosts 2(h - 1) times if its group is on h of them: h - 1
        times to be reduced, and as often with the result (Patarasuk and Yuan, JPDC 2009).
    """
    alone = max(
        bound(part, Collective(collective, part.ranks)).time_us(nbytes)
        for part in {keep_gpus(topology, group): None for group in groups}
    )
    crossing = max(
        (
            sum(_sent(collective, set(group), inside, nbytes) for group in groups) / (gbs * 1e3)
            for inside, gbs in _cuts(topology)
            if gbs > 0
        ),
        default=0.0,
    )
    return max(alone, crossing, _between_hosts_us(topology, groups, nbytes, collective))


def _between_hosts_us(topology: Topology, groups: Groups, nbytes: int, collective: str) -> float:
    if collective != "allreduce":
        return 0.0
    hosts = [{topology.host_of(rank) for rank in group} for group in groups]
    nodes = ({n.id for n in topology.nodes if n.host == name} for name in set().union(*hosts))
    gbs = sum(_rate_gbs(topology, each) for each in nodes)
    sent = sum(2 * (len(each) - 1) * nbytes for each in hosts)
    return sent / (gbs * 1e3) if sent and gbs else 0.0


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


def _cuts(topology: Topology) -> Iterator[tuple[set[int], float]]:
    """Sets of ranks, and the GB/s of the links out of a set of nodes that has no other ranks.

    Each set of nodes is followed by all others: what they must send goes into it.
    """
    hosts = {name: {n.id for n in topology.nodes if n.host == name} for name in topology.hosts}
    around: dict[str, set[str]] = {node.id: set() for node in topology.nodes}
    for link in topology.links:
        for src, dst in link.directions():
            around[src].add(dst)
            around[dst].add(src)
    sets = [{gpu.id} for gpu in topology.gpus] + list(hosts.values())
    for switch in (node.id for node in topology.nodes if node.kind == "switch"):
        below = {switch}
        for nodes in hosts.values():
            beyond = set().union(*(around[node] for node in nodes)) - nodes
            if beyond == {switch}:
                below |= nodes
        sets.append(below)
    rank_of = {gpu.id: rank for rank, gpu in enumerate(topology.gpus)}
    for nodes in sets:
        inside = {rank_of[node] for node in nodes if node in rank_of}
        yield inside, _rate_gbs(topology, nodes)
        yield set(rank_of.values()) - inside, _rate_gbs(topology, nodes, inward=True)


def _rate_gbs(topology: Topology, nodes: set[str], *, inward: bool = False) -> float:
    """GB/s of the links out of ``nodes``, or into them."""
    port_gbs = {node.id: node.port_gbs or float("inf") for node in topology.nodes}
    return sum(
        min(link.bandwidth, port_gbs[src], port_gbs[dst])
        for link in topology.links
        for src, dst in link.directions()
        if (src in nodes, dst in nodes) == (not inward, inward)
    )
