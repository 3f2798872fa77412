"""NCCL's model against values worked out by hand from its sources."""

from __future__ import annotations

import pytest

from tests.nccl_machines import MODELLED, SIZES
from tuccl.errors import InputError
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.constants import tuning_constants
from tuccl.runtime.nccl.graph import NcclGraph, nccl_graph
from tuccl.runtime.nccl.model import time_us
from tuccl.runtime.nccl.thresholds import tree_threshold_bytes
from tuccl.topology import join, load_profile

# Values worked out by hand.


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def us(version: str, graph: NcclGraph, collective: str, how: str, by: str, nbytes: int) -> float:
    constants = tuning_constants()[version]
    return time_us(constants, graph, collective, how, by, nbytes, graph.launch_channels)  # type: ignore[arg-type]


def test_values_of_219_worked_out_by_hand() -> None:
    """The formulas of NCCL 2.19, step by step, for 64 MiB on 8 GPUs or two times 8."""
    nbytes = 64 << 20
    alone = nccl_graph(load_profile("dgx-a100"))  # 12 rings of 20 GB/s = 240 GB/s
    pair = nccl_graph(join(load_profile("dgx-a100"), 2))  # 8 of 24 GB/s = 192 GB/s, AMD
    volta = nccl_graph(join(load_profile("ndv2"), 2))  # one ring of 12 GB/s, Intel
    # Ring: 14 steps of 3.4 us; 240 GB/s * 8/14.
    assert us("2.19", alone, "allreduce", "Ring", "Simple", nbytes) == near(
        8.4 + 14 * 3.4 + nbytes / (1e3 * 240 * 8 / 14)
    )
    # LL128: 0.92 of the rate, below 12 * 20; 7 steps of 1.9 us.
    assert us("2.19", alone, "allgather", "Ring", "LL128", nbytes) == near(
        14 + 7 * 1.9 + nbytes / (1e3 * 0.92 * 240 * 8 / 7)
    )
    # LL on one node: min(87.7, 240 / 3) = 80.
    assert us("2.19", alone, "allgather", "Ring", "LL", nbytes) == near(
        6.6 + 7 * 0.6 + nbytes / (1e3 * 80 * 8 / 7)
    )
    # Two nodes: 30 steps, 2 * 2 over the net (14 us), the others the post of AMD's CPU, 2 * 3 us;
    # the plateau from 64 B * 16 channels * 16 ranks on, 1.4 on an A100.
    assert us("2.19", pair, "allreduce", "Ring", "Simple", nbytes) == near(
        1.4 * (8.4 + 26 * 6.0 + 4 * 14) + nbytes / (1e3 * 192 * 16 / 30)
    )
    # Allgather: 15 steps, one over the net, no plateau.
    assert us("2.19", pair, "allgather", "Ring", "Simple", nbytes) == near(
        8.4 + 14 * 6.0 + 14 + nbytes / (1e3 * 192 * 16 / 15)
    )
    # Tree: 2 * (7 inside + log2(2) between); the second pass raises it from 12 to 20 GB/s inside,
    # where the rate of two nodes is taken; 0.92 of that / 2, 0.8 of it at 64 B * 2**20.
    assert us("2.19", volta, "allreduce", "Tree", "Simple", nbytes) == near(
        2 * (7 * 28 + 28) + nbytes / (1e3 * 0.92 * 20 / 2 * 0.8)
    )
    # NVLS: 8 heads of 40 GB/s (9 * 40 <= 18 * 20.6), 5/6 of it.
    hopper = nccl_graph(load_profile("dgx-h100"))
    assert us("2.19", hopper, "allreduce", "NVLS", "Simple", nbytes) == near(
        23 + nbytes / (1e3 * 8 * 40 * 5 / 6)
    )


