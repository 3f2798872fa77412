"""Parts of a network that flows share: who is behind the same one, and what it carries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

from tuccl.topology.probing.fit import Estimate, median_estimate
from tuccl.topology.probing.prober import Load, Pair

_SLOWED = 0.85  # of what a flow gets alone
_LEAST_RATIO = 4.0  # of round trips through a full queue over idle ones, to separate them


class Uplink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rates in GB/s that all endpoints of a group have out of it and into it together.

    None is a direction in which no flow was slowed: it is as wide as its endpoints, or wider.
    """

    out_gbs: Estimate | None
    in_gbs: Estimate | None


def slowed_flows(
    flows: Sequence[Pair], rates: Sequence[float], alone: Callable[[Pair], float]
) -> list[Pair]:
    """Return the flows that get less together than each ``alone``, in GB/s."""
    return [flow for flow, rate in zip(flows, rates, strict=True) if rate < _SLOWED * alone(flow)]


def groups_behind(
    load: Load,
    slowed: Sequence[Pair],
    order: Sequence[int],
    idle_us: float,
    probes: int,
    *,
    neighbours: bool,
) -> tuple[list[list[int]], int] | None:
    """Return the groups of endpoints that reach each other past no full queue, and the probes used.

    Small messages between two endpoints take long where they wait behind the bytes of ``slowed``
    flows, which fill the queue of whatever they share; endpoints whose flows fill their own NIC's
    queue must be silent meanwhile.

    Args:
        load: what runs, the slowed flows at least; the others are ended here.
        slowed: flows known to pass a shared part.
        order: the endpoints, neighbours side by side.
        idle_us: a round trip of an idle network.
        probes: how many pairs may be probed. Endpoints that these do not suffice for stay with
            their neighbours, or together where ``neighbours`` is false.
        neighbours: whether those side by side are likely in one group.

    Returns:
        None where queues stay too short to show it.
    """
    load.keep(slowed)
    crossing_us = load.round_trips(slowed[:1])[0]
    left = probes - 1
    if crossing_us < _LEAST_RATIO * idle_us:
        return None
    limit_us = math.sqrt(crossing_us * idle_us)
    runs = [[index] for index in order]
    if neighbours and left >= len(order) - 1:
        pairs = list(itertools.pairwise(order))
        left -= len(pairs)
        runs = [[order[0]]]
        for (_, after), us in zip(pairs, load.round_trips(pairs), strict=True):
            if us < limit_us:
                runs[-1].append(after)
            else:
                runs.append([after])
    groups = []
    while runs:
        first, *others = runs
        if len(others) > left:
            groups += runs if neighbours else [[index for run in runs for index in run]]
            break
        pairs = [(first[0], run[0]) for run in others]
        left -= len(pairs)
        trips = load.round_trips(pairs) if pairs else ()
        near = [run for run, us in zip(others, trips, strict=True) if us < limit_us]
        groups.append([index for run in (first, *near) for index in run])
        runs = [run for run in others if run not in near]
    return groups, probes - left


def uplinks(
    groups: Sequence[Sequence[int]],
    flows: Sequence[Pair],
    windows: Sequence[Sequence[float]],
    slowed: Sequence[Pair],
) -> tuple[Uplink, ...]:
    """Return what each group's endpoints have together, from the rates of flows at the same time.

    Args:
        groups: of endpoints.
        flows: that ran together.
        windows: their rates in GB/s in several spans of time.
        slowed: those of them that got less than alone.

    Notes:
        Of two groups the one link between them is seen, in each direction. Of more, a flow is
        held up by the sender's uplink or the receiver's, whichever is narrower: both directions of
        an uplink are taken to be alike, and to carry the larger of the two sums.
    """
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    sums: dict[tuple[int, bool], Estimate] = {}
    for number in range(len(groups)):
        for outwards in (True, False):
            crossing = [
                place
                for place, flow in enumerate(flows)
                if group_of[flow[0]] != group_of[flow[1]]
                and group_of[flow[0 if outwards else 1]] == number
            ]
            if any(flows[place] in slowed for place in crossing):
                totals = [sum(window[place] for place in crossing) for window in windows]
                sums[number, outwards] = median_estimate(totals)
    if len(groups) > 2:
        sums = _both_ways(sums)
    return tuple(
        Uplink(sums.get((number, True)), sums.get((number, False))) for number in range(len(groups))
    )


def _both_ways(sums: Mapping[tuple[int, bool], Estimate]) -> dict[tuple[int, bool], Estimate]:
    larger = {
        number: max(
            (sums[key] for key in ((number, True), (number, False)) if key in sums),
            key=lambda estimate: estimate.value,
        )
        for number, _ in sums
    }
    return {(number, way): larger[number] for number in larger for way in (True, False)}


def typical(windows: Sequence[Sequence[float]]) -> list[float]:
    """Return the median rate of each flow over several spans of time."""
    return [median(rates) for rates in zip(*windows, strict=True)]
