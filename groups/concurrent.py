"""Groups that call at once: one run of the whole machine, simulated, beside the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuccl.errors import Infeasible
from tuccl.groups.layout import Groups
from tuccl.program import Gpu, Program, ThreadBlock
from tuccl.runtime import NCCL_VERSION, ConfiguredProgram, SimExecutor, time_baseline
from tuccl.synth import Collective, bound
from tuccl.synth.baseline.nccl_nvls import SWITCH_RANKS
from tuccl.topology import Topology, keep_gpus

Choose = Callable[[Topology, str, int], ConfiguredProgram]
"""Chooses for a group's part of the machine, a collective and a size in bytes."""


def nccl_choice(version: str = NCCL_VERSION) -> Choose:
    """Return what chooses as a version of NCCL does."""

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        executor = SimExecutor(part)
        return time_baseline(executor, part, "nccl", collective, nbytes, version=version)

    return choose


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

    Raises:
        Infeasible: groups choose different knobs or chunks, of which one run of the simulator has
            one.
        InputError: the simulator refuses the call.
    """
    executor = SimExecutor(topology)
    parts: list[tuple[Program, Sequence[int]]] = []
    alone_us: dict[int, float] = {}
    chosen: list[ConfiguredProgram] = []
    for head, *others in orbits:
        own = choose(keep_gpus(topology, groups[head]), collective, nbytes)
        if chosen and _settings(own) != _settings(chosen[0]):
            raise Infeasible(
                f"groups run {chosen[0].name} and {own.name}, of other knobs or chunks, which no "
                "single run has"
            )
        chosen.append(own)
        mine = [(own.program, groups[number]) for number in (head, *others)]
        parts += mine
        alone = joint_program(mine[:1], topology.ranks)
        alone_us[head] = executor.time(alone, own.knobs, nbytes, loop=own.loop).us
    whole = joint_program(parts, topology.ranks)
    together = executor.time(whole, chosen[0].knobs, nbytes, loop=chosen[0].loop)
    names = ", ".join(dict.fromkeys(own.name for own in chosen))
    return ConcurrentTime(
        alone_us, together.us, joint_bound_us(topology, groups, collective, nbytes), names
    )


def _settings(own: ConfiguredProgram) -> tuple[object, ...]:
    """Return the values that a run of the simulator has once; programs have their channels."""
    knobs = own.knobs
    return own.program.nchunks, knobs.protocol, knobs.threads, knobs.buffer_bytes, own.loop


def joint_program(parts: Sequence[tuple[Program, Sequence[int]]], ranks: int) -> Program:
    """Return one program of ``ranks`` ranks in which groups run theirs, the others nothing.

    It is for timing: no verifier knows what it computes. Programs have equal chunks and protocols,
    and those of NVLS the ranks of the switches (`nvls_program`).

    Args:
        parts: Programs, with the machine's rank for each of theirs.
        ranks: Of the machine.
    """
    switches = any(program.ngpus > len(members) for program, members in parts)
    total = ranks * (1 + SWITCH_RANKS) if switches else ranks
    gpus = {rank: Gpu(rank, 0, 0, 0, []) for rank in range(total)}
    for program, members in parts:
        inside = (ranks + SWITCH_RANKS * rank + n for rank in members for n in range(SWITCH_RANKS))
        ranks_of = {-1: -1, **dict(enumerate((*members, *inside)))}
        for gpu in program.gpus:
            blocks = [
                ThreadBlock(b.id, ranks_of[b.send_peer], ranks_of[b.recv_peer], b.channel, b.steps)
                for b in gpu.threadblocks
            ]
            rank, chunks = ranks_of[gpu.id], (gpu.input_chunks, gpu.output_chunks)
            gpus[rank] = Gpu(rank, *chunks, gpu.scratch_chunks, blocks)
    first = parts[0][0]
    return Program(
        "groups",
        first.collective,
        first.protocol,
        max(program.nchannels for program, _ in parts),
        first.nchunks,
        [gpus[rank] for rank in range(total)],
        in_place=first.in_place,
        out_of_place=first.out_of_place,
    )


def joint_bound_us(topology: Topology, groups: Groups, collective: str, nbytes: int) -> float:
    """Return the us that no programs beat where all groups call at once.

    The greater of two: what a group alone needs on an empty machine, and for each cut of the
    machine what all groups must send over it, over its rate. Cuts are GPUs, hosts, and switches
    with the hosts that have no other. Of collectives with a root only the first counts.
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
    return max(alone, crossing)


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
    port_gbs = {node.id: node.port_gbs or float("inf") for node in topology.nodes}
    for nodes in sets:
        inside = {rank_of[node] for node in nodes if node in rank_of}
        for ranks, leaves in ((inside, True), (set(rank_of.values()) - inside, False)):
            yield (
                ranks,
                sum(
                    min(link.bandwidth, port_gbs[src], port_gbs[dst])
                    for link in topology.links
                    for src, dst in link.directions()
                    if (src in nodes, dst in nodes) == (leaves, not leaves)
                ),
            )
