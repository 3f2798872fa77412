"""The simulator obeys its laws on programs made here: bytes, formulas, scaling, order, bounds."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock, parse_xml
from tuccl.simulation import (
    MachineClass,
    Network,
    ProtocolCosts,
    Resource,
    Route,
    SimResult,
    simulate,
)
from tuccl.topology.machine import load_machine

PROTOCOLS = ["Simple", "LL", "LL128"]
IDEAL = MachineClass("ideal")
H100 = load_machine("h100")
MIB = 1 << 20


def star(ranks: int, gbs: float, latency_us: float) -> Network:
    """Return GPUs on one switch: GPU r sends over resource 2r and receives over 2r+1."""
    resources = [
        Resource(name, "nvlink", gbs) for r in range(ranks) for name in (f"{r}>s", f"s>{r}")
    ]
    routes = [
        Route(a, b, [2 * a, 2 * b + 1], latency_us)
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    ]
    return Network(ranks, resources, routes)


def two_hosts(per_host: int, nic_gbs: float, kind: str = "network") -> Network:
    """Return two hosts of GPUs on a switch each, joined by one adapter a host."""
    ranks = 2 * per_host
    resources = [Resource(f"g{i}", "nvlink", 100.0) for i in range(2 * ranks)]
    resources += [Resource(name, kind, nic_gbs) for name in ("0>w", "w>0", "1>w", "w>1")]
    routes = []
    for a in range(ranks):
        for b in range(ranks):
            there, here = b // per_host, a // per_host
            ends = (2 * a, 2 * b + 1)
            if a != b and there == here:
                routes.append(Route(a, b, list(ends), 0.4))
            elif a != b:
                wires = [2 * ranks + 2 * here, 2 * ranks + 2 * there + 1]
                routes.append(Route(a, b, [ends[0], *wires, ends[1]], 2.5, "net"))
    return Network(ranks, resources, routes)


def one_way(steps: int = 1, channels: int = 1) -> Program:
    """Return rank 0 sending its buffer to rank 1, `steps` chunks on each channel."""
    chunks = range(steps * channels)
    gpus = [
        Gpu(
            rank,
            len(chunks),
            len(chunks),
            0,
            [
                ThreadBlock(
                    c,
                    1 if rank == 0 else -1,
                    0 if rank == 1 else -1,
                    c,
                    [Step("rs"[rank == 0], "i", k, "o", k, 1) for k in chunks[c::channels]],
                )
                for c in range(channels)
            ],
        )
        for rank in range(2)
    ]
    return Program("one way", "broadcast", "Simple", channels, len(chunks), gpus)


def relay(ranks: int) -> Program:
    """Return one chunk going down a line of ranks."""
    steps = ["s", *["rcs"] * (ranks - 2), "r"]
    gpus = [
        Gpu(
            rank,
            1,
            1,
            0,
            [
                ThreadBlock(
                    0,
                    rank + 1 if rank < ranks - 1 else -1,
                    rank - 1,
                    0,
                    [Step(op, "i" if rank == 0 else "o", 0, "o", 0, 1)],
                )
            ],
        )
        for rank, op in enumerate(steps)
    ]
    return Program("relay", "broadcast", "Simple", 1, 1, gpus)


def ring(ranks: int, channels: int) -> Program:
    """Return a ring allreduce, one thread block a channel."""
    ops = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
    gpus = []
    for rank in range(ranks):
        blocks = []
        for c in range(channels):
            at = [c * ranks + (rank - k) % ranks for k in range(len(ops))]
            steps = [Step(op, "i", a, "i", a, 1) for op, a in zip(ops, at, strict=True)]
            blocks.append(ThreadBlock(c, (rank + 1) % ranks, (rank - 1) % ranks, c, steps))
        gpus.append(Gpu(rank, ranks * channels, ranks * channels, 0, blocks))
    return Program("ring", "allreduce", "Simple", channels, ranks * channels, gpus)


def random_program(seed: int, ranks: int = 4, chunks: int = 12) -> Program:
    """Return transfers in a random order; what a step waits for always comes before it."""
    rng = random.Random(seed)
    steps: defaultdict[tuple[int, int, bool], list[Step]] = defaultdict(list)
    numbers: dict[tuple[int, int, bool], int] = {}
    for _ in range(rng.randint(1, 40)):
        src, dst = rng.sample(range(ranks), 2)
        at, count = rng.randrange(chunks), rng.choice([1, 1, 2, 5])
        for rank, peer, sends in ((src, dst, True), (dst, src, False)):
            key = (rank, peer, sends)
            known = [k for k in numbers if k[0] == rank and k != key and steps[k]]
            numbers.setdefault(key, sum(k[0] == rank for k in numbers))
            dep = (-1, -1)
            if known and rng.random() < 0.3:
                other = rng.choice(known)
                dep = (numbers[other], len(steps[other]) - 1)
            op = "s" if sends else rng.choice(["r", "rrc"])
            steps[key].append(Step(op, "i", at, "o", at, count, *dep, has_dep=True))
    gpus = [
        Gpu(
            rank,
            chunks,
            chunks,
            0,
            [
                ThreadBlock(
                    number, key[1] if key[2] else -1, -1 if key[2] else key[1], 0, steps[key]
                )
                for key, number in numbers.items()
                if key[0] == rank
            ],
        )
        for rank in range(ranks)
    ]
    return Program(f"random {seed}", "allreduce", "Simple", 1, chunks, gpus)


def scaled(network: Network, by: float) -> Network:
    """Return `network` with rates times `by` and latencies divided by it."""
    resources = [Resource(r.name, r.kind, r.bandwidth_gbs * by) for r in network.resources]
    routes = [
        Route(r.src, r.dst, r.resources, r.latency_us / by, r.transport) for r in network.routes
    ]
    return Network(network.ranks, resources, routes)


def expected_bytes(program: Program, network: Network, nbytes: int) -> list[int]:
    """Return user bytes by resource, counted from the program alone."""
    way = {(r.src, r.dst): r.resources for r in network.routes}
    out = [0] * len(network.resources)
    for gpu in program.gpus:
        for tb in gpu.threadblocks:
            for step in tb.steps:
                for resource in way[gpu.id, tb.send_peer] if "s" in step.op else []:
                    out[resource] += step.count * nbytes // program.nchunks
    return out


def outcome(r: SimResult) -> tuple[object, ...]:
    """Return all that a result holds."""
    return (r.time_us, r.events, r.resource_bytes, r.resource_wire_bytes, r.resource_busy_us)


SEEDS = st.integers(0, 10**6)
SIZES = st.integers(1, 1 << 21).map(lambda n: 12 * n)


@settings(max_examples=150, deadline=None)
@given(SEEDS, SIZES, st.sampled_from(PROTOCOLS), st.sampled_from([1 << 14, MIB]), st.booleans())
def test_bytes_are_conserved(seed: int, nbytes: int, protocol: str, buffer: int, net: bool) -> None:
    network = two_hosts(2, 12.5) if net else star(4, 25.0, 0.7)
    program = random_program(seed)
    result = simulate(program, Knobs(protocol, 1, 256, buffer), network, H100, nbytes)
    carried = expected_bytes(program, network, nbytes)
    assert result.resource_bytes == carried
    factor = {"Simple": 1, "LL": 2, "LL128": 16 / 15}[protocol]
    for resource, user, wire, busy in zip(
        network.resources, carried, result.resource_wire_bytes, result.resource_busy_us, strict=True
    ):
        assert wire == pytest.approx(user * factor)
        assert busy <= result.time_us * (1 + 1e-9)
        assert busy >= wire / (resource.bandwidth_gbs * 1e3) * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES, st.sampled_from(PROTOCOLS), st.booleans())
def test_twice_the_rates_and_half_the_latencies_halve_the_time(
    seed: int, nbytes: int, protocol: str, net: bool
) -> None:
    network = two_hosts(2, 12.5) if net else star(4, 25.0, 0.7)
    program, knobs = random_program(seed), Knobs(protocol, 1, 256, 1 << 16)
    slow = simulate(program, knobs, network, IDEAL, nbytes)
    fast = simulate(program, knobs, scaled(network, 2), IDEAL, nbytes)
    assert fast.time_us == pytest.approx(slow.time_us / 2, rel=1e-9)


@pytest.mark.parametrize("nbytes", [1, 1000, 32 * 1024, MIB, 3 * MIB + 1, 1 << 30])
@pytest.mark.parametrize("transport", ["p2p", "net"])
def test_an_ideal_link_takes_alpha_plus_bytes_over_bandwidth(nbytes: int, transport: str) -> None:
    network = Network(2, [Resource("a>b", "network", 12.5)], [Route(0, 1, [0], 2.6, transport)])
    result = simulate(one_way(), Knobs(), network, IDEAL, nbytes)
    assert result.time_us == pytest.approx(2.6 + nbytes / 12.5e3, rel=1e-9)


def test_two_flows_share_one_link_fairly() -> None:
    network = Network(2, [Resource("a>b", "nvlink", 20.0)], [Route(0, 1, [0], 0.0)])
    alone = simulate(one_way(), Knobs(), network, IDEAL, 8 * MIB).time_us
    shared = simulate(one_way(1, 2), Knobs(), network, IDEAL, 16 * MIB).time_us
    assert shared == pytest.approx(2 * alone, rel=1e-9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("channels", [0, 1, 4])
def test_a_faster_network_is_never_slower(protocol: str, channels: int) -> None:
    program = ring(8, channels) if channels else one_way(5)
    knobs = Knobs(protocol, 1, 512)
    for nbytes in (program.nchunks * 64, program.nchunks * MIB):
        times = [
            simulate(program, knobs, star(program.ngpus, gbs, us), H100, nbytes).time_us
            for gbs, us in ((10, 2.0), (10, 1.0), (20, 1.0), (40, 1.0), (400, 0.1))
        ]
        assert times == sorted(times, reverse=True)


def test_small_buffers_throttle_a_long_link() -> None:
    network = Network(2, [Resource("a>b", "network", 12.5)], [Route(0, 1, [0], 20.0)])
    times = [
        simulate(one_way(), Knobs("Simple", 1, 512, b), network, H100, 64 * MIB).time_us
        for b in (1 << 14, 1 << 16, 1 << 18, 4 * MIB)
    ]
    assert times == sorted(times, reverse=True)
    # Two transfers of half a buffer in a round trip (docs/reference/simulator.md).
    assert times[0] > 64 * MIB / (1 << 14) * 2 * 20.0
    assert times[0] > 10 * times[-1]


def test_protocols_win_at_their_own_sizes() -> None:
    def time(protocol: str, nbytes: int) -> float:
        return simulate(
            ring(8, 16), Knobs(protocol, 1, 512), star(8, 450, 0.35), H100, nbytes
        ).gpu_us

    assert time("LL", 1024) < time("LL128", 1024) < time("Simple", 1024)
    assert time("Simple", 256 * MIB) < time("LL128", 256 * MIB) < time("LL", 256 * MIB)


CASES: dict[str, Callable[[], tuple[Program, Network]]] = {
    "one way": lambda: (one_way(3, 2), star(2, 25, 0.7)),
    "ring on a switch": lambda: (ring(8, 4), star(8, 450, 0.35)),
    "ring over hosts": lambda: (ring(4, 3), two_hosts(2, 12.5)),
    "random on a switch": lambda: (random_program(5), star(4, 25, 0.7)),
    "random over hosts": lambda: (random_program(6), two_hosts(2, 12.5)),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("machine", ["ideal", "h100"])
@pytest.mark.parametrize("buffer", [1 << 15, MIB])
@pytest.mark.parametrize("case", CASES)
def test_extrapolation_agrees_with_the_full_run(
    case: str, buffer: int, machine: str, protocol: str
) -> None:
    program, network = CASES[case]()
    knobs = Knobs(protocol, 1, 512, buffer)
    nbytes = program.nchunks * (150 * knobs.slice_bytes + knobs.slice_bytes // 3)
    short = simulate(program, knobs, network, load_machine(machine), nbytes)
    full = simulate(program, knobs, network, load_machine(machine), nbytes, exact=True)
    assert not full.extrapolated
    assert short.time_us == pytest.approx(full.time_us, rel=1e-3)
    assert short.resource_bytes == full.resource_bytes
    assert short.resource_busy_us == pytest.approx(full.resource_busy_us, rel=1e-2)


def test_large_sizes_are_extrapolated_with_little_work() -> None:
    program = ring(16, 8)
    for protocol, buffer in (("Simple", 1 << 16), ("Simple", 256), ("LL", 256), ("LL128", 2048)):
        knobs = Knobs(protocol, 1, 512, buffer)
        result = simulate(program, knobs, two_hosts(8, 100.0), H100, 1 << 30)
        assert result.extrapolated
        assert result.events < 5_000_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_inputs_give_the_same_bits(protocol: str) -> None:
    def run() -> tuple[object, ...]:
        knobs = Knobs(protocol, 1, 256, 1 << 16)
        return outcome(simulate(random_program(3), knobs, two_hosts(2, 12.5), H100, 12 << 20))

    assert run() == run()


def test_more_connections_over_one_adapter_lose() -> None:
    def time(peers: int, machine: MachineClass) -> float:
        # Every GPU of host 0 sends to `peers` GPUs of host 1; the same bytes cross in all.
        sends: dict[int, list[ThreadBlock]] = {rank: [] for rank in range(8)}
        for a in range(4):
            for j in range(4):
                b = 4 + (a + (j % peers)) % 4
                name, here = len(sends[a]), len(sends[b])
                steps = [Step("s", "i", 4 * a + j, "o", 4 * a + j, 1)]
                sends[a].append(ThreadBlock(name, b, -1, j // peers, steps))
                steps = [Step("r", "i", 4 * a + j, "o", 4 * a + j, 1)]
                sends[b].append(ThreadBlock(here, -1, a, j // peers, steps))
        gpus = [Gpu(r, 16, 16, 0, tbs) for r, tbs in sends.items()]
        program = Program("fan", "allreduce", "Simple", 4, 16, gpus)
        return simulate(program, Knobs(), two_hosts(4, 12.5), machine, 16 * MIB).time_us

    free = MachineClass("x", fifo_slots=8)
    costly = MachineClass("x", fifo_slots=8, nic_switch_us=5.0)
    assert time(4, costly) > 1.02 * time(4, free)
    one = simulate(one_way(4), Knobs(), _pair(), costly, 16 * MIB).time_us
    assert one == simulate(one_way(4), Knobs(), _pair(), free, 16 * MIB).time_us


def _pair() -> Network:
    return Network(2, [Resource("a>b", "network", 12.5)], [Route(0, 1, [0], 2.6, "net")])


def test_a_copy_onto_itself_costs_what_any_copy_does() -> None:
    copy = ThreadBlock(0, -1, -1, 0, [Step("cpy", "i", 0, "o", 0, 1)])
    program = Program("copy", "allreduce", "Simple", 1, 1, [Gpu(0, 1, 1, 0, [copy])])
    machine = MachineClass("x", simple=ProtocolCosts(copy_gbs=10.0))
    alone = Network(1, [], [])
    assert simulate(program, Knobs(), alone, machine, 10_000).time_us == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "offset"), [(72, 0), (4_000_000, 0), (1, 1 << 24), (1, -2)])
def test_counts_and_offsets_that_no_runtime_holds_are_refused(count: int, offset: int) -> None:
    copy = ThreadBlock(0, -1, -1, 0, [Step("cpy", "i", offset, "o", 0, count)])
    program = Program("copy", "allreduce", "Simple", 1, 1, [Gpu(0, 1, 1, 0, [copy])])
    with pytest.raises(InputError, match=r"gpu 0 tb 0 step 0: (count|offset) is"):
        simulate(program, Knobs(), Network(1, [], []), IDEAL, 1024)


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
def test_channels_take_the_routes_of_a_pair_in_turn(channels: int) -> None:
    resources = [Resource(name, "network", 10.0) for name in "abc"]
    routes = [Route(0, 1, [n], 0.0, "net") for n in range(3)] + [Route(1, 0, [0], 0.0, "net")]
    program = one_way(1, channels)
    run = simulate(
        program, Knobs("Simple", channels, 512), Network(2, resources, routes), IDEAL, 6 * MIB
    )
    counts = [len(range(channels)[route::3]) for route in range(3)]
    assert run.resource_bytes == [6 * MIB // channels * count for count in counts]
    # Routes of their own do not slow each other.
    busiest = max(counts) * 6 * MIB / channels
    assert run.gpu_us == pytest.approx(busiest / 10e3, rel=0.01)


def test_a_route_names_a_resource_once() -> None:
    with pytest.raises(InputError, match="route 0 > 1: names resource 0 twice"):
        Network(2, [Resource("a", "nvlink", 10.0)], [Route(0, 1, [0, 0], 0.0)])


def test_channels_beyond_any_limit_are_reported() -> None:
    for channels in (33, 2**27, 2**31 - 1, -(2**31)):
        why = Knobs("Simple", channels, 512).illegal()
        assert why is not None and why.startswith(f"channels {channels}: ")


def test_fewer_threads_are_slower() -> None:
    def time(threads: int) -> float:
        knobs = Knobs("Simple", 1, threads)
        return simulate(one_way(), knobs, star(2, 450, 0.35), H100, 64 * MIB).gpu_us

    assert time(512) < time(256) < time(64)


def test_the_host_and_the_gpus_work_at_the_same_time() -> None:
    def run(launch: str, nbytes: int, gpus: int = 0) -> SimResult:
        network = star(2, 450, 0.35)
        return simulate(one_way(), Knobs(), network, H100, nbytes, launch=launch, process_gpus=gpus)

    for launch in ("process", "mpi", "graph"):
        for nbytes in (1024, 64 * MIB):
            result = run(launch, nbytes)
            assert result.time_us == max(result.host_us, result.gpu_us)
    assert run("graph", 1024).host_us == 0
    assert run("mpi", 1024).gpu_us - run("graph", 1024).gpu_us == pytest.approx(
        H100.start_us - H100.start_graph_us
    )
    one, eight = run("mpi", 1024).host_us, run("process", 1024, gpus=8).host_us
    assert eight - one == pytest.approx(7 * (H100.host_gpu_us + H100.host_channel_us))
    planned = simulate(
        one_way(), Knobs(), star(2, 450, 0.35), H100.replace(host_channel_us=0.0), 1024
    )
    assert planned.host_us == pytest.approx(H100.host_call_us + 2 * H100.host_gpu_us)


@pytest.mark.parametrize(("protocol", "share"), [("Simple", 3), ("LL", 1), ("LL128", 1)])
def test_a_proxy_takes_three_times_as_long_for_a_message_of_simple(
    protocol: str, share: int
) -> None:
    """NCCL's netOverhead (src/graph/tuning.cc); one proxy serves all channels of a rank."""
    network = Network(2, [Resource("a>b", "network", 1e6)], [Route(0, 1, [0], 0.0, "net")])
    slow = MachineClass("slow proxy", net_message_us=50.0)
    run = simulate(one_way(1, 4), Knobs(protocol), network, slow, 4096)
    assert run.gpu_us == pytest.approx(4 * share * 50.0, rel=1e-3)


