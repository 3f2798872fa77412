"""Laws that hold for any program on any network: rates, bounds, order, limits, threads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock
from tuccl.simulation import (
    MachineClass,
    Network,
    ProtocolCosts,
    Resource,
    Route,
    least_us,
    simulate,
    simulate_all,
    trace,
)
from tuccl.topology.machine import load_machine

PROTOCOLS = st.sampled_from(["Simple", "LL", "LL128"])
MACHINES = st.sampled_from([MachineClass("ideal"), load_machine("h100"), load_machine("a100")])
BUFFERS = st.sampled_from([1 << 14, 1 << 17, 1 << 20])
KIB, MIB = 1 << 10, 1 << 20


@st.composite
def programs(draw: st.DrawFn, ranks: int = 4) -> Program:
    """Return chains of sends through random ranks, each on thread blocks of its own."""
    chains = draw(
        st.lists(
            st.permutations(range(ranks)).map(lambda p: p[: 2 + p[0] % (ranks - 1)]),
            min_size=1,
            max_size=6,
        )
    )
    chunks = len(chains)
    blocks: dict[int, list[ThreadBlock]] = {rank: [] for rank in range(ranks)}
    for number, chain in enumerate(chains):
        for at, rank in enumerate(chain):
            first, last = at == 0, at == len(chain) - 1
            op = "s" if first else draw(st.sampled_from(["r", "rrc"] if last else ["rcs", "rrcs"]))
            blocks[rank].append(
                ThreadBlock(
                    len(blocks[rank]),
                    -1 if last else chain[at + 1],
                    -1 if first else chain[at - 1],
                    number,
                    [Step(op, "i", number, "o", number, 1)],
                )
            )
    gpus = [Gpu(rank, chunks, chunks, 0, tbs) for rank, tbs in blocks.items()]
    return Program("chains", "allreduce", "Simple", chunks, chunks, gpus)


RATES = st.sampled_from([3.0, 10.0, 10.0, 12.5, 25.0, 100.0])


@st.composite
def shared_networks(draw: st.DrawFn, ranks: int = 4) -> Network:
    """Return routes over any links of a few, some by way of a network."""
    count = draw(st.integers(1, 6))
    links = [
        Resource(f"l{i}", draw(st.sampled_from(["nvlink", "network"])), draw(RATES))
        for i in range(count)
    ]
    ways = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True)
    routes = []
    for a in range(ranks):
        for b in range(ranks):
            if a != b:
                way = draw(ways)
                net = any(links[i].kind == "network" for i in way)
                routes.append(Route(a, b, way, draw(RATES) / 10, "net" if net else "p2p"))
    return Network(ranks, links, routes)


def private_network(rates: list[float], latencies: list[float], ranks: int = 4) -> Network:
    """Return a link of its own for every pair."""
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    links = [Resource(f"{a}>{b}", "nvlink", r) for (a, b), r in zip(pairs, rates, strict=True)]
    routes = [
        Route(a, b, [i], us) for i, ((a, b), us) in enumerate(zip(pairs, latencies, strict=True))
    ]
    return Network(ranks, links, routes)


@settings(max_examples=80, deadline=None)
@given(programs(), shared_networks(), PROTOCOLS, BUFFERS, MACHINES, st.integers(1, 600 * KIB))
def test_no_link_is_over_its_rate_at_any_instant(
    program: Program,
    network: Network,
    protocol: str,
    buffer: int,
    machine: MachineClass,
    chunk: int,
) -> None:
    knobs = Knobs(protocol, 1, 256, buffer)
    record = trace(program, knobs, network, machine, chunk * program.nchunks)
    assert record.samples
    assert all(sample.share <= 1 + 1e-9 for sample in record.samples)
    assert all(share <= 1 + 1e-9 for bins in record.use for share in bins)
    # So none can carry its bytes sooner than at its rate.
    for wire, busy, rate in zip(
        record.result.resource_wire_bytes, record.result.resource_busy_us, record.rate, strict=True
    ):
        assert record.end_us * (1 + 1e-9) >= busy >= wire / rate * (1 - 1e-9)


CALLS = st.lists(
    st.tuples(
        PROTOCOLS,
        st.sampled_from([1, 4, 16]),
        st.sampled_from([96, 256, 512, 640]),
        st.sampled_from([256, 1 << 12, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 8 << 20]),
        st.sampled_from([1, 100, 513, 5000, 1 << 16, 600 * KIB, 3 * MIB]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(programs(), shared_networks(), MACHINES, CALLS, st.sampled_from(["mpi", "process"]))
def test_calls_together_take_what_each_takes_and_no_less_than_the_bound(
    program: Program,
    network: Network,
    machine: MachineClass,
    drawn: list[tuple[str, int, int, int, int]],
    launch: str,
) -> None:
    calls = [
        (Knobs(protocol, channels, threads, buffer), chunk * program.nchunks)
        for protocol, channels, threads, buffer, chunk in drawn
    ]

    def time_us(knobs: Knobs, nbytes: int) -> float:
        try:
            return simulate(program, knobs, network, machine, nbytes, launch=launch).time_us
        except InputError:
            return float("inf")

    alone = [time_us(*call) for call in calls]
    for threads in (1, 3):
        together = simulate_all(program, calls, network, machine, launch=launch, threads=threads)
        assert together == alone
    bounds = least_us(program, calls, network, machine, launch=launch)
    assert all(0 <= bound <= time * (1 + 5e-4) for bound, time in zip(bounds, alone, strict=True))


@settings(max_examples=80, deadline=None)
@given(programs(), PROTOCOLS, BUFFERS, MACHINES, st.integers(1, 600 * KIB), st.data())
def test_flows_that_share_nothing_gain_by_rates_and_latencies(
    program: Program,
    protocol: str,
    buffer: int,
    machine: MachineClass,
    chunk: int,
    data: st.DataObject,
) -> None:
    links = st.lists(RATES, min_size=12, max_size=12)
    gains = st.lists(st.sampled_from([1.0, 1.0, 1.5, 4.0]), min_size=12, max_size=12)
    rates, latencies = data.draw(links), data.draw(links)
    faster = [r * g for r, g in zip(rates, data.draw(gains), strict=True)]
    nearer = [us / g for us, g in zip(latencies, data.draw(gains), strict=True)]
    knobs, nbytes = Knobs(protocol, 1, 256, buffer), chunk * program.nchunks
    times = [
        simulate(program, knobs, private_network(*links), machine, nbytes, exact=True).gpu_us
        for links in ((rates, latencies), (faster, latencies), (faster, nearer))
    ]
    for before, after in itertools.pairwise(times):
        assert after <= before * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.sampled_from([5.0, 20.0, 60.0, 400.0]),
    st.sampled_from([10.0, 50.0, 300.0]),
    st.sampled_from([10.0, 50.0, 300.0]),
    st.sampled_from([0.0, 2.0, 20.0]),
)
def test_large_sizes_run_at_the_rate_of_the_busiest_part(
    ranks: int, link_gbs: float, send_gbs: float, pass_on_gbs: float, transfer_us: float
) -> None:
    steps = ["s", *["rcs"] * (ranks - 2), "r"]
    gpus = [
        Gpu(
            r,
            1,
            1,
            0,
            [
                ThreadBlock(
                    0, r + 1 if r < ranks - 1 else -1, r - 1, 0, [Step(op, "i", 0, "o", 0, 1)]
                )
            ],
        )
        for r, op in enumerate(steps)
    ]
    program = Program("line", "broadcast", "Simple", 1, 1, gpus)
    links = [Resource(f"{r}", "nvlink", link_gbs) for r in range(ranks - 1)]
    network = Network(ranks, links, [Route(r, r + 1, [r], 0.5) for r in range(ranks - 1)])
    costs = ProtocolCosts(transfer_us=transfer_us, send_gbs=send_gbs, rcs_gbs=pass_on_gbs)
    machine = MachineClass("x", fifo_slots=8, simple=costs)
    knobs = Knobs()
    passed = knobs.slice_bytes  # in one pass, a transfer
    own = [send_gbs, *[pass_on_gbs] * (ranks - 2)]
    busiest = max(transfer_us + passed / (min(gbs, link_gbs) * 1e3) for gbs in own)
    few, many = (
        simulate(program, knobs, network, machine, n * passed).gpu_us for n in (1000, 3000)
    )
    assert (many - few) / 2000 == pytest.approx(busiest, rel=2e-3)
