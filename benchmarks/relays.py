"""Bounds of groups that call at once, over those where GPUs pass on what other groups send.

    .venv/bin/python benchmarks/relays.py [PROFILE ...] [--write]

First bounds: each figure is the bound between members over the bound with relays through
non-members, for 256 MiB: 1 where relays gain nothing, "only" where no links between members join
them. All groups of a kind call, then one of them, and the others are idle. Then, on single hosts
where relays may gain, allgathers of all groups at once, simulated: NCCL's choice, the fastest
program for a group that all run, and a program of all ranks whose GPUs relay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import inf
from statistics import geometric_mean

from report import publish

from groups import HOSTS, MACHINES, calls
from tuccl.cli.output import columns
from tuccl.groups.bounds import bound_between_members, joint_bound, kind_calls
from tuccl.groups.concurrent import nccl_choice, time_groups
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.joint_flow import FLOW_COLLECTIVES
from tuccl.groups.layout import Groups, megatron_groups
from tuccl.groups.relays import parent_call
from tuccl.runtime import NCCL_VERSION, ConfiguredProgram
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import synthesize
from tuccl.units import format_bytes

ONE_HOST = ("dgx-1v", "ndv2", "v100x4", "mi300x", "dgx-a100", "l40sx8", "mesh-4x4", "torus-4x4")
NBYTES = 256 << 20
SIZES = (1 << 20, 16 << 20, 256 << 20)
GAIN = 1.1


def kinds(
    profile: str, joined: Sequence[str] = MACHINES
) -> Iterator[tuple[str, Topology, str, str, Groups]]:
    """Yield (machine, topology, layout, kind, groups): of one host, then of several."""
    host = load_profile(profile)
    for layout in ("tp=2", "tp=4") if profile in ONE_HOST else ():
        for kind in megatron_groups(layout, host.ranks).kinds:
            yield profile, host, layout, kind.name, kind.groups
    if profile in joined:
        topology = join(host, HOSTS)
        named = {(layout, kind): job.kind(kind).groups for layout, job, kind, _ in calls(topology)}
        for (layout, kind), groups in named.items():
            yield f"{HOSTS}x {profile}", topology, layout, kind, groups


def gain(topology: Topology, groups: Groups, collective: str) -> float | None:
    """Return the bound between members over that with relays, None where no flows are found."""
    made = kind_calls(groups, collective, NBYTES)
    relayed = joint_bound(topology, made, relays=True)
    between_us = bound_between_members(topology, made).us
    return None if relayed.why_no_flow else between_us / min(relayed.us, between_us)


def text_of(found: float | None) -> str:
    """Return a gain in words."""
    return "-" if found is None else "only" if found == inf else f"{found:.2f}"


def fastest(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
    """Return the fastest program for a group alone."""
    best = synthesize(part, collective, nbytes).best
    return ConfiguredProgram(best.program, best.knobs, name=best.method)


def program_times(topology: Topology, groups: Groups, nbytes: int) -> list[float]:
    """Return us of an allgather: NCCL's, between members, with relays, and the bounds on these."""
    call = parent_call("allgather", groups, topology.ranks)
    relaying = synthesize(topology, call, nbytes, method="greedy").best
    orbits = group_orbits(topology, groups)
    nccl, between = (
        time_groups(topology, groups, orbits, "allgather", nbytes, choose)
        for choose in (nccl_choice(NCCL_VERSION), fastest)
    )
    made = kind_calls(groups, "allgather", nbytes)
    relays_us = joint_bound(topology, made, relays=True).us
    return [nccl.together_us, between.together_us, relaying.time_us, between.bound_us, relays_us]


def print_programs(profiles: Sequence[str]) -> None:
    """Print simulated times of programs with relays."""
    rows, gains, below = [], [], 0
    for profile in profiles:
        for machine, topology, layout, kind, groups in kinds(profile, ()):
            if not GAIN < (gain(topology, groups, "allgather") or 0) < inf:
                continue
            for nbytes in SIZES:
                us = program_times(topology, groups, nbytes)
                gains.append(min(us[:2]) / us[2])
                below += us[2] < us[3]
                ratios = [f"{us[n] / us[2]:.2f}" for n in (0, 1, 3, 4)]
                name = [machine, layout, kind, format_bytes(nbytes)]
                rows.append([*name, *(f"{each:.0f}" for each in us), *ratios])
    head = ["machine", "layout", "kind", "bytes", "NCCL", "members", "relays", "bound"]
    head += ["relays' bound", "over NCCL", "over members", "of bound", "of relays' bound"]
    print("\nallgather of all groups of a kind at once, us, simulated")
    print(columns(head, rows))
    print(
        f"relays over the faster of NCCL and members: geometric mean {geometric_mean(gains):.2f} "
        f"of {len(rows)}, {min(gains):.2f} to {max(gains):.2f}; in {below} they take less than any "
        "program between members (of bound over 1)"
    )


def main() -> None:
    """Print the gains of each kind and collective, and the times of programs."""
    rows, finite = [], []
    profiles = sys.argv[1:] or list(dict.fromkeys((*ONE_HOST, *MACHINES)))
    for profile in profiles:
        for machine, topology, layout, kind, groups in kinds(profile):
            if len(groups[0]) == topology.ranks:
                continue
            for who, callers in (("all", groups), ("one", groups[:1])):
                found = [gain(topology, callers, each) for each in FLOW_COLLECTIVES]
                if who == "all":
                    finite += [each for each in found if each not in (None, inf)]
                shape = f"{len(groups)} x {len(groups[0])}"
                rows.append([machine, layout, kind, shape, who, *map(text_of, found)])
    print(columns(["machine", "layout", "kind", "groups", "call", *FLOW_COLLECTIVES], rows))
    print(
        f"all groups of a kind at once: relays may gain over {GAIN} in "
        f"{sum(each > GAIN for each in finite)} of {len(finite)} that members can do alone, "
        f"geometric mean {geometric_mean(finite):.2f}, at most {max(finite):.2f}"
    )
    print_programs(profiles)


if __name__ == "__main__":
    publish(main, "Bounds, and simulated times")
