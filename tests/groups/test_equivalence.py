"""Groups that are alike: found where the machine has the symmetry, and nowhere else."""

from __future__ import annotations

import random

import msgspec
import pytest

from tuccl.groups.concurrent import group_call
from tuccl.groups.equivalence import group_key, group_orbits
from tuccl.groups.layout import megatron_groups
from tuccl.runtime import SimExecutor, time_baseline
from tuccl.topology import Topology, join, keep_gpus, load_profile

# Sizes of the orbits of tensor and data parallel groups on four hosts. Where each GPU has a NIC all
# data parallel groups are alike; on ndv2 a NIC hangs on one of the PCIe switches, v100x4's at one
# of the sockets.
MACHINES = [
    ("dgx-a100", "tp=8", [4], [8]),
    ("dgx-h100", "tp=8", [4], [8]),
    ("a100x8-roce", "tp=8", [4], [8]),
    ("ndv2", "tp=8", [4], [2, 2, 4]),
    ("v100x4", "tp=2", [8], [2]),
]


def hosts(profile: str, count: int = 4) -> Topology:
    return join(load_profile(profile), count)


@pytest.mark.parametrize(("profile", "layout", "tp", "dp"), MACHINES)
def test_orbits_of_known_machines(profile: str, layout: str, tp: list[int], dp: list[int]) -> None:
    topology = hosts(profile)
    job = megatron_groups(layout, topology.ranks)
    for name, sizes in (("tp", tp), ("dp", dp)):
        found = group_orbits(topology, job.kind(name).groups)
        assert [len(orbit) for orbit in found] == sizes
        assert sorted(n for orbit in found for n in orbit) == list(range(sum(sizes)))


@pytest.mark.parametrize("profile", ["ndv2", "dgx-a100", "v100x4"])
def test_alike_groups_have_one_key_and_take_as_long(profile: str) -> None:
    topology = hosts(profile, 2)
    groups = megatron_groups(f"tp={topology.ranks // 2}", topology.ranks).kind("dp").groups
    part = keep_gpus(topology, groups[0])
    own = time_baseline(SimExecutor(part), part, "nccl", "allreduce", 1 << 24)
    for orbit in group_orbits(topology, groups):
        assert len({group_key(topology, groups, number) for number in orbit}) == 1
        times_us: set[float] = set()
        for number in orbit:
            call = group_call(own, groups[number], 1 << 24)
            times_us |= {round(us, 6) for us in SimExecutor(topology).time_groups([call])}
        assert len(times_us) == 1


def renamed(topology: Topology, draw: random.Random) -> Topology:
    """The same machine with other names, its nodes and links in another order."""
    names = [f"x{n}" for n in range(len(topology.nodes))]
    draw.shuffle(names)
    to = dict(zip((node.id for node in topology.nodes), names, strict=True))
    host = {name: f"y{n}" for n, name in enumerate(draw.sample(topology.hosts, 2))}
    nodes = [
        msgspec.structs.replace(n, id=to[n.id], host=n.host and host[n.host])
        for n in topology.nodes
    ]
    links = [msgspec.structs.replace(e, src=to[e.src], dst=to[e.dst]) for e in topology.links]
    draw.shuffle(links)
    draw.shuffle(nodes)
    return msgspec.structs.replace(topology, nodes=tuple(nodes), links=tuple(links), routes=())


def test_keys_know_no_names_but_order_rates_and_members() -> None:
    topology, draw = hosts("ndv2", 2), random.Random(1)
    groups = megatron_groups("tp=8", 16).kind("dp").groups
    keys = [group_key(topology, groups, number) for number in range(8)]
    other = renamed(topology, draw)
    assert [group_key(other, groups, number) for number in range(8)] == keys
    turned = tuple(group[::-1] if n == 0 else group for n, group in enumerate(groups))
    assert group_key(topology, turned, 4) != keys[4]  # the family is another one
    assert group_key(topology, groups[:7], 4) != keys[4]
    nic = next(link for link in topology.links if link.kind == "network")
    slower = tuple(
        msgspec.structs.replace(e, bandwidth=e.bandwidth / 2) if e is nic else e
        for e in topology.links
    )
    changed = msgspec.structs.replace(topology, links=slower)
    assert group_key(changed, groups, 4) != keys[4]


def test_a_slower_nic_parts_what_was_alike() -> None:
    topology = hosts("dgx-h100", 2)
    groups = megatron_groups("tp=8", 16).kind("dp").groups
    assert [len(orbit) for orbit in group_orbits(topology, groups)] == [8]
    uplink = next(e for e in topology.links if "nic3" in e.src + e.dst and e.kind == "network")
    links = tuple(
        msgspec.structs.replace(e, bandwidth=e.bandwidth / 2) if e is uplink else e
        for e in topology.links
    )
    slower = msgspec.structs.replace(topology, links=links)
    found = group_orbits(slower, groups)
    assert len(found) > 1
    assert [3] in found


@pytest.mark.parametrize("kind", ["tp", "cp", "dp-cp"])
def test_groups_of_a_thousand_gpus_that_share_nothing_are_compared(kind: str) -> None:
    topology = hosts("dgx-h100", 128)
    groups = megatron_groups("tp=8,cp=2,pp=8", topology.ranks).kind(kind).groups
    assert group_orbits(topology, groups) == [list(range(len(groups)))]


def test_the_order_of_members_counts() -> None:
    topology = hosts("ndv2", 1)
    same = ((0, 1, 2, 3), (4, 5, 6, 7))
    assert len(group_orbits(topology, same)) == 1
    crossed = ((0, 1, 2, 3), (4, 6, 5, 7))
    assert len(group_orbits(topology, crossed)) == 2
