"""NCCL's own choice: the shape that its tuning model is known for, version by version."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.nccl_machines import MACHINES, MODELLED, RINGS, SIZES, machine
from tuccl.errors import Infeasible, InputError
from tuccl.runtime.nccl.choice import NCCL_CHOICES, nccl_choice
from tuccl.runtime.nccl.constants import PROTOCOLS, SEND_RECV, tuning_constants
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.rccl import rccl_protocol
from tuccl.runtime.nccl.switch_points import switch_points
from tuccl.runtime.nccl.versions import nccl_versions
from tuccl.topology import Topology, join, load_profile

# Laws of every version.


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize(("name", "hosts"), MACHINES)
def test_a_choice_for_every_size_and_collective(version: str, name: str, hosts: int) -> None:
    topology = machine(name, hosts)
    graph = nccl_graph(topology, version)
    sends = sorted(SEND_RECV) if tuning_constants()[version].p2p else []
    for collective in (*RINGS, *sends):
        times = []
        for nbytes in SIZES:
            choice = nccl_choice(topology, collective, nbytes, version)
            assert choice.algorithm in NCCL_CHOICES and choice.protocol in PROTOCOLS
            assert 1 <= choice.channels <= max(graph.launch_channels, 32)
            assert choice.threads % 32 == 0 and 64 <= choice.threads <= 640
            assert 8 << 10 <= choice.chunk_bytes <= 2 << 20
            assert choice.version == version
            assert (choice.predicted_us is None) == (version == "2.4" or collective in SEND_RECV)
            times.append(choice.predicted_us or 0.0)
        if version != "2.4" and collective not in SEND_RECV:
            assert times[0] > 0 and all(a <= b for a, b in pairwise(times))


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
    assert choices[-1].channels == nccl_graph(topology, version).launch_channels


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize(("profile", "hosts"), [("dgx-a100", n) for n in (3, 8)] + [("dgx-1v", 8)])
def test_trees_for_small_allreduce_on_many_nodes_rings_for_large(
    version: str, profile: str, hosts: int
) -> None:
    topology = join(load_profile(profile), hosts)
    of_allreduce = [nccl_choice(topology, "allreduce", n, version).algorithm for n in SIZES]
    trees = of_allreduce.count("Tree")
    assert of_allreduce == ["Tree"] * trees + ["Ring"] * (len(SIZES) - trees)
    assert trees > 3 and nccl_choice(topology, "allreduce", 1 << 33, version).algorithm == "Ring"
    assert {nccl_choice(topology, "allgather", n, version).algorithm for n in SIZES} == {"Ring"}


@pytest.mark.parametrize("version", nccl_versions())
def test_fewer_channels_and_threads_for_less_data(hand: SimpleNamespace, version: str) -> None:
    choices = [nccl_choice(hand.mesh(), "broadcast", nbytes, version) for nbytes in SIZES]
    for protocol in PROTOCOLS:
        used = [(c.channels, c.threads) for c in choices if c.protocol == protocol]
        assert used == sorted(used)


def test_corrections_cover_128_or_256_mib() -> None:
    for constants in tuning_constants().values():
        lengths = {len(constants.tree_correction[protocol]) for protocol in PROTOCOLS}
        assert lengths in ({22}, {23})


@pytest.mark.parametrize("nbytes", [0, -1])
def test_empty_calls_are_refused(hand: SimpleNamespace, nbytes: int) -> None:
    with pytest.raises(InputError, match="at least one byte"):
        nccl_choice(hand.mesh(), "allreduce", nbytes)


# What the environment forces.


@pytest.mark.parametrize("version", MODELLED)
@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_forced_algorithm_and_protocol_are_honoured(
    hand: SimpleNamespace, version: str, algorithm: str, protocol: str
) -> None:
    for nbytes in (64, 1 << 20, 1 << 30):
        choice = nccl_choice(
            hand.mesh(), "allreduce", nbytes, version, algorithm=algorithm, protocol=protocol
        )
        assert (choice.algorithm, choice.protocol) == (algorithm, protocol)


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize("channels", [1, 4, 32])
def test_forced_channels_are_honoured(hand: SimpleNamespace, version: str, channels: int) -> None:
    topology = hand.mesh()
    large = nccl_choice(topology, "allgather", 1 << 30, version, channels=channels)
    assert large.channels == channels
    small = nccl_choice(topology, "allgather", 64, version, channels=channels)
    assert small.channels <= channels


@pytest.mark.parametrize(
    ("collective", "version", "forced"),
    [
        ("allreduce", "2.19", {"algorithm": "NVLS"}),
        ("allreduce", "2.4", {"algorithm": "NVLS"}),
        ("allreduce", "2.4", {"protocol": "LL128"}),
        ("allgather", "2.19", {"algorithm": "Tree"}),
        ("allreduce", "2.19", {"algorithm": "CollNet"}),
        ("allreduce", "2.19", {"protocol": "simple"}),
        ("allreduce", "2.19", {"channels": 0}),
        ("allreduce", "2.19", {"channels": 33}),
        ("alltoall", "2.19", {"algorithm": "Ring"}),
        ("alltoall", "2.19", {"protocol": "LL128"}),
    ],
)
def test_what_cannot_be_had_is_refused(
    hand: SimpleNamespace, collective: str, version: str, forced: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        nccl_choice(hand.mesh(), collective, 1 << 20, version, **forced)  # type: ignore[arg-type]


def test_versions_before_send_and_receive_have_no_program_for_alltoall(
    hand: SimpleNamespace,
) -> None:
    with pytest.raises(Infeasible, match=r"2\.7"):
        nccl_choice(hand.mesh(), "alltoall", 1 << 20, "2.6")


# Where the choice changes.


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast", "alltoall"])
def test_switch_points_are_where_the_choice_changes(version: str, collective: str) -> None:
    topology = join(load_profile("dgx-a100"), 2)
    if collective == "alltoall" and not tuning_constants()[version].p2p:
        with pytest.raises(Infeasible):
            switch_points(topology, collective, version)
        return
    points = switch_points(topology, collective, version)
    assert [p.nbytes for p in points] == sorted({p.nbytes for p in points})
    assert all(a.after == b.before for a, b in pairwise(points))
    for point in points:
        for nbytes, kind in ((point.nbytes - 1, point.before), (point.nbytes, point.after)):
            choice = nccl_choice(topology, collective, nbytes, version)
            assert f"{choice.algorithm}/{choice.protocol}" == kind


@pytest.mark.parametrize(("hosts", "last_ll128"), [(2, 4), (3, 16)])
def test_between_hosts_of_mi300x_the_size_decides_on_the_protocol(
    hosts: int, last_ll128: int
) -> None:
    """On more than two hosts RCCL allows 3.8 times 4,415,057 bytes, which is 16.0 MiB."""
    topology = join(load_profile("mi300x"), hosts)
    choices = {
        mib: nccl_choice(topology, "allreduce", int(mib * (1 << 20)), "2.22").protocol
        for mib in (0.5, 1, last_ll128, 2 * last_ll128, 1024)
    }
    assert list(choices.values()) == ["LL", "LL128", "LL128", "Simple", "Simple"]
    forced = nccl_choice(topology, "allreduce", 1 << 30, "2.22", protocol="LL")
    assert forced.protocol == "LL"


@pytest.mark.parametrize("collective", RINGS)
def test_rccl_counts_parts_of_ranks_where_these_differ(collective: str) -> None:
    one, two = (join(load_profile("mi300x"), hosts) for hosts in (2, 4))
    at = {hosts: last_ll(topology, collective) for hosts, topology in ((2, one), (4, two))}
    of_parts = collective in ("allgather", "reduce-scatter", "broadcast")
    assert at[4] == (2 if of_parts else 1) * at[2] > 0


def last_ll(topology: Topology, collective: str) -> int:
    """Return the largest power of two of bytes that goes by LL."""
    sizes = [1 << n for n in range(10, 30)]
    return max(n for n in sizes if nccl_choice(topology, collective, n).protocol == "LL")


@pytest.mark.parametrize(("name", "hosts"), [("mi300x", 1), ("mi250x", 2), ("dgx-h100", 2)])
def test_rccl_s_sizes_hold_nowhere_else(name: str, hosts: int) -> None:
    topology = join(load_profile(name), hosts)
    assert rccl_protocol(topology, "allreduce", 1 << 20) is None
    assert rccl_protocol(join(load_profile("mi300x"), 2), "alltoall", 1 << 20) is None