def test_values_of_other_versions_worked_out_by_hand() -> None:
    nbytes = 64 << 20
    old = nccl_graph(load_profile("dgx-a100"), "2.12")
    # NCCL 2.12 lets an A100 have 235 GB/s in all of its 12 * 22.
    assert us("2.12", old, "allreduce", "Ring", "Simple", nbytes) == near(
        8.4 + 14 * 3.4 + nbytes / (1e3 * 235 * 8 / 14)
    )
    # NCCL 2.12 on V100: net 28 us, no post, plateau 1.9.
    volta = nccl_graph(join(load_profile("ndv2"), 2), "2.12")
    assert us("2.12", volta, "allreduce", "Ring", "Simple", nbytes) == near(
        1.9 * (8.4 + 26 * 3.4 + 4 * 28) + nbytes / (1e3 * 12 * 16 / 30)
    )
    # NCCL 2.6: every step of a ring between nodes takes the net's 6.6 us, and there is no plateau.
    first = nccl_graph(join(load_profile("ndv2"), 2), "2.6")
    assert us("2.6", first, "allreduce", "Ring", "Simple", nbytes) == near(
        8.4 + 30 * 6.6 + nbytes / (1e3 * 12 * 16 / 30)
    )
    # NCCL 2.6: LL128's rings give 100 GB/s in all, of 6 * 21 * 120/128.
    cube = nccl_graph(load_profile("dgx-1v"), "2.6")
    assert us("2.6", cube, "allreduce", "Ring", "LL128", nbytes) == near(
        3.6 + 14 * 2.5 + nbytes / (1e3 * 100 * 8 / 14)
    )
    # NCCL 2.8: 16.9 GB/s a channel.
    later = nccl_graph(load_profile("dgx-1v"), "2.8")
    assert us("2.8", later, "allreduce", "Ring", "LL128", nbytes) == near(
        10 + 14 * 1.9 + nbytes / (1e3 * 6 * 16.9 * 8 / 14)
    )
    # NCCL 2.22: LL has half of the rate, up to 141 GB/s on one node of H100.
    hopper = nccl_graph(load_profile("dgx-h100"), "2.22")
    assert us("2.22", hopper, "allreduce", "Ring", "LL", nbytes) == near(
        6.6 + 14 * 0.6 + nbytes / (1e3 * 141 * 8 / 14)
    )
    # NCCL 2.23: of 30 steps two cross the net; the tree has 8.4 us and hops of 4 and 14 us, and
    # 8 channels of 30 GB/s that an A100 on two nodes holds to 23.6.
    pair = nccl_graph(join(load_profile("dgx-a100"), 2), "2.23")
    assert us("2.23", pair, "allreduce", "Ring", "LL128", nbytes) == near(
        14 + 28 * 2.0 + 2 * 4.0 + nbytes / (1e3 * 8 * 20 * 16 / 30)
    )
    assert us("2.23", pair, "allreduce", "Tree", "Simple", nbytes) == near(
        8.4 + 2 * (7 * 4 + 14) + nbytes / (1e3 * 8 * 23.6 / 2 * 0.8)
    )
    # Broadcast where rings differ: a hop for each rank, Simple's with the tree's chunk of 28 us.
    assert us(
        "2.12", nccl_graph(load_profile("v100x4"), "2.12"), "broadcast", "Ring", "Simple", 4000
    ) == near(8.4 + 4 * 28 + 4000 / (1e3 * 6 * 22))


def test_the_thresholds_of_24_worked_out_by_hand() -> None:
    """NCCL 2.4.6: two nodes of 8 V100 run trees at any size, four up to where rings catch up."""
    two, four = (nccl_graph(join(load_profile("ndv2"), hosts), "2.4") for hosts in (2, 4))
    assert tree_threshold_bytes(two, two.launch_channels) == float("inf")
    # ring 5 GB/s a channel, 2 channels, tree 3/4 of it; 31 * 6 us against 2 * 15 + 7 * 4.
    assert tree_threshold_bytes(four, four.launch_channels) == near(
        1e3 * 10 * 7.5 / 2.5 * (31 * 6 - (2 * 15 + 7 * 4))
    )
    alone = load_profile("ndv2")
    # 12 channels of 256 threads, 8 ranks, 64 bytes a thread: up to 1.5 MiB by LL.
    assert nccl_choice(alone, "allreduce", 12 * 256 * 8 * 64, "2.4").protocol == "LL"
    assert nccl_choice(alone, "allreduce", 12 * 256 * 8 * 64 + 1, "2.4").protocol == "Simple"
    # Two nodes double the bytes a thread (ncclThreadThreshold), a tree has them fourfold again.
    pair, channels = join(alone, 2), two.launch_channels
    for collective, limit in (
        ("allreduce", channels * 256 * 64 * 2 * 4),
        ("allgather", channels * 256 * 16 * 64 * 2),
    ):
        assert nccl_choice(pair, collective, limit, "2.4").protocol == "LL"
        assert nccl_choice(pair, collective, limit + 1, "2.4").protocol == "Simple"


# Chunks.


def test_chunks_are_those_of_enqueue() -> None:
    topology = join(load_profile("dgx-a100"), 2)

    def chunk(collective: str, algorithm: str, protocol: str, nbytes: int, version: str) -> int:
        return nccl_choice(
            topology, collective, nbytes, version, algorithm=algorithm, protocol=protocol
        ).chunk_bytes

    assert chunk("allreduce", "Ring", "LL", 1 << 20, "2.19") == 32 << 10
    assert chunk("allgather", "Ring", "LL128", 1 << 30, "2.19") == 576000
    assert chunk("allgather", "Ring", "Simple", 1 << 30, "2.19") == 2 << 20
    assert chunk("broadcast", "Ring", "Simple", 1 << 30, "2.19") == 512 << 10
    assert chunk("allreduce", "Tree", "Simple", 1 << 33, "2.19") == 512 << 10
    assert chunk("allreduce", "Tree", "Simple", 1 << 20, "2.19") == 32 << 10
    assert chunk("allreduce", "Tree", "Simple", 1 << 20, "2.20") == 512 << 10
    assert nccl_choice(topology, "allreduce", 1024, "2.4").chunk_bytes == 16 << 10


