"""Groups that call at once, simulated on the whole machine, beside the bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.groups.bounds import JointBound, joint_bound, kind_calls
from tuccl.groups.equivalence import group_hops, group_orbits, sharers
from tuccl.groups.layout import Groups, ProcessGroups
from tuccl.runtime import (
    NCCL_VERSION,
    Candidate,
    ConfiguredProgram,
    SimExecutor,
    Table,
    time_baseline,
)
from tuccl.runtime.executors.sim import GroupCall
from tuccl.synth import Collective
from tuccl.topology import Topology, keep_gpus, machine_of
from tuccl.topology.relays import Hop
from tuccl.units import format_bytes, parse_size

Choose = Callable[[Topology, str, int], ConfiguredProgram]
"""Chooses for a group's part of the machine, a collective and a size in bytes."""


class KindCall(NamedTuple):
    """A call that all groups of a kind make, in words "tp:allreduce=20M"."""

    kind: str
    collective: str
    nbytes: int

    def __str__(self) -> str:
        """In words, as `parse` reads it."""
        return f"{self.kind}:{self.collective}={format_bytes(self.nbytes)}"

    @classmethod
    def parse(cls, text: str) -> KindCall:
        """Return the call of a text.

        Raises:
            InputError: it is none.
        """
        call, equals, size = text.partition("=")
        kind, colon, collective = call.partition(":")
        if not equals or not colon:
            raise InputError(f"{text[:60]!r}: expected KIND:COLLECTIVE=SIZE, as tp:allreduce=20M")
        return cls(kind, collective, parse_size(size))


def nccl_choice(version: str = NCCL_VERSION) -> Choose:
    """Return what chooses as a version of NCCL does."""

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        executor = SimExecutor(part)
        return time_baseline(executor, part, "nccl", collective, nbytes, version=version)

    return choose


def group_call(own: ConfiguredProgram, members: Sequence[int], nbytes: int) -> GroupCall:
    """Return the call of a program by ``members`` on the whole array of ``nbytes`` bytes."""
    return GroupCall(members, own.program, own.knobs, nbytes, own.loop, plan=own.plan)


def company_calls(
    topology: Topology,
    groups: ProcessGroups,
    company: Sequence[KindCall],
    choose: Mapping[str, Choose],
    *,
    repeats: bool,
) -> list[list[GroupCall]]:
    """Return for each call of ``company`` those of the kind's groups.

    Args:
        topology: The whole machine.
        groups: The job's.
        company: The calls.
        choose: By the kind, what the groups run.
        repeats: They begin again whenever they end.
    """
    calls = []
    for each in company:
        family = groups.kind(each.kind).groups
        mine = []
        for head, *others in group_orbits(topology, family):
            part = keep_gpus(topology, family[head])
            own = choose[each.kind](part, each.collective, each.nbytes)
            mine += [group_call(own, family[n], each.nbytes) for n in (head, *others)]
        calls.append([call._replace(repeats=repeats) for call in mine])
    return calls


def table_choice(tables: Mapping[Topology, Table], version: str = NCCL_VERSION) -> Choose:
    """Return what chooses as the table of a group's part does.

    Args:
        tables: By the part.
        version: The NCCL whose own choice a table's default is.
    """

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        table = tables[part]
        return table_run(
            table, table.select(collective, nbytes).candidate, collective, nbytes, version
        )

    return choose


def table_run(
    table: Table, candidate: Candidate, collective: str, nbytes: int, version: str
) -> ConfiguredProgram:
    """Return what a candidate of a table runs for a call, its default by a version of NCCL.

    Raises:
        Infeasible: the table is for MSCCL++, which cannot run the program.
    """
    # A verb starts without these.
    from tuccl.runtime.baseline.candidate import candidate_program
    from tuccl.runtime.executors.plan_sim import call_plan

    part = table.topology
    executor, call = SimExecutor(part), Collective(collective, part.ranks)
    own = candidate_program(
        executor, part, call, nbytes, candidate, table.programs, version=version
    )
    if own is not None and table.lookup.dialect == "mscclpp":
        return replace(own, plan=call_plan(part, own.program, own.knobs, nbytes))
    return own or nccl_choice(version)(part, collective, nbytes)


