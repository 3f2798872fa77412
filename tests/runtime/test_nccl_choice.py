"""NCCL's own choice: the shape that its tuning model is known for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuccl.errors import InputError
from tuccl.runtime.nccl_choice import nccl_choice, nccl_versions
from tuccl.runtime.nccl_constants import PROTOCOLS, TREE_CORRECTION
from tuccl.runtime.nccl_graph import nccl_graph
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
    assert all(a.predicted_us <= b.predicted_us * 1.5 for a, b in zip(choices, choices[1:]))  # noqa: B905, RUF007


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