@pytest.mark.parametrize("version", MODELLED)
def test_tree_chunks_grow_with_the_data(version: str) -> None:
    topology = join(load_profile("dgx-a100"), 4)
    for protocol in ("LL128", "Simple"):
        chunks = [
            nccl_choice(
                topology, "allreduce", n, version, algorithm="Tree", protocol=protocol
            ).chunk_bytes
            for n in SIZES[-12:]
        ]
        assert chunks == sorted(chunks)


def test_values_of_nvls_from_227_on_worked_out_by_hand() -> None:
    nbytes = 64 << 20
    hopper = nccl_graph(load_profile("dgx-h100"), "2.27")
    # 2.27: an allgather brings 7/8 of the data; 8 heads of 40 GB/s.
    assert us("2.27", hopper, "allgather", "NVLS", "Simple", nbytes) == near(
        25 + nbytes / (1e3 * 8 * 40 * 7 / 8)
    )
    # 2.28: 0.85 of 40 GB/s, 7/8 of it, twice for an allreduce: 59.5 GB/s a head, 8/14 of it.
    hopper = nccl_graph(load_profile("dgx-h100"), "2.28")
    assert us("2.28", hopper, "allreduce", "NVLS", "Simple", nbytes) == near(
        25 + nbytes / (1e3 * 8 * 2 * 40 * 0.85 * 7 / 8 * 8 / 14)
    )
    # Between two nodes twice 48 GB/s a head, but 57.7 at most; 16/30 of it; 20.9 us a level.
    pair = nccl_graph(join(load_profile("dgx-h100"), 2), "2.28")
    head = min(2 * pair.nvls_gbs * 0.85 * 7 / 8, 2 * pair.nvls_net_gbs, 57.7)
    assert us("2.28", pair, "allreduce", "NVLSTree", "Simple", nbytes) == near(
        25 + 2 * 20.9 + nbytes / (1e3 * 8 * head * 16 / 30)
    )


def test_values_of_joined_racks_worked_out_by_hand() -> None:
    """NCCL 2.30 on racks of 72 GB200: a rack is one node (MNNVL), its rings those of one switch."""
    nbytes = 64 << 20
    rack = load_profile("gb200-nvl72")
    joined = {hosts: nccl_graph(join(rack, hosts), "2.30") for hosts in (2, 8)}
    for hosts, graph in joined.items():
        # A GPU has 18 links of 40.1 GB/s: room for 16 rings of 45.1; a NIC carries 50.
        assert (graph.nodes, graph.ranks_per_node) == (hosts, 72)
        assert (graph.ring.count, graph.ring.intra_gbs, graph.ring.inter_gbs) == (16, 45.1, 45.1)
        # 32 heads, of 20 GB/s: 33 * 20 <= 721.8 < 33 * 22. Between nodes 40, the first that is
        # twice 20.
        assert (graph.nvls_heads, graph.nvls_gbs, graph.nvls_net_gbs) == (32, 20.0, 40.0)
        # 0.74 of 20 GB/s, 31/32 of it, twice: 28.675 GB/s, below both the network's 40 and the
        # bounds of 96 and 80; n/(2(n-1)) of it, and 20.9 us for each level of the tree, twice.
        n, levels = 72 * hosts, {2: 1, 8: 3}[hosts]
        assert us("2.30", graph, "allreduce", "NVLSTree", "Simple", nbytes) == near(
            25 + 2 * levels * 20.9 + nbytes / (1e3 * 32 * 28.675 * n / (2 * (n - 1)))
        )
        # Rings: all steps but one a joint are inside, at 3 posts of an ARM CPU of 1 us or NVLink's
        # 3.4 us, whichever is longer.
        assert us("2.30", graph, "allgather", "Ring", "Simple", nbytes) == near(
            8.4 + (n - hosts) * 3.4 + (hosts - 1) * 14 + nbytes / (1e3 * 16 * 45.1 * n / (n - 1))
        )
    alone = nccl_graph(rack, "2.30")
    assert (alone.nodes, alone.nvls_heads, alone.nvls_gbs) == (1, 32, 20.0)


def test_nvls_gathers_for_32_gpus_of_a_node_at_most() -> None:
    rack, small = load_profile("gb200-nvl72"), load_profile("gb200-nvl32")
    pair = join(rack, 2)
    assert nccl_choice(rack, "allreduce", 1 << 30, "2.30").algorithm == "NVLS"
    assert nccl_choice(pair, "allreduce", 1 << 30, "2.30").algorithm == "NVLSTree"
    assert nccl_choice(small, "allgather", 1 << 30, "2.30", algorithm="NVLS").channels == 24
    for topology in (rack, pair):
        with pytest.raises(InputError, match="NVLS for allgather"):
            nccl_choice(topology, "allgather", 1 << 30, "2.30", algorithm="NVLS")
