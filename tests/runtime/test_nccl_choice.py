"""NCCL's own choice: the shape that its tuning model is known for, version by version."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.runtime.nccl_choice import NCCL_CHOICES, nccl_choice
from tuccl.runtime.nccl_constants import GROUPED, PROTOCOLS, TuningConstants
from tuccl.runtime.nccl_graph import NcclGraph, nccl_graph
from tuccl.runtime.nccl_model import plateau, time_us
from tuccl.runtime.nccl_sends import p2p_parts, p2p_protocol
from tuccl.runtime.nccl_switches import switch_points
from tuccl.runtime.nccl_tables import CONSTANTS
from tuccl.runtime.nccl_thresholds import tree_threshold_bytes
from tuccl.runtime.nccl_versions import NCCL_VERSION, nccl_group, nccl_versions
from tuccl.topology import PROFILES, Topology, join, load_profile

SIZES = [1 << n for n in range(6, 33)]
RINGS = ["allreduce", "allgather", "reduce-scatter", "broadcast", "reduce"]
MACHINES = [(name, hosts) for name in PROFILES for hosts in (1, 2, 4)]
MODELLED = [v for v in nccl_versions() if v != "2.4"]


def machine(name: str, hosts: int) -> Topology:
    node = load_profile(name)
    return join(node, hosts) if hosts > 1 else node


# Versions.


@pytest.mark.parametrize(
    ("version", "group"),
    [
        ("2.4.8-1", "2.4"),
        ("2.9.9", "2.8"),
        ("v2.12.12-1", "2.12"),
        ("2.13", "2.12"),
        ("2.16.5", "2.15"),
        ("2.18.1", "2.18.1"),
        ("2.18.5", "2.18"),
        ("2.18", "2.18"),
        ("2.20.3", "2.19"),
        ("2.20", "2.20"),
        ("2.21.5+cuda12.4", "2.20"),
        ("2.24.3", "2.23"),
        ("2.26.2", "2.25"),
        ("newest", "2.25"),
    ],
)
def test_versions_of_equal_constants_are_one_group(version: str, group: str) -> None:
    assert nccl_group(version) == group
    assert nccl_group(group) == group


def test_every_group_has_constants_with_their_source() -> None:
    assert tuple(CONSTANTS) == nccl_versions()
    assert all("nccl" in c.source for c in CONSTANTS.values())
    assert nccl_group(NCCL_VERSION) in CONSTANTS


@pytest.mark.parametrize(
    "version", ["1.0", "2.3.7", "2.27", "3.0", "", "new", "2", "2.19\n", "٢.١٩"]
)
def test_unknown_versions_are_refused_with_those_known(version: str) -> None:
    with pytest.raises(InputError, match=r"2\.4 to 2\.26"):
        nccl_group(version)


# Laws of every version.


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize(("name", "hosts"), MACHINES)
def test_a_choice_for_every_size_and_collective(version: str, name: str, hosts: int) -> None:
    topology = machine(name, hosts)
    graph = nccl_graph(topology, version)
    sends = sorted(GROUPED) if CONSTANTS[version].p2p else []
    for collective in (*RINGS, *sends):
        times = []
        for nbytes in SIZES:
            choice = nccl_choice(topology, collective, nbytes, version)
            assert choice.algorithm in NCCL_CHOICES and choice.protocol in PROTOCOLS
            assert 1 <= choice.channels <= max(graph.launch_channels, 32)
            assert choice.threads % 32 == 0 and 64 <= choice.threads <= 640
            assert 8 << 10 <= choice.chunk_bytes <= 2 << 20
            assert choice.version == version
            assert (choice.predicted_us is None) == (version == "2.4" or collective in GROUPED)
            times.append(choice.predicted_us or 0.0)
        if version != "2.4" and collective not in GROUPED:
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
def test_trees_for_small_allreduce_on_many_nodes_rings_for_large(version: str) -> None:
    topology = join(load_profile("dgx-a100"), 8)
    assert nccl_choice(topology, "allreduce", 4096, version).algorithm == "Tree"
    assert nccl_choice(topology, "allreduce", 1 << 33, version).algorithm == "Ring"
    assert nccl_choice(topology, "allgather", 4096, version).algorithm == "Ring"


@pytest.mark.parametrize("version", nccl_versions())
def test_fewer_channels_and_threads_for_less_data(hand: SimpleNamespace, version: str) -> None:
    choices = [nccl_choice(hand.mesh(), "broadcast", nbytes, version) for nbytes in SIZES]
    for protocol in PROTOCOLS:
        used = [(c.channels, c.threads) for c in choices if c.protocol == protocol]
        assert used == sorted(used)


def test_corrections_cover_128_or_256_mib() -> None:
    for constants in CONSTANTS.values():
        lengths = {len(constants.correction[protocol]) for protocol in PROTOCOLS}
        assert lengths in ({22}, {23})


@pytest.mark.parametrize("nbytes", [0, -1])
def test_empty_calls_are_refused(hand: SimpleNamespace, nbytes: int) -> None:
    with pytest.raises(InputError, match="at least one byte"):
        nccl_choice(hand.mesh(), "allreduce", nbytes)


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
    assert (graph.channels, graph.launch_channels) == (rings, launched)


def test_rates_and_orders_are_those_of_public_logs() -> None:
    quad = nccl_graph(load_profile("v100x4"), "2.12")
    assert quad.channel_gbs == 22.0 and not quad.alike  # NVIDIA/nccl#713
    assert nccl_graph(load_profile("dgx-a100"), "2.14").bandwidth_gbs == 264.0  # NVIDIA/nccl#879
    assert nccl_graph(load_profile("dgx-a100"), "2.18").alike  # NVIDIA/Megatron-LM#516
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


# Values worked out by hand.


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def us(version: str, graph: NcclGraph, collective: str, how: str, by: str, nbytes: int) -> float:
    constants = CONSTANTS[version]
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
    # Tree: 2 * (7 inside + log2(2) between); 0.92 * 12 GB/s / 2, 0.8 of it at 64 B * 2**20.
    assert us("2.19", volta, "allreduce", "Tree", "Simple", nbytes) == near(
        2 * (7 * 28 + 28) + nbytes / (1e3 * 0.92 * 12 / 2 * 0.8)
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
    # NCCL 2.23: of 30 steps two cross the net; the tree has 8.4 us and hops of 4 and 14 us.
    pair = nccl_graph(join(load_profile("dgx-a100"), 2), "2.23")
    assert us("2.23", pair, "allreduce", "Ring", "LL128", nbytes) == near(
        14 + 28 * 2.0 + 2 * 4.0 + nbytes / (1e3 * 8 * 20 * 16 / 30)
    )
    assert us("2.23", pair, "allreduce", "Tree", "Simple", nbytes) == near(
        8.4 + 2 * (7 * 4 + 14) + nbytes / (1e3 * 0.92 * 192 / 2 * 0.8)
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


@pytest.mark.parametrize("version", MODELLED)
def test_the_plateau_starts_where_the_version_says(version: str) -> None:
    constants: TuningConstants = CONSTANTS[version]
    graph = nccl_graph(join(load_profile("dgx-a100"), 2), version)  # 16 channels, 16 ranks
    each = 64 * 16 if constants.plateau_per_channel else 4096
    start, factor = each * 16, {True: 1.4, False: 1.9}[constants.plateau_per_channel]
    assert plateau(constants, graph, start - 1, 16) == 1.0
    assert plateau(constants, graph, start, 16) == (factor if constants.plateau else 1.0)


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


# Sends and receives.


def test_alltoall_is_grouped_send_and_receive(hand: SimpleNamespace) -> None:
    small = nccl_choice(hand.mesh(), "alltoall", 4096)
    large = nccl_choice(hand.mesh(), "alltoall", 1 << 28)
    assert small.algorithm == large.algorithm == "SendRecv"
    assert (small.protocol, large.protocol) == ("LL", "Simple")
    assert small.text.startswith("SendRecv/LL/")


def test_parts_of_a_peer_grow_with_its_bytes() -> None:
    """DGX A100: 32 channels, 4 for each of 8 peers; two nodes: 2 a peer."""
    constants = CONSTANTS["2.19"]
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
        return sum(p2p_protocol(CONSTANTS[version], graph, 1 << n) == "LL" for n in range(30))

    assert most("2.10") == 0
    assert most("2.12") == most("2.20") == 15  # up to 16 KiB
    assert most("2.22") == 20  # times 32 channels


# Where the choice changes.


@pytest.mark.parametrize("version", nccl_versions())
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast", "alltoall"])
def test_switch_points_are_where_the_choice_changes(version: str, collective: str) -> None:
    topology = join(load_profile("dgx-a100"), 2)
    if collective == "alltoall" and not CONSTANTS[version].p2p:
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
