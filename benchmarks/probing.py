"""Prints how well probing knows emulated clusters of known rates, and what tables lose by it.

    sudo .venv/bin/python benchmarks/probing.py [--case NAME ...] [--no-tables] [--mbps M]

Each case is a cluster of network namespaces: flat, two tiers, one shared uplink, one slow host.
`probe_network` gets addresses alone. Rates are compared with those of the kernel's token
buckets (9000-byte frames leave 99.3 % to payload), latencies, which this kernel cannot emulate,
with the median of 1000 pings of the idle cluster, over a second. Tables are tuned by simulation,
on the measured and on the true rates, with one seed; the fastest program of each for a call is then
timed in turns on the cluster. Marks: rates within 10 %, latencies within 15 %, the shared part
found, at most 4 probes a host, tables within 5 %. Needs root; run it alone on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

from msgspec.structs import replace
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation, emulated_endpoints, emulated_prober, unprobed_topology
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.emulation.sim_executor import EmulatedSimExecutor
from tuccl.program import parse_xml
from tuccl.runtime import ConfiguredProgram, Effort, find_mpi, load_table
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.runtime.probing import AgentProber
from tuccl.topology import Link, Node, Topology, path
from tuccl.topology.probing import NetworkRates, measured_topology, probe_network
from tuccl.tuning import TuneOptions, tune

CALLS = (("allreduce", 1 << 20), ("allreduce", 4 << 20), ("allgather", 4 << 20))
BUDGET = 40
ROUNDS = 7
PINGS, BURSTS = 1000, 10


class Cluster(NamedTuple):
    """Racks of so many hosts, each host a rank; rates in parts of a NIC's, None not blocking."""

    racks: tuple[int, ...]
    uplinks: tuple[float, ...] = ()
    slow: tuple[tuple[int, float], ...] = ()

    def topology(self, gbs: float) -> Topology:
        """Return the cluster with NICs of ``gbs`` GB/s."""
        nodes: list[Node] = []
        links: list[Link] = []
        rack_of = [rack for rack, size in enumerate(self.racks) for _ in range(size)]
        for host, rack in enumerate(rack_of):
            gpu, nic, name = f"h{host}/gpu0", f"h{host}/nic0", f"h{host}"
            rate = gbs * dict(self.slow).get(host, 1.0)
            nodes += [Node(gpu, "gpu", name, rank=host), Node(nic, "nic", name)]
            links.append(Link(gpu, nic, "pcie", 16.0, 0.44, duplex=True))
            links.append(Link(nic, f"tor{rack}", "network", rate, 0.4, duplex=True))
        nodes += [Node(f"tor{rack}", "switch") for rack in range(len(self.racks))]
        if len(self.racks) == 2:
            rate = gbs * self.uplinks[0]
            links.append(Link("tor0", "tor1", "network", rate, 0.4, duplex=True))
        elif len(self.racks) > 2:
            nodes.append(Node("spine0", "switch"))
            links += [
                Link(f"tor{rack}", "spine0", "network", gbs * part, 0.3, duplex=True)
                for rack, part in enumerate(self.uplinks)
            ]
        return Topology("emulated", tuple(nodes), tuple(links))


CASES = {
    "flat": Cluster((8,)),
    "one slow host": Cluster((8,), slow=((3, 0.3),)),
    "one shared uplink": Cluster((4, 4), (2.0,)),
    "two tiers": Cluster((3, 3, 3), (1.5, 1.5, 1.5)),
}


def probe_row(
    name: str, emulation: Emulation, truth: Topology, prober: AgentProber
) -> tuple[list[object], Topology]:
    """Return a row of what probing found beside what is true, and the measured topology."""
    begin = time.monotonic()
    rates = probe_network(prober, emulated_endpoints(emulation))
    seconds = time.monotonic() - begin
    measured = measured_topology(unprobed_topology(emulation), rates)
    racks = CASES[name].racks
    ends = [sum(racks[: n + 1]) for n in range(len(racks))]
    true_groups = {tuple(range(e - s, e)) for s, e in zip(racks, ends, strict=True)}
    return [
        name,
        len(truth.hosts),
        rates.probes / len(truth.hosts),
        max(errors_of_ports(rates, truth)),
        max(errors_of_uplinks(rates, truth), default=None),
        max(errors_of_latency(prober, measured)),
        "yes" if set(rates.groups) == true_groups else "no",
        seconds,
    ], measured


def errors_of_ports(rates: NetworkRates, truth: Topology) -> Iterator[float]:
    """Yield the error in % of each host's rate, out and in."""
    true = {ends: link.bandwidth for link in truth.links for ends in link.directions()}
    for end, port in zip(rates.endpoints, rates.ports, strict=True):
        switch = next(dst for src, dst in true if src == end.nic and dst.startswith("tor"))
        for gbs, ends in ((port.out_gbs, (end.nic, switch)), (port.in_gbs, (switch, end.nic))):
            yield 100 * abs(gbs.value / true[ends] - 1)


