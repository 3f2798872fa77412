"""Bounds of groups that call at once, over those where GPUs pass on what other groups send.

    .venv/bin/python benchmarks/relays.py [PROFILE ...] [--write]

Computed, not timed. Each figure is the bound between members over the bound with relays through
non-members, for 256 MiB: 1 where relays gain nothing, "only" where no links between members join
them. First all groups of a kind call, then one of them, and the others are idle.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from statistics import geometric_mean

from report import publish

from groups import HOSTS, MACHINES, calls
from tuccl.cli.output import columns
from tuccl.errors import InputError
from tuccl.groups.bounds import joint_bound, kind_calls
from tuccl.groups.joint_flow import FLOW_COLLECTIVES
from tuccl.groups.layout import Groups, megatron_groups
from tuccl.topology import Topology, join, load_profile

ONE_HOST = ("dgx-1v", "ndv2", "v100x4", "mi300x", "dgx-a100", "l40sx8", "mesh-4x4", "torus-4x4")
NBYTES = 256 << 20
GAIN = 1.1


def kinds(profile: str) -> Iterator[tuple[str, Topology, str, str, Groups]]:
    """Yield (machine, topology, layout, kind, groups): of one host, then of several."""
    host = load_profile(profile)
    for layout in ("tp=2", "tp=4") if profile in ONE_HOST else ():
        for kind in megatron_groups(layout, host.ranks).kinds:
            yield profile, host, layout, kind.name, kind.groups
    if profile in MACHINES:
        topology = join(host, HOSTS)
        named = {(layout, kind): job.kind(kind).groups for layout, job, kind, _ in calls(topology)}
        for (layout, kind), groups in named.items():
            yield f"{HOSTS}x {profile}", topology, layout, kind, groups


def gain(topology: Topology, groups: Groups, collective: str) -> float | None:
    """Return the bound between members over that with relays, None where no flows are found."""
    made = kind_calls(groups, collective, NBYTES)
    relayed = joint_bound(topology, made, relays=True)
    try:
        between_members_us = joint_bound(topology, made).us
    except InputError:
        between_members_us = inf
    if relayed.why_no_flow:
        return None
    return between_members_us / min(relayed.us, between_members_us)


def text_of(found: float | None) -> str:
    """Return a gain in words."""
    return "-" if found is None else "only" if found == inf else f"{found:.2f}"


def main() -> None:
    """Print the gains of each kind and collective."""
    rows, finite = [], []
    for profile in sys.argv[1:] or dict.fromkeys((*ONE_HOST, *MACHINES)):
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


if __name__ == "__main__":
    publish(main, "Computed: bounds, no times")
