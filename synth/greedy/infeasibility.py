"""Reasons why a sketch does not allow a collective: the chunk, the rank and the rule."""

from __future__ import annotations

from tuccl.synth.greedy.problem import PlanningProblem


def unreachable(problem: PlanningProblem, chunk_group: int, rank: int, *, reverse: bool) -> str:
    """Return a line that says which chunk cannot reach which rank, and why."""
    chunk = chunk_group * problem.group
    source = problem.sources[chunk_group % len(problem.sources)]
    hosts, relays = problem.sketch.hosts, problem.sketch.relays
    if reverse:
        what = f"rank {rank}'s part of chunk {chunk} cannot reach rank {source}"
        return (
            f"{what}: the links of the sketch do not lead there; add one out of host {hosts[rank]}"
        )
    what = f"chunk {chunk} of rank {source} cannot reach rank {rank}"
    if hosts[source] == hosts[rank]:
        return f"{what}: no links of the sketch lead there inside host {hosts[rank]}; add one"
    senders = [
        rank for rank, chunks in enumerate(problem.relayed_chunks()) if chunk_group in chunks
    ][:8]
    if relays and not senders:
        return f"{what}: relay rule: no sender may carry chunks of rank {source} off its host"
    if all(hosts[link.dst] != hosts[rank] for link in problem.sketch.links if link.inter):
        return f"{what}: no link of the sketch leads into host {hosts[rank]}; add one"
    if relays:
        return f"{what}: relay rule: only ranks {senders} may carry it, and no link leads on"
    return f"{what}: links of the sketch lead from rank {source} to no sender to host {hosts[rank]}"


def unroutable(problem: PlanningProblem, src: int, dst: int, owner: int) -> str:
    """Return a line that says which chunk has no path to its destination, and why."""
    what = f"the chunk of rank {src} cannot reach rank {dst}"
    hosts, relays = problem.sketch.hosts, problem.sketch.relays
    if relays and hosts[src] != hosts[dst]:
        senders = [rank for rank, owners in sorted(relays.items()) if owner in owners]
        who = f"only ranks {senders[:8]}" if senders else "no sender"
        return f"{what}: relay rule: {who} may carry it off its host"
    return f"{what}: no links of the sketch lead there; add one"
