"""NCCL's own choice: the shape that its tuning model is known for."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tuccl.errors import InputError
from tuccl.runtime.nccl_choice import (
    _plateau,
    _time_us,
    nccl_choice,
    nccl_versions,
    p2p_parts,
)
from tuccl.runtime.nccl_constants import (
    CONSTANTS,
    PROTOCOLS,
    TREE_CORRECTION,
    TuningConstants,
)
from tuccl.runtime.nccl_graph import NcclGraph, nccl_graph
from tuccl.topology import join, load_profile

SIZES = [1 << n for n in range(6, 33)]


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce-scatter", "broadcast"])
def test_low_latency_for_small_and_simple_for_large(
    hand: SimpleNamespace, version: str, hosts: int, collective: str
) -> None:
    topology = hand.mesh(hosts=hosts)
    choices = [nccl_choice(topology, collective, nbytes, version) for nbytes in SIZES]
    assert choices[0].protocol == "LL"
    assert choices[-1].protocol == "Simple"
    assert choices[-1].channels == nccl_graph(topology).launch_channels
    predicted = [c.predicted_us or 0.0 for c in choices]
    assert all(0 < a <= b * 1.5 for a, b in pairwise(predicted))


@pytest.mark.parametrize("version", nccl_versions())
def test_trees_for_small_allreduce_on_many_nodes_rings_for_large(version: str) -> None:
    topology = join(load_profile("dgx-a100"), 8)
    assert nccl_choice(topology, "allreduce", 4096, version).algorithm == "Tree"
    assert nccl_choice(topology, "allreduce", 1 << 33, version).algorithm == "Ring"
    assert nccl_choice(topology, "allgather", 4096, version).algorithm == "Ring"


def test_ll128_only_where_it_is_safe(hand: SimpleNamespace) -> None:
    def protocols(topology: object) -> set[str]:
        return {nccl_choice(topology, "allreduce", n).protocol for n in SIZES}  # type: ignore[arg-type]

    assert "LL128" in protocols(hand.mesh())
    assert "LL128" not in protocols(hand.mesh(model="GTX 1080"))
    assert "LL128" not in protocols(hand.mesh(model="P100-SXM2-16GB"))


def test_fewer_channels_and_threads_for_less_data(hand: SimpleNamespace) -> None:
    topology = hand.mesh()
    choices = [nccl_choice(topology, "broadcast", nbytes) for nbytes in SIZES]
    for protocol in PROTOCOLS:
        used = [(c.channels, c.threads) for c in choices if c.protocol == protocol]
        assert used == sorted(used)
    assert all(c.channels >= 1 and c.threads % 32 == 0 for c in choices)


@pytest.mark.parametrize(
    ("profile", "channels"), [("v100x4", 6), ("dgx-1v", 6), ("dgx-a100", 12), ("dgx-h100", 18)]
)
def test_channels_are_the_links_of_a_gpu(profile: str, channels: int) -> None:
    graph = nccl_graph(load_profile(profile))
    assert graph.channels == channels and graph.nvlink


def test_the_network_bounds_the_rings_across_nodes() -> None:
    node = load_profile("dgx-a100")
    alone, joined = nccl_graph(node), nccl_graph(join(node, 2))
    assert joined.bandwidth_gbs < alone.bandwidth_gbs
    assert joined.nodes == 2 and joined.ranks == 16


def test_alltoall_is_grouped_send_and_receive(hand: SimpleNamespace) -> None:
    small = nccl_choice(hand.mesh(), "alltoall", 4096)
    large = nccl_choice(hand.mesh(), "alltoall", 1 << 28)
    assert small.algorithm == large.algorithm == "SendRecv"
    assert (small.protocol, large.protocol) == ("LL", "Simple")
    assert small.text.startswith("SendRecv/LL/")


def test_corrections_cover_every_size() -> None:
    assert {len(factors) for factors in TREE_CORRECTION.values()} == {23}


@pytest.mark.parametrize(("nbytes", "version"), [(0, "2.19"), (1024, "1.0"), (1024, "")])
def test_unknown_versions_and_empty_calls_are_refused(
    hand: SimpleNamespace, nbytes: int, version: str
) -> None:
    with pytest.raises(InputError):
        nccl_choice(hand.mesh(), "allreduce", nbytes, version)


def test_values_worked_out_by_hand() -> None:
    """The formulas of NCCL 2.19, step by step, for 64 MiB on 8 GPUs or two times 8."""
    nbytes = 64 << 20
    alone = nccl_graph(load_profile("dgx-a100"))  # 12 rings of 20 GB/s = 240 GB/s
    pair = nccl_graph(join(load_profile("dgx-a100"), 2))  # 8 of 24 GB/s = 192 GB/s, AMD
    volta = nccl_graph(join(load_profile("ndv2"), 2))  # one ring of 12 GB/s, Intel
    new, old = CONSTANTS["2.19"], CONSTANTS["2.12"]

    def us(constants: TuningConstants, graph: NcclGraph, name: str, how: str, by: str) -> float:
        return _time_us(constants, graph, name, how, by, nbytes)  # type: ignore[arg-type]

    def near(value: float) -> object:
        return pytest.approx(value, rel=1e-9)

    # Ring: 14 steps of 3.4 us; 240 GB/s * 8/14.
    assert us(new, alone, "allreduce", "Ring", "Simple") == near(
        8.4 + 14 * 3.4 + nbytes / (1e3 * 240 * 8 / 14)
    )
    # NCCL 2.12 lets an A100 have 235 GB/s in all.
    assert us(old, alone, "allreduce", "Ring", "Simple") == near(
        8.4 + 14 * 3.4 + nbytes / (1e3 * 235 * 8 / 14)
    )
    # LL128: 0.92 of the rate, below 12 * 20; 7 steps of 1.9 us.
    assert us(new, alone, "allgather", "Ring", "LL128") == near(
        14 + 7 * 1.9 + nbytes / (1e3 * 0.92 * 240 * 8 / 7)
    )
    # LL on one node: min(87.7, 240 / 3) = 80.
    assert us(new, alone, "allgather", "Ring", "LL") == near(
        6.6 + 7 * 0.6 + nbytes / (1e3 * 80 * 8 / 7)
    )
    # Two nodes: 30 steps, 2 * 2 over the net (14 us), the others the post of AMD's CPU, 2 * 3 us;
    # the plateau from 64 B * 16 channels * 16 ranks on, 1.4 on an A100.
    assert us(new, pair, "allreduce", "Ring", "Simple") == near(
        1.4 * (8.4 + 26 * 6.0 + 4 * 14) + nbytes / (1e3 * 192 * 16 / 30)
    )
    # Allgather: 15 steps, one over the net, no plateau.
    assert us(new, pair, "allgather", "Ring", "Simple") == near(
        8.4 + 14 * 6.0 + 14 + nbytes / (1e3 * 192 * 16 / 15)
    )
    # NCCL 2.12 on V100: net 28 us, no post, plateau 1.9.
    assert us(old, volta, "allreduce", "Ring", "Simple") == near(
        1.9 * (8.4 + 26 * 3.4 + 4 * 28) + nbytes / (1e3 * 12 * 16 / 30)
    )
    # Tree: 2 * (7 inside + log2(2) between); 0.92 * 12 GB/s / 2, 0.8 of it at 64 B * 2**20.
    assert us(new, volta, "allreduce", "Tree", "Simple") == near(
        2 * (7 * 28 + 28) + nbytes / (1e3 * 0.92 * 12 / 2 * 0.8)
    )


@pytest.mark.parametrize("version", nccl_versions())
def test_the_plateau_starts_where_the_version_says(version: str) -> None:
    graph = nccl_graph(join(load_profile("dgx-a100"), 2))  # 16 channels in a launch, 16 ranks
    start = {"2.12": 4096 * 16, "2.19": 64 * 16 * 16}[version]
    assert _plateau(CONSTANTS[version], graph, start - 1) == 1.0
    assert _plateau(CONSTANTS[version], graph, start) == {"2.12": 1.9, "2.19": 1.4}[version]


def test_parts_of_a_peer_grow_with_its_bytes() -> None:
    """DGX A100: 32 channels, 4 for each of 8 peers; two nodes: 2 a peer."""
    alone = nccl_graph(load_profile("dgx-a100"))
    assert [p2p_parts(alone, n << 10) for n in (16, 64, 128, 256, 1 << 20)] == [1, 1, 2, 4, 4]
    pair = nccl_graph(join(load_profile("dgx-a100"), 2))
    assert {p2p_parts(pair, n << 10) for n in (1 << 8, 1 << 20)} <= {1, 2}
