"""Rings, trees, NVLS and the choice against what NCCL's own code of each version computes.

``searches.json`` holds what src/graph of NVIDIA/nccl at each tag prints for one host of a machine:
``graphs`` the number of channels with their rates inside a host and between hosts, and whether a
tree has one head; ``choices`` the sizes at which algorithm and protocol change, each with the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.topology import Topology, join, load_profile, load_topology
from tuccl.topology.subset import keep_gpus

ROOT = Path(__file__).parents[3]
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("searches.json").read_text())
VERSIONS: list[str] = RECORDED["versions"]
# Split trees of 2.8, which PCIe alone bounds otherwise, are not modelled.
UNMATCHED = {("rtx2080tix4 4", "2.8.3")}


@cache
def node(name: str) -> Topology:
    machine, _, gpus = name.partition(" ")
    file = ROOT / "benchmarks" / "machines" / f"{machine}.json"
    whole = load_topology(file) if file.exists() else load_profile(machine)
    return keep_gpus(whole, range(int(gpus))) if int(gpus) < whole.ranks else whole


@cache
def topology(name: str, hosts: int) -> Topology:
    return join(node(name), hosts) if hosts > 1 else node(name)


def matched(name: str, hosts: int, indices: list[int]) -> Iterator[str]:
    for version in (VERSIONS[index] for index in indices):
        if hosts == 1 or (name, version) not in UNMATCHED:
            yield version


def size_before(nbytes: int) -> int:
    """Return the size that was looked at before: four an octave from 64 B."""
    return round(64 * 2 ** ((round(4 * math.log2(nbytes / 64)) - 1) / 4))


def test_channels_are_those_of_the_search() -> None:
    for name, hosts, indices, ring, tree, nvls in RECORDED["graphs"]:
        for version in matched(name, hosts, indices):
            graph = nccl_graph(topology(name, hosts), version)
            rings, trees = graph.ring, graph.tree
            simple = VERSIONS.index(version) >= VERSIONS.index("2.18.3")  # which came with 0.85
            label = f"{name} x{hosts}, {version}"
            assert [rings.count, rings.intra_gbs, rings.inter_gbs] == ring, label
            assert [trees.count, trees.intra_gbs, trees.inter_gbs] == tree[:3], label
            assert trees.lone_head == bool(tree[3]) or not simple, label
            if nvls and graph.nvls_heads:
                found = graph.nvls_heads, min(graph.nvls_gbs, graph.nvls_net_gbs)
                assert found == (nvls[0], min(nvls[1:])), label


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
def test_the_choice_is_that_of_the_tuning_model(collective: str) -> None:
    """At every size where it changes, and before the next, with the time that NCCL predicts."""
    for name, hosts, called, indices, text in RECORDED["choices"]:
        points = [point.split(":") for point in text.split()]
        last = [str(1 << 33), "", ""]
        for version in matched(name, hosts, indices) if called == collective else ():
            for (nbytes, kind, us), (end, _, _) in pairwise([*points, last]):
                label = f"{name} x{hosts}, {version}, {nbytes} B"
                choice = nccl_choice(topology(name, hosts), collective, int(nbytes), version)
                assert f"{choice.algorithm}/{choice.protocol}" == kind, label
                assert choice.predicted_us == pytest.approx(float(us), rel=2e-5), label
                before = size_before(int(end))
                if before > int(nbytes):
                    choice = nccl_choice(topology(name, hosts), collective, before, version)
                    assert f"{choice.algorithm}/{choice.protocol}" == kind, label


# What the search finds on two hosts like dgx-h100 with several NICs a GPU, by their number and
# rate: channels, rates of trees inside and between hosts. 2 of 180 Gb/s as OCI's, 4 of 100 as p5's.
NICS = [
    (2, 22.5, "2.19.3", 16, 22.0, 24.0, 22.0),
    (2, 22.5, "2.21.5", 16, 22.0, 24.0, 22.0),
    (2, 22.5, "2.26.2", 16, 22.0, 24.0, 22.0),
    (4, 12.5, "2.19.3", 16, 12.0, 22.0, 12.0),
    (4, 12.5, "2.24.3", 16, 12.0, 22.0, 12.0),
    (4, 12.5, "2.26.2", 32, 12.0, 12.0, 12.0),
    (4, 12.5, "2.30.7", 32, 12.0, 12.0, 12.0),
]


def with_nics(count: int, gbs: float) -> Topology:
    """Return a DGX H100 whose NICs are replaced by so many each, of that rate."""
    host = load_profile("dgx-h100")
    nics = {n.id for n in host.nodes if n.kind == "nic"}
    nodes = [n for n in host.nodes if n.id not in nics]
    links = [x for x in host.links if not {x.src, x.dst} & nics]
    for copy in range(count):
        for n in host.nodes:
            if n.id in nics:
                nodes.append(msgspec.structs.replace(n, id=f"{n.id}-{copy}", port_gbs=gbs))
        for x in host.links:
            ends = {e: f"{getattr(x, e)}-{copy}" for e in ("src", "dst") if getattr(x, e) in nics}
            links += [msgspec.structs.replace(x, **ends)] if ends else []
    return msgspec.structs.replace(host, nodes=tuple(nodes), links=tuple(links))


@pytest.mark.parametrize(("nics", "gbs", "version", "count", "ring", "intra", "inter"), NICS)
def test_all_nics_of_a_gpu_carry_channels(
    nics: int, gbs: float, version: str, count: int, ring: float, intra: float, inter: float
) -> None:
    graph = nccl_graph(join(with_nics(nics, gbs), 2), version)
    assert (graph.ring.count, graph.ring.intra_gbs, graph.launch_channels) == (
        count,
        ring,
        2 * count,
    )
    assert (graph.tree.count, graph.tree.intra_gbs, graph.tree.inter_gbs) == (count, intra, inter)
    assert (graph.nvls_heads, graph.nvls_gbs) == (8, ring)


def test_each_nic_of_a_p5_carries_a_channel() -> None:
    """Its NICs have narrower buses of their own than the GPUs beside them."""
    pair = join(load_profile("p5"), 2)
    assert nccl_graph(pair, "2.24.3").ring.count == 16
    assert nccl_graph(pair, "2.26.2").ring.count == 32


def parts(name: str) -> Topology:
    """Return a DGX H100 with 8 NVLinks a GPU, one with every second NIC, or two GPUs of a DGX."""
    host = load_profile("dgx-a100" if name == "two A100" else "dgx-h100")
    if name == "H800":
        links = (
            msgspec.structs.replace(x, bandwidth=200.0) if x.kind == "nvlink" else x
            for x in host.links
        )
        return msgspec.structs.replace(host, links=tuple(links))
    if name.startswith("two"):
        return keep_gpus(host, range(2))
    gone = {n.id for n in host.nodes if n.kind == "nic"} - {"nic0", "nic2", "nic4", "nic6"}
    nodes = tuple(n for n in host.nodes if n.id not in gone)
    kept = tuple(x for x in host.links if not {x.src, x.dst} & gone)
    return msgspec.structs.replace(host, nodes=nodes, links=kept)


@pytest.mark.parametrize(
    ("name", "hosts", "version", "ring", "tree", "heads"),
    [
        ("H800", 2, "2.24.3", (8, 22.0), (8, 22.0, 22.0), 8),
        ("four NICs", 2, "2.19.3", (8, 24.0), (8, 45.0, 24.0), 4),
        ("four NICs", 2, "2.28.9", (8, 24.0), (8, 45.0, 24.0), 4),
        ("two H100", 1, "2.28.9", (12, 30.0), (12, 60.0, 60.0), 0),
        ("two A100", 1, "2.12.12", (12, 22.0), (12, 44.0, 44.0), 0),
    ],
)
def test_machines_that_no_profile_has(
    name: str,
    hosts: int,
    version: str,
    ring: tuple[float, ...],
    tree: tuple[float, ...],
    heads: int,
) -> None:
    """What the search of that version prints for them, as for the recorded ones."""
    node = parts(name)
    graph = nccl_graph(join(node, hosts) if hosts > 1 else node, version)
    assert (graph.ring.count, graph.ring.intra_gbs) == ring
    assert (graph.tree.count, graph.tree.intra_gbs, graph.tree.inter_gbs) == tree
    assert graph.nvls_heads == heads
