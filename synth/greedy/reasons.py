"""Why a sketch does not allow a collective: the item, the rank and the rule that stands against it."""

from __future__ import annotations

from tuccl.synth.greedy.problem import Question

__all__ = ["stranded", "undelivered"]


def stranded(asked: Question, item: int, rank: int, *, backwards: bool) -> str:
    """Return which chunk cannot reach which rank, and why."""
    chunk, origin = item * asked.bundle, asked.holders[item % len(asked.holders)]
    hosts, relays = asked.sketch.hosts, asked.sketch.relays
    if backwards:
        what = f"rank {rank}'s part of chunk {chunk} cannot reach rank {origin}"
        return (
            f"{what}: the links of the sketch do not lead there; add one out of host {hosts[rank]}"
        )
    what = f"chunk {chunk} of rank {origin} cannot reach rank {rank}"
    if hosts[origin] == hosts[rank]:
        return f"{what}: no links of the sketch lead there inside host {hosts[rank]}; add one"
    leaving = asked.leaving()
    senders = [r for r, items in enumerate(leaving) if item in items][:8]
    if relays and not senders:
        return f"{what}: relay rule: no sender may carry chunks of rank {origin} off its host"
    into = (link for link in asked.sketch.links if link.inter)
    if all(hosts[link.dst] != hosts[rank] for link in into):
        return f"{what}: no link of the sketch leads into host {hosts[rank]}; add one"
    if relays:
        return f"{what}: relay rule: only ranks {senders} may carry it, and no link leads on"
    return f"{what}: links of the sketch lead from rank {origin} to no sender to host {hosts[rank]}"


def undelivered(asked: Question, src: int, dst: int, place: int) -> str:
    """Return which chunk cannot be delivered, and why."""
    what = f"the chunk of rank {src} cannot reach rank {dst}"
    hosts = asked.sketch.hosts
    if asked.sketch.relays and hosts[src] != hosts[dst]:
        senders = [r for r, ranks in sorted(asked.sketch.relays.items()) if place in ranks]
        who = f"only ranks {senders[:8]}" if senders else "no sender"
        return f"{what}: relay rule: {who} may carry it off its host"
    return f"{what}: no links of the sketch lead there; add one"
