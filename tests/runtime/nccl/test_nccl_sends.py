"""What NCCL makes of sends and receives."""

from __future__ import annotations

from types import SimpleNamespace

from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.constants import tuning_constants
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.sends import p2p_parts, p2p_protocol
from tuccl.topology import join, load_profile


def test_alltoall_is_grouped_send_and_receive(hand: SimpleNamespace) -> None:
    small = nccl_choice(hand.mesh(), "alltoall", 4096)
    large = nccl_choice(hand.mesh(), "alltoall", 1 << 28)
    assert small.algorithm == large.algorithm == "SendRecv"
    assert (small.protocol, large.protocol) == ("LL", "Simple")
    assert small.text.startswith("SendRecv/LL/")


def test_parts_of_a_peer_grow_with_its_bytes() -> None:
    """DGX A100: 32 channels, 4 for each of 8 peers; two nodes: 2 a peer."""
    constants = tuning_constants()["2.19"]
    alone = nccl_graph(load_profile("dgx-a100"))
    sizes = [n << 10 for n in (16, 64, 128, 256, 1 << 20)]
    assert [p2p_parts(constants, alone, n) for n in sizes] == [1, 1, 2, 4, 4]
    pair = nccl_graph(join(load_profile("dgx-a100"), 2))
    assert {p2p_parts(constants, pair, n << 10) for n in (1 << 8, 1 << 20)} <= {1, 2}


def test_a_hybrid_mesh_has_few_channels_for_a_peer() -> None:
    """One link to some peers, none to others: 2 channels; src/graph/paths.cc."""
    assert nccl_graph(load_profile("dgx-1v")).peer_channels == 2
    assert nccl_graph(load_profile("v100x4")).peer_channels == 4


def test_small_messages_by_ll_from_212_on_and_larger_ones_from_222_on() -> None:
    graph = nccl_graph(load_profile("dgx-a100"))

    def most(version: str) -> int:
        return sum(
            p2p_protocol(tuning_constants()[version], graph, 1 << n) == "LL" for n in range(30)
        )

    assert most("2.10") == 0
    assert most("2.12") == most("2.20") == 15  # up to 16 KiB
    assert most("2.22") == 20  # times 32 channels
