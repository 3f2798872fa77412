"""A checker of k-synchronous schedules that shares no code with their models."""

from __future__ import annotations

from collections import defaultdict

from tuccl.synth.few_step.instance import Instance
from tuccl.synth.few_step.k_synchronous import KSynchronous

__all__ = ["schedule_fault"]


def schedule_fault(instance: Instance, schedule: KSynchronous) -> str | None:
    """Return what is wrong with a schedule, None if nothing is; looks at no model."""
    arrival = {(chunk, each.source): -1 for chunk, each in enumerate(instance.demands)}
    loads: dict[tuple[int, int], int] = defaultdict(int)
    for step, pair, chunk in sorted(schedule.sends):
        src, dst = instance.network.pairs[pair]
        if arrival.get((chunk, src), step) >= step:
            return f"chunk {chunk} leaves rank {src} in step {step} before it is there"
        if (chunk, dst) in arrival:
            return f"chunk {chunk} comes to rank {dst} again in step {step}"
        arrival[chunk, dst] = step
        for hop in instance.network.routes[pair]:
            loads[step, hop] += 1
    for (step, hop), load in loads.items():
        if load > instance.network.rates[hop] / instance.unit * schedule.rounds[step]:
            return f"resource {hop} carries {load} chunks in step {step}"
    for chunk, demand in enumerate(instance.demands):
        for to in sorted(demand.targets):
            if (chunk, to) not in arrival:
                return f"chunk {chunk} does not reach rank {to}"
    return None
