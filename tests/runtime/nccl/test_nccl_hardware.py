"""What of NCCL's own choice hangs on the machine: LL128, rings, NVLS."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from tests.nccl_machines import SIZES, machine
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_versions
from tuccl.topology import Topology, join, load_profile

# LL128 and its machines.


def protocols(topology: Topology, version: str = NCCL_VERSION) -> set[str]:
    return {nccl_choice(topology, "allreduce", n, version).protocol for n in SIZES}


def test_ll128_only_where_it_is_safe(hand: SimpleNamespace) -> None:
    assert "LL128" in protocols(hand.mesh())
    assert "LL128" not in protocols(hand.mesh(model="GTX 1080"))
    assert "LL128" not in protocols(hand.mesh(model="P100-SXM2-16GB"))


@pytest.mark.parametrize(
    ("model", "first"), [("V100", "2.5"), ("A100", "2.7"), ("H100", "2.15"), ("B200", "2.25")]
)
def test_ll128_reaches_an_architecture_with_the_version(
    hand: SimpleNamespace, model: str, first: str
) -> None:
    """tuning.cc: Volta from 2.5 on, Ampere 2.7, Hopper 2.15, Blackwell 2.25."""
    topology = hand.mesh(model=model)
    order = nccl_versions()
    for version in order:
        assert ("LL128" in protocols(topology, version)) == (
            order.index(version) >= order.index(first)
        )


def test_gpus_of_two_kinds_do_without_ll128(hand: SimpleNamespace) -> None:
    alike = hand.mesh()
    [first, *rest] = [n for n in alike.nodes if n.kind == "gpu"]
    mixed = msgspec.structs.replace(
        alike, nodes=(msgspec.structs.replace(first, model="A100"), *rest)
    )
    assert "LL128" in protocols(alike) and "LL128" not in protocols(mixed)


# Rings as NCCL logs them.

# What public logs say, by machine, hosts and version: rings found and channels launched.
# - NVIDIA/nccl#713: 4 V100, two links a pair: a graph of 6 rings at 22 GB/s, samechannels 0.
# - NVIDIA/nccl#507: 8 GPUs of a DGX-2: "Trees [0] ... [11]", 2.8 or 2.9.
# - NVIDIA/nccl#879: 8 A100: "NVL[264.0] - NVS/0", 12 links of 22 GB/s.
# - NVIDIA/Megatron-LM#516: 8 GPUs on NVSwitch: "Channel 00/24 : 0 1 2 3 4 5 6 7", all alike.
# - NVIDIA/nccl#1453: three nodes of 8 H100: "Channel 00/16", "NVLS Head 0" to 7.
# - NVIDIA/nccl#1538: 2.22.3, two nodes of 8: "Channel 01/16", "P2P Chunksize set to 131072".
LOGGED = [
    ("v100x4", 1, "2.12", 6, 12),
    ("dgx-2", 1, "2.8", 6, 12),
    ("dgx-1v", 1, "2.12", 6, 12),
    ("dgx-a100", 1, "2.14", 12, 24),
    ("dgx-a100", 1, "2.18", 12, 24),
    ("dgx-h100", 1, "2.18", 12, 24),
    ("dgx-h100", 1, "2.23", 12, 24),
    ("dgx-h100", 3, "2.21", 8, 16),
    ("dgx-a100", 2, "2.22.3", 8, 16),
]


@pytest.mark.parametrize(("name", "hosts", "version", "rings", "launched"), LOGGED)
def test_channels_are_those_of_public_logs(
    name: str, hosts: int, version: str, rings: int, launched: int
) -> None:
    graph = nccl_graph(machine(name, hosts), version)
    assert (graph.ring.count, graph.launch_channels) == (rings, launched)


def test_rates_and_orders_are_those_of_public_logs() -> None:
    quad = nccl_graph(load_profile("v100x4"), "2.12")
    assert quad.ring.intra_gbs == 22.0 and not quad.same_channels  # NVIDIA/nccl#713
    assert nccl_graph(load_profile("dgx-a100"), "2.14").bandwidth_gbs == 264.0  # NVIDIA/nccl#879
    assert nccl_graph(load_profile("dgx-a100"), "2.18").same_channels  # NVIDIA/Megatron-LM#516
    assert nccl_graph(machine("dgx-h100", 3), "2.21").nvls_heads == 8  # NVIDIA/nccl#1453


def test_fewer_links_fewer_channels() -> None:
    """H800, 8 links to the switch: "16 coll channels, 16 p2p channels, 16 p2p channels per peer".

    NVIDIA/nccl#892.
    """
    node = load_profile("dgx-h100")
    links = tuple(
        msgspec.structs.replace(link, bandwidth=200.0) if link.kind == "nvlink" else link
        for link in node.links
    )
    graph = nccl_graph(msgspec.structs.replace(node, links=links), "2.18")
    assert (graph.launch_channels, graph.peer_channels) == (16, 16)


@pytest.mark.parametrize("version", nccl_versions())
def test_the_network_bounds_the_rings_across_nodes(version: str) -> None:
    node = load_profile("dgx-a100")
    alone, joined = nccl_graph(node, version), nccl_graph(join(node, 2), version)
    assert joined.bandwidth_gbs < alone.bandwidth_gbs
    assert joined.nodes == 2 and joined.ranks == 16


# NVLS.


def algorithms(topology: Topology, collective: str, version: str) -> set[str]:
    return {nccl_choice(topology, collective, n, version).algorithm for n in SIZES}


@pytest.mark.parametrize("version", nccl_versions())
def test_nvls_where_hopper_and_switch_and_version_have_it(version: str) -> None:
    """2.17 on one node, from 2.18 on by trees on several; src/transport/nvls.cc."""
    order = nccl_versions()
    has, trees = (order.index(version) >= order.index(first) for first in ("2.17", "2.18.1"))
    assert ("NVLS" in algorithms(machine("dgx-h100", 1), "allreduce", version)) == has
    assert ("NVLSTree" in algorithms(machine("dgx-h100", 2), "allreduce", version)) == trees
    assert algorithms(machine("dgx-a100", 1), "allreduce", version) <= {"Ring", "Tree"}
    assert algorithms(machine("dgx-h100", 2), "allgather", version) == {"Ring"}


def test_nvls_gathers_only_from_219_on() -> None:
    node = load_profile("dgx-h100")
    assert "NVLS" not in algorithms(node, "allgather", "2.18")
    assert "NVLS" in algorithms(node, "allgather", "2.19")


def test_nvls_has_its_own_channels_and_can_be_switched_off() -> None:
    node = load_profile("dgx-h100")
    choice = nccl_choice(node, "allreduce", 1 << 30)
    assert (choice.algorithm, choice.channels, choice.threads) == ("NVLS", 16, 640)
    assert nccl_choice(node, "allreduce", 1 << 30, nvls=False).algorithm == "Ring"
    assert nccl_choice(node, "allreduce", 1 << 20, algorithm="NVLS").chunk_bytes == 16 << 10
    assert nccl_choice(node, "allreduce", 1 << 33).chunk_bytes == 128 << 10


def test_two_hopper_gpus_are_too_few_for_nvls() -> None:
    pair = load_profile("dgx-h100")
    keep = {n.id for n in pair.nodes if n.rank is None or n.rank < 2}
    nodes = tuple(n for n in pair.nodes if n.id in keep)
    links = tuple(x for x in pair.links if {x.src, x.dst} <= keep)
    small = msgspec.structs.replace(pair, nodes=nodes, links=links)
    assert nccl_graph(small).nvls_heads == 0
