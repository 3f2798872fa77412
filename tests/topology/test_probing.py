"""Probing a network whose rates are known: few probes, right rates, shared parts found."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.model_prober import IDLE_US, ModelProber, network
from tuccl.errors import InputError, TucclError
from tuccl.topology import (
    Topology,
    decode_topology,
    differences,
    encode_topology,
    join,
    load_profile,
    path,
    signature,
)
from tuccl.topology.probing import (
    Endpoint,
    Estimate,
    Fit,
    PairTimes,
    RecordedProber,
    endpoints_of,
    fit,
    measured_topology,
    probe_network,
    read_use,
    with_peer_rates,
)
from tuccl.topology.probing.pairs import all_at_once, neighbour_pairs
from tuccl.topology.probing.prober import Pair

CASES: dict[str, Topology] = {
    "flat": network([range(8)]),
    "flat, odd": network([range(7)]),
    "two hosts": network([range(2)]),
    "one slow host": network([range(8)], slow={3: 0.3}),
    "two slow hosts": network([range(9)], slow={0: 0.5, 5: 0.25}),
    "one shared uplink": network([range(4), range(4, 8)], up_gbs=[2.0]),
    "a shared uplink narrower than a NIC": network([range(3), range(3, 8)], up_gbs=[0.5]),
    "two tiers": network([range(4), range(4, 8), range(8, 12)], up_gbs=[2.0] * 3),
    "many racks": network([range(r, r + 4) for r in range(0, 64, 4)], up_gbs=[1.5] * 16),
    "one rack behind a slow uplink": network(
        [range(4), range(4, 8), range(8, 12)], up_gbs=[None, 1.0, None]
    ),
    "two racks, in turns": network([range(0, 8, 2), range(1, 8, 2)], up_gbs=[2.0]),
    "an uplink for the two NICs of each host": network(
        [[0], [1], [2], [3]], up_gbs=[1.2] * 4, nics=2
    ),
    "racks of hosts of two NICs": network([range(4), range(4, 8)], up_gbs=[3.0], nics=2),
    "hosts of two NICs": network([range(6)], nics=2),
    "slow host and shared uplink": network([range(4), range(4, 8)], up_gbs=[2.0], slow={6: 0.2}),
}


def together(truth: Topology, flows: Sequence[Pair]) -> list[float]:
    return ModelProber(truth).shared(flows)[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_rates_alone_and_together_are_those_of_the_network(name: str, seed: int) -> None:
    """Whatever the switches are called, flows get within 10 % of what they really get."""
    truth = CASES[name]
    prober = ModelProber(truth, seed=seed)
    found = measured_topology(truth, probe_network(prober, prober.endpoints))
    hosts = len(truth.hosts)
    for src in range(0, hosts, 1 + hosts // 12):
        for dst in {(src + 1) % hosts, (src + hosts // 2) % hosts} - {src}:
            assert together(found, [(src, dst)]) == pytest.approx(
                together(truth, [(src, dst)]), rel=0.1
            )
            latency = path(truth, src, dst).latency + IDLE_US
            # Wide racks look like one: then the way between them is one switch, not three.
            rel = 0.2 if "one rack behind" in name else 0.15
            assert path(found, src, dst).latency == pytest.approx(latency, rel=rel)
    for step in range(1, hosts, 1 + hosts // 12):
        flows = [(src, (src + step) % hosts) for src in range(hosts)]
        assert sum(together(found, flows)) == pytest.approx(sum(together(truth, flows)), rel=0.1)
    assert decode_topology(encode_topology(found)) == found
    assert {x.origin for x in found.links if x.kind == "network"} <= {"measured", "inferred"}


@given(seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)), turn=st.integers(0, 11))
@settings(max_examples=20)
def test_the_same_network_has_one_signature_whenever_and_in_whatever_order_it_is_probed(
    seeds: tuple[int, int], turn: int
) -> None:
    """Noise enters rates alone, and those do not enter; racks may come in another order."""
    racks = [list(range(first, first + 4)) for first in (0, 4, 8)]
    turned = [[(host + 4 * turn) % 12 for host in rack] for rack in racks]
    found = []
    for members, seed in zip((racks, turned), seeds, strict=True):
        truth = network(members, up_gbs=[2.0] * 3)
        prober = ModelProber(truth, seed=seed)
        found.append(measured_topology(truth, probe_network(prober, prober.endpoints)))
    assert signature(found[0]) == signature(found[1])
    assert turn % 3 or differences(*found) == ()


@pytest.mark.parametrize("name", CASES)
def test_at_most_four_probes_a_host(name: str) -> None:
    truth = CASES[name]
    prober = ModelProber(truth)
    rates = probe_network(prober, prober.endpoints)
    assert len(prober.pairs) + len(prober.flows) <= rates.probes <= 4 * len(truth.hosts)


@given(
    sizes=st.lists(st.integers(2, 6), min_size=2, max_size=5),
    blocking=st.floats(1.5, 4.0),
    seed=st.integers(0, 99),
)
def test_racks_in_their_order_are_found_with_their_uplinks(
    sizes: list[int], blocking: float, seed: int
) -> None:
    racks, first = [], 0
    for size in sizes:
        racks.append(range(first, first + size))
        first += size
    up = min(sizes) / blocking
    truth = network(racks, up_gbs=[up] * len(racks))
    prober = ModelProber(truth, seed=seed)
    rates = probe_network(prober, prober.endpoints)
    crossing = [
        f for f in all_at_once(prober.endpoints) if not any(set(f) <= set(r) for r in racks)
    ]
    if len(crossing) == first:  # all uplinks are full
        assert rates.uplinks
        found = measured_topology(truth, rates)
        assert sum(together(found, crossing)) == pytest.approx(
            sum(together(truth, crossing)), rel=0.15
        )
    assert rates.probes <= 4 * first


def test_probing_goes_on_from_its_file(tmp_path: Path) -> None:
    """However often it is cut off, no probe runs twice, and the answer is the same."""
    truth, file = CASES["one shared uplink"], tmp_path / "probes.json"

    class Cut(ModelProber):
        def pair(self, src: int, dst: int) -> PairTimes:
            if len(self.pairs) == 2:
                raise KeyboardInterrupt
            return super().pair(src, dst)

    asked: list[Pair] = []
    for _ in range(9):
        prober = Cut(truth)
        try:
            rates = probe_network(RecordedProber(prober, prober.endpoints, file), prober.endpoints)
        except KeyboardInterrupt:
            asked += prober.pairs
        else:
            asked += prober.pairs
            break
    assert len(asked) == len(set(asked))
    quiet = ModelProber(truth)
    again = probe_network(RecordedProber(quiet, quiet.endpoints, file), quiet.endpoints)
    assert again == rates
    assert not quiet.pairs
    assert not quiet.flows
    with pytest.raises(InputError, match="other hosts"):
        RecordedProber(quiet, quiet.endpoints[:2], file)
    with pytest.raises(InputError, match="not by 'perftest'"):
        RecordedProber(quiet, quiet.endpoints, file, method="perftest")


def test_a_damaged_file_of_probes_is_refused(tmp_path: Path) -> None:
    prober, file = ModelProber(CASES["two hosts"]), tmp_path / "probes.json"
    probe_network(RecordedProber(prober, prober.endpoints, file), prober.endpoints)
    data = file.read_bytes()
    chance = random.Random(0)
    for _ in range(60):
        file.write_bytes(data[: chance.randrange(len(data))])
        with pytest.raises(InputError, match=r"probes\.json"):
            RecordedProber(prober, prober.endpoints, file)


@given(st.text(alphabet="h01 9\n#-.e", max_size=40))
def test_any_file_of_use_is_read_or_refused(text: str) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        try:
            use = read_use(file.name)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert max(use.values()) > 0


def test_a_small_budget_probes_each_rack_and_infers_the_rest() -> None:
    truth = network([range(8)])
    prober = ModelProber(truth)
    rates = probe_network(prober, prober.endpoints, budget=2)
    assert len(prober.pairs) == rates.probes == 2
    found = measured_topology(truth, rates)
    inferred = [x for x in found.links if x.kind == "network" and x.origin == "inferred"]
    assert len(inferred) == 4
    assert {x.inferred_from for x in inferred} == {"h0/nic0 s0"}
    with pytest.raises(InputError, match="budget 0"):
        probe_network(prober, prober.endpoints, budget=0)


def test_pairs_that_jobs_do_not_use_are_not_probed(tmp_path: Path) -> None:
    file = tmp_path / "use"
    file.write_text("# earlier jobs\nh0 h1 900\nh2 h3 800\n\nh3 h2 100\nh0 h3 1\n")
    use = read_use(file)
    assert use[frozenset(("h2", "h3"))] == 900
    prober = ModelProber(network([range(4)]))
    probe_network(prober, prober.endpoints, use=use)
    assert {frozenset(pair) for pair in (*prober.pairs, *prober.flows)} == {
        frozenset((0, 1)),
        frozenset((2, 3)),
    }
    for bad in ("h0 h0 5", "h0 h1", "h0 h1 -5", "h0 h1 many", f"h0 h1 {10**18}"):
        file.write_text(f"h0 h1 5\n{bad}\n")
        with pytest.raises(InputError, match="use:2"):
            read_use(file)


def test_a_budget_too_small_to_show_who_shares_says_so() -> None:
    truth = CASES["one shared uplink"]
    prober = ModelProber(truth)
    rates = probe_network(prober, prober.endpoints, budget=14)
    assert rates.probes <= 14
    assert "budget is too small" in rates.notes[0]


def test_hosts_that_no_job_joins_are_inferred(tmp_path: Path) -> None:
    """Where the rest shares an uplink, too."""
    truth = CASES["one shared uplink"]
    prober = ModelProber(truth)
    use = {frozenset((f"h{a}", f"h{b}")): 1.0 for a in range(7) for b in range(a)}
    rates = probe_network(prober, prober.endpoints, use=use)
    assert all("h7" not in {f"h{n}" for n in pair} for pair in (*prober.pairs, *prober.flows))
    assert rates.ports[7].inferred_from in range(4, 7)


def test_neighbours_of_a_rack_or_subnet_come_first() -> None:
    ends = [Endpoint(f"h{n}", "nic", f"10.0.{n % 2}.{n}") for n in range(6)]
    assert neighbour_pairs(ends) == [(0, 2), (1, 3), (4, 5)]
    racked = [msgspec.structs.replace(e, rack=f"r{n // 3}") for n, e in enumerate(ends)]
    assert neighbour_pairs(racked) == [(0, 1), (3, 4), (2, 5)]


@given(alpha=st.floats(1, 500), gbs=st.floats(0.01, 400), seed=st.integers(0, 99))
def test_a_fit_survives_outliers(alpha: float, gbs: float, seed: int) -> None:
    chance = random.Random(seed)
    big = max(1 << 20, int(20 * alpha * gbs * 1e3))
    times = {
        n: [
            (alpha + n / gbs / 1e3) * chance.uniform(0.99, 1.01) * (9 if k == 3 else 1)
            for k in range(9)
        ]
        for n in (0, big, 2 * big)
    }
    fitted = fit(times, seed)
    assert fitted.alpha_us.value == pytest.approx(alpha, rel=0.03)
    assert fitted.gbs.value == pytest.approx(gbs, rel=0.1)
    assert fitted.gbs.low <= fitted.gbs.value <= fitted.gbs.high
    assert fit(times, seed) == fitted


def test_a_fit_needs_sizes_and_rising_times() -> None:
    with pytest.raises(InputError, match="two at least"):
        fit({8: [1.0]})
    with pytest.raises(InputError, match="do not rise"):
        fit({8: [9.0], 1000: [1.0]})


def test_a_joined_cluster_keeps_its_switches_and_routes_where_they_are_right() -> None:
    """Rails that were not probed get the numbers of the one that was."""
    cluster = join(load_profile("dgx-a100"), 4, "rail")
    ends = endpoints_of(cluster, {host: [f"10.0.0.{n}"] for n, host in enumerate(cluster.hosts)})
    model = ModelProber(network([range(4)]))
    rates = probe_network(model, ends)
    found = measured_topology(cluster, rates)
    assert found.nodes == cluster.nodes
    assert found.routes == cluster.routes
    by_origin = {x.origin: x.inferred_from for x in found.links if x.kind == "network"}
    assert by_origin.keys() == {"measured", "inferred"}
    with pytest.raises(InputError, match="n3"):
        measured_topology(cluster, probe_network(model, ends[:3]))


def test_gpu_pairs_put_their_rate_on_the_narrowest_links() -> None:
    machine = load_profile("dgx-1v")
    fits = {
        pair: Fit(*(Estimate(v, v, v) for v in (2.0, 0.9 * path(machine, *pair).bandwidth)))
        for pair in [(a, b) for a in range(8) for b in range(8) if a != b]
    }
    found = with_peer_rates(machine, fits, "copies")
    for link in found.links:
        if link.kind == "nvlink":
            assert link.measured == pytest.approx(0.9 * link.bandwidth)
            assert link.origin == "measured"
    assert [x.bandwidth for x in found.links] == [x.bandwidth for x in machine.links]
    with pytest.raises(TucclError, match="no pair"):
        with_peer_rates(machine, {}, "copies")
