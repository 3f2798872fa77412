"""Tables tuned for a loaded link beside tables tuned idle: gains under load, losses at rest.

    python benchmarks/robust_tables.py [--hosts N,...] [--budget N] [--write]

One GPU a host on one switch; others take 80 % of the link of host 0, in both directions. The table
is tuned for the idle and the loaded network together, and compared with one that is tuned for the
idle network alone. Its first choice serves both; its own times per scenario also say which
candidate suits which. The ceiling is the bound on the rates that are left, at the part of them that
the machine class says software reaches. A program that spares a link loads the others: of n hosts
with one GPU the least loss at rest for the whole gain is (2n-3)/(n-1) over 2(n-1)/n.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from report import publish

from tuccl.eval.compare_scenarios import ScenarioRow, compare_scenarios
from tuccl.runtime import SimExecutor, Table, load_table
from tuccl.runtime.executors import Scenario, ScenarioExecutor
from tuccl.topology import (
    CrossTraffic,
    Topology,
    join,
    keep_gpus,
    load_profile,
    machine_of,
)
from tuccl.topology.cross_traffic import Source
from tuccl.tuning import TuneOptions, tune

LOAD = 0.8
SIZES = ("16M", "64M", "256M")
METHODS = ("ring", "rings", "hierarchical2", "allpairs", "packing", "pipelined", "greedy")


def scenarios(topology: Topology) -> list[Scenario]:
    """Return the network at rest, and with a loaded link."""
    ends = ("n0/nic0", "leaf0")
    busy = CrossTraffic(
        tuple(Source(src, dst, "rate", load=LOAD) for src, dst in (ends, ends[::-1]))
    )
    return [
        Scenario("idle", SimExecutor(topology)),
        Scenario("busy", SimExecutor(topology, cross=busy)),
    ]


def tuned(topology: Topology, executor: SimExecutor | ScenarioExecutor, budget: int) -> Table:
    """Return the table of allreduce that a search on ``executor`` finds."""
    with tempfile.TemporaryDirectory() as folder:
        options = TuneOptions(budget=budget, methods=METHODS)
        path = Path(folder) / "table"
        tune(topology, "allreduce", SIZES, lambda _: executor, options, path=path)
        return load_table(path)


def print_rows(hosts: int, rows: list[ScenarioRow], efficiency: float) -> None:
    """Print a line for each size."""
    for idle, busy in zip(rows[: len(SIZES)], rows[len(SIZES) :], strict=True):
        assert idle.idle_us is not None
        assert busy.idle_us is not None
        ceiling = busy.idle_us / (busy.ceiling_us / efficiency)
        cells = [f"{hosts:5d}{busy.size >> 20:5d} MiB{ceiling:9.2f}x"]
        for name in ("robust_us", "selected_us"):
            gain = busy.idle_us / getattr(busy, name)
            loss = getattr(idle, name) / idle.idle_us - 1
            cells.append(f"{gain:8.2f}x{gain / ceiling:7.0%}{(gain - 1) / (ceiling - 1):7.0%}")
            cells.append(f"{loss:9.1%}")
        print("".join(cells))


def main() -> int:
    """Tune, compare and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", default="4,8,16")
    parser.add_argument("--budget", type=int, default=160)
    args = parser.parse_args()
    print("Simulated: allreduce, 80 % of one host's link taken by others. For the table's first")
    print(
        "choice, then for the candidate that its times per scenario name: gain over the idle-tuned"
    )
    print("table, the part of the ceiling reached, the part of the ceiling's gain, loss at rest.\n")
    first = "".join(f"{name:>9}{'reach':>7}{'gain':>7}{'loss':>9}" for name in ("first", "named"))
    print(f"hosts     size   ceiling{first}")
    for hosts in map(int, args.hosts.split(",")):
        topology = join(keep_gpus(load_profile("ndv2"), [0]), hosts)
        both = scenarios(topology)
        robust = tuned(topology, ScenarioExecutor(both), args.budget)
        idle = tuned(topology, SimExecutor(topology), args.budget)
        rows = compare_scenarios(robust, both, idle)
        print_rows(hosts, list(rows), machine_of(topology).network_efficiency)
    return 0


if __name__ == "__main__":
    publish(main, "Simulated")