def errors_of_uplinks(rates: NetworkRates, truth: Topology) -> Iterator[float]:
    """Yield the error in % of each group's uplink, out and in; 100 where it is not seen."""
    for link in truth.links:
        if not link.src.startswith("tor"):
            continue
        group = int(link.src[3:])
        uplink = rates.uplinks[group] if group < len(rates.uplinks) else None
        for gbs in (uplink.out_gbs, uplink.in_gbs) if uplink is not None else (None,):
            yield 100 * abs(gbs.value / link.bandwidth - 1) if gbs is not None else 100.0


def errors_of_latency(prober: AgentProber, measured: Topology) -> Iterator[float]:
    """Yield the error in % of the latency of pairs, near and far, against many pings."""
    hosts = len(measured.hosts)
    for src, dst in ((0, 1), (hosts - 2, hosts - 1), (0, hosts - 1), (1, hosts // 2)):
        trips: list[float] = []
        for _ in range(BURSTS):
            requests = [(src, prober.echo(src, dst, PINGS // BURSTS))]
            [(us, _)] = prober.answers(requests, tuple[list[float], str])
            trips += us
            time.sleep(0.1)
        got = sum(hop.latency for hop in path(measured, src, dst).hops if hop.kind == "network")
        yield 100 * abs(got / (median(trips) / 2) - 1)


def fastest_programs(topology: Topology, folder: Path) -> list[tuple[str, ConfiguredProgram]]:
    """Return, for each call, the name and program that a table tuned on ``topology`` has first.

    The tune is simulated.
    """
    executor = EmulatedSimExecutor(topology, 1.0)
    found = []
    for name in dict.fromkeys(name for name, _ in CALLS):
        sizes = [nbytes for call, nbytes in CALLS if call == name]
        tune(topology, [name], sizes, lambda _: executor, TuneOptions(budget=BUDGET), path=folder)
    table = load_table(folder).lookup
    for name, nbytes in CALLS:
        entry = next(
            e
            for e in table.entries
            if e.collective == name and e.min_bytes <= nbytes <= e.max_bytes
        )
        best = next(c for c in entry.candidates if c.program is not None and c.knobs is not None)
        program = parse_xml((folder / str(best.program)).read_text(), str(best.program))
        found.append((best.name, ConfiguredProgram(program, best.knobs.knobs)))
    return found


def table_rows(name: str, emulation: Emulation, measured: Topology) -> Iterator[list[object]]:
    """Yield a row a call: times of the programs of either table, in ms, and their ratio."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        truth = emulation.topology
        by_truth = fastest_programs(truth, Path(folder) / "true")
        by_probes = fastest_programs(measured, Path(folder) / "measured")
        effort = Effort(warmup=1, runs=1)
        executor = stack.enter_context(EmulatedExecutor(emulation, find_mpi(), effort=effort))
        for (call, nbytes), a, b in zip(CALLS, by_truth, by_probes, strict=True):
            one, other = paired_timings(executor, [a[1], b[1]], nbytes, rounds=ROUNDS)
            yield [
                name,
                call,
                f"{nbytes >> 20}M",
                a[0],
                b[0],
                one.time_us / 1e3,
                other.time_us / 1e3,
                other.time_us / one.time_us,
            ]


def main() -> None:
    """Print a row a case, and a row a call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--mbps", type=float, default=100.0, help="of a NIC (default 100)")
    parser.add_argument("--no-tables", action="store_true")
    args = parser.parse_args()
    rows, calls = [], []
    for name in args.case:
        truth = CASES[name].topology(args.mbps / 8e3)
        with Emulation(truth, 1.0) as emulation:
            with emulated_prober(emulation) as prober:
                row, measured = probe_row(name, emulation, truth, prober)
            rows.append(row)
            if not args.no_tables:
                calls += table_rows(name, emulation, replace(measured, name="emulated"))
    print("# probing emulated clusters; errors are the largest of all hosts, links or pairs")
    header = ["cluster", "hosts", "probes a host", "NIC rates %", "shared rates %", "latency %"]
    print(columns([*header, "groups found", "seconds"], rows))
    if calls:
        ratios: Sequence[float] = [float(row[-1]) for row in calls]
        print("\n# programs of tables tuned on true and on measured rates, timed in turns (ms)")
        print(columns(["cluster", "call", "size", "true", "measured", "ms", "ms", "ratio"], calls))
        print(f"geometric mean {geometric_mean(ratios):.3f}, worst {max(ratios):.3f}")
    print("# marks: rates 10 %, latency 15 %, 4 probes a host, tables 1.05")


if __name__ == "__main__":
    publish(main, "Measured, on network namespaces")