@dataclass(frozen=True)
class ConcurrentTime:
    """Simulated times in us of a call by groups of one kind.

    Attributes:
        alone_us: Of a group of each orbit that calls alone, by the orbit's first group.
        together_us: From the start of all groups to the end of the last.
        bound: No programs end earlier when all groups call at once.
        choice: The runtime's or the program's name.
        company_us: Of each call of the company, by its slowest group: to its end, or the mean time
            of a turn if it repeats.
    """

    alone_us: dict[int, float]
    together_us: float
    bound: JointBound
    choice: str
    company_us: tuple[float, ...] = ()

    @property
    def bound_us(self) -> float:
        """Return the bound's us."""
        return self.bound.us

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
    company: Sequence[Sequence[GroupCall]] = (),
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
        company: Calls of other kinds that begin at the same time (`company_calls`).

    Raises:
        InputError: the simulator refuses the call.
    """
    chosen = choices(topology, groups, orbits, collective, nbytes, choose)
    hops = group_hops(topology, groups)
    alone_us = {
        head: _slowest_us(topology, [group_call(own, groups[head], nbytes)], hops[head])
        for head, own in chosen.items()
    }
    if company:
        own = [group_call(chosen[each[0]], groups[n], nbytes) for each in orbits for n in each]
        together_us, *company_us = set_times_us(SimExecutor(topology), [own, *company])
    else:
        together_us, company_us = time_together(topology, groups, orbits, chosen, nbytes), []
    bound = joint_bound(topology, kind_calls(groups, collective, nbytes))
    return ConcurrentTime(alone_us, together_us, bound, names_of(chosen), tuple(company_us))


def set_times_us(executor: SimExecutor, sets: Sequence[Sequence[GroupCall]]) -> list[float]:
    """Return the simulated us of the slowest call of each of ``sets``, which run at once.

    Raises:
        InputError: as `SimExecutor.time_groups`.
    """
    ends_us = iter(executor.time_groups([call for each in sets for call in each]))
    return [max(islice(ends_us, len(each))) for each in sets]


def choices(
    topology: Topology,
    groups: Groups,
    orbits: Sequence[Sequence[int]],
    collective: str,
    nbytes: int,
    choose: Choose,
) -> dict[int, ConfiguredProgram]:
    """Return what the groups of each orbit run, by the orbit's first."""
    return {
        orbit[0]: choose(keep_gpus(topology, groups[orbit[0]]), collective, nbytes)
        for orbit in orbits
    }


def names_of(chosen: Mapping[int, ConfiguredProgram]) -> str:
    """Return the names of what orbits run, each once."""
    return ", ".join(dict.fromkeys(own.name for own in chosen.values()))


def time_together(
    topology: Topology,
    groups: Groups,
    orbits: Sequence[Sequence[int]],
    chosen: Mapping[int, ConfiguredProgram],
    nbytes: int,
) -> float:
    """Return the simulated us from the start of all groups to the end of the last.

    Of groups that are alike one is simulated, with those that it shares links with: the others
    take as long.

    Args:
        topology: As in `time_groups`, as the next.
        groups: The same.
        orbits: The same.
        chosen: `choices` for the call.
        nbytes: The whole array.
    """
    hops = group_hops(topology, groups)
    near = sharers(hops)
    own = {number: chosen[orbit[0]] for orbit in orbits for number in orbit}
    return max(
        _slowest_us(
            topology,
            [group_call(own[number], groups[number], nbytes) for number in family],
            set().union(*(hops[number] for number in family)),
        )
        for family in {tuple(near[orbit[0]]) for orbit in orbits}
    )


def _slowest_us(topology: Topology, calls: Sequence[GroupCall], hops: set[Hop]) -> float:
    """When the last of ``calls`` ends, simulated on the hosts that their hops touch."""
    host_of = {node.id: node.host for node in topology.nodes}
    hosts = {host_of[end] for hop in hops for end in (hop.src, hop.dst)}
    ranks = [rank for rank in range(topology.ranks) if topology.host_of(rank) in hosts]
    place = {rank: number for number, rank in enumerate(ranks)}
    part = keep_gpus(topology, ranks) if len(ranks) < topology.ranks else topology
    executor = SimExecutor(part, machine_of(topology))
    moved = [call._replace(members=[place[rank] for rank in call.members]) for call in calls]
    return max(executor.time_groups(moved))