def test_fewer_threads_spend_less_on_barriers_of_lines() -> None:
    def time(protocol: str, threads: int) -> float:
        costs = ProtocolCosts(transfer_us=64.0, threads_sat=640.0)
        machine = MachineClass("barriers", simple=costs, ll=costs, ll128=costs)
        run = simulate(one_way(), Knobs(protocol, 1, threads), star(2, 1e6, 0), machine, 1024)
        return run.gpu_us

    for protocol in ("LL", "LL128"):
        half, full = time(protocol, 160), time(protocol, 320)
        assert full == pytest.approx(2 * half, rel=1e-3)
    assert time("Simple", 160) == pytest.approx(time("Simple", 320), rel=1e-3)


def test_another_kernels_walk_takes_its_own_passes_and_slots() -> None:
    """Finer passes fill a line of hops sooner: (hops - 1) passes' time less at a link's rate."""
    line, network = relay(5), star(5, 10, 0)
    whole = simulate(line, Knobs(), network, IDEAL, 4 * MIB).gpu_us
    fine = simulate(
        line, Knobs(), network, IDEAL, 4 * MIB, pass_bytes=128 << 10, transfer_slots=1
    ).gpu_us
    assert fine == pytest.approx((4 * MIB + 3 * (128 << 10)) / 10e3)
    assert fine < whole
    for passes, slots in ((-1, 0), (0, 3), (0, 16)):
        with pytest.raises(InputError, match="walk: "):
            simulate(line, Knobs(), network, H100, MIB, pass_bytes=passes, transfer_slots=slots)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: simulate(one_way(3), Knobs(), star(2, 1, 0), IDEAL, 64), "multiple"),
        (lambda: simulate(one_way(), Knobs(), star(3, 1, 0), IDEAL, 64), "3 ranks"),
        (lambda: simulate(one_way(), Knobs(), Network(2, [], []), IDEAL, 64), "no route"),
        (lambda: simulate(one_way(), Knobs("LL", 1, 33), star(2, 1, 0), IDEAL, 64), "threads"),
        (lambda: simulate(one_way(), Knobs(), star(2, 1, 0), IDEAL, 0), "size 0"),
        (lambda: simulate(one_way(), Knobs(), star(2, 1, 0), IDEAL, 64, launch="x"), "launch"),
        (
            lambda: simulate(
                one_way(1, 9), Knobs(), star(2, 1, 0), MachineClass("x", sm_count=8), 9
            ),
            "co-resident",
        ),
        (lambda: MachineClass("x", local_us=-1.0), "local_us"),
        (lambda: MachineClass("x", simple=ProtocolCosts(send_gbs=0.0)), "send_gbs"),
        (lambda: Network(2, [Resource("l", "nvlink", -1.0)], []), "bandwidth"),
        (lambda: Network(2, [], [Route(0, 2, [], 0.0)]), "ranks"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_azure_programs_on_h100_come_near_the_public_table(shared_data: Path) -> None:
    names = ("ap-1pass", "ap2ll", "ap4ll", "r48ll", "r48ll128")
    folder = shared_data / "algorithms" / "azure_ndv5"
    programs = [parse_xml((folder / f"{n}.xml").read_bytes(), n) for n in names]
    table = "azure_msccl_ndh100v5_1node_allreduce_fp16_nccl_vs_msccl.csv"
    with (shared_data / "measurements" / table).open() as file:
        rows = [(int(r["size_bytes"]), float(r["msccl_us_ip"])) for r in csv.DictReader(file)]
    compared = 0
    for nbytes, measured in rows:
        for program in programs:
            if not (program.min_bytes or 0) <= nbytes <= (program.max_bytes or 0):
                continue
            knobs = Knobs(program.protocol, 1, 640 if program.protocol == "LL128" else 512)
            result = simulate(program, knobs, star(8, 450, 0.35), H100, nbytes, launch="graph")
            compared += 1
            assert measured / 1.5 < result.time_us < measured * 1.5
    assert compared >= 15


def test_a_copy_that_others_wait_for_ends_with_a_shortened_run() -> None:
    """Its passes are done when the last one that is asked for is: with and without a rest."""
    copy = ThreadBlock(0, -1, -1, 0, [Step("cpy", "i", 0, "o", 0, 1, has_dep=True)])
    send = ThreadBlock(1, 1, -1, 0, [Step("s", "o", 0, "o", -1, 1, dep_tb=0, dep_step=0)])
    take = ThreadBlock(0, -1, 0, 0, [Step("r", "i", -1, "o", 0, 1)])
    gpus = [Gpu(0, 1, 1, 0, [copy, send]), Gpu(1, 1, 1, 0, [take])]
    program = Program("copied first", "broadcast", "Simple", 1, 1, gpus)
    for nbytes in (256 * MIB, 256 * MIB + 4096):
        network = star(2, 450, 0.35)
        whole = simulate(program, Knobs(), network, H100, nbytes, exact=True)
        quick = simulate(program, Knobs(), network, H100, nbytes)
        assert quick.gpu_us == pytest.approx(whole.gpu_us, rel=1e-3)
