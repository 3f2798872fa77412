"""Our programs against Gloo, Open MPI and MPICH on emulated clusters, and against the bound.

    sudo .venv/bin/python benchmarks/emulated_peers.py --cluster 2x4 --rate 200 -c allreduce
    sudo .venv/bin/python benchmarks/emulated_peers.py --cluster lopsided

Clusters: 2x4 and 4x2 ranks (hosts times ranks) with uplinks of ``--rate`` Mb/s, and lopsided: 4x2
ranks, two hosts at 1 Gb/s and two at 200 Mb/s. For each size it prints our best program, the part
of the cut bound that it reaches on the rates that TCP has at that size, each peer's best algorithm
and the ratio; then the geometric means over 4 to 64 MB beside the marks. Run it alone: a call for
one collective takes some minutes at 200 Mb/s.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from tuccl._native import Knobs, verify
from tuccl.cli.emulate import ended_by_signals
from tuccl.cli.output import columns
from tuccl.cli.peers import peers_beside
from tuccl.errors import Infeasible, TucclError
from tuccl.eval import NamedProgram, PeerReport, PeerRow, geometric_mean, peer_report, peer_text
from tuccl.runtime import (
    PEERS,
    Effort,
    EmulatedExecutor,
    Emulation,
    find_mpi,
    wire_rates,
)
from tuccl.sketches import full_mesh
from tuccl.synth import (
    METHODS,
    MSCCL_DEFAULT_KNOBS,
    Collective,
    bound,
    lower,
    msccl_default,
    synthesize,
)
from tuccl.topology import Topology, join, keep_gpus, load_profile

COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "broadcast", "alltoall")
MARKED_FAR = ("allreduce", "allgather", "reduce-scatter")  # where a flat ring is far from the bound
SIZES = (64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
MARKED = 4 << 20  # sizes that the marks are for, from here on
METHODS_TRIED: dict[str, tuple[int, ...]] = {
    "ring": (1,),
    "recursive": (1,),
    "hierarchical2": (1, 4),
    "hierarchical3": (4,),
    "packing": (),
    "pipelined": (),
    "flow": (),
}
DEFAULT = "msccl-default"
NOMINAL_MBPS = 1e5  # of a NIC of the profile
MARK_OF_BOUND, MARK, MARK_EVEN, MARK_NOWHERE = 0.9, 1.4, 1.0, 0.95


@dataclass(frozen=True)
class Cluster:
    """A topology, and the rates of its hosts in Mb/s."""

    name: str
    topology: Topology
    mbps: tuple[float, ...]

    @property
    def scale(self) -> float:
        """Emulated over nominal rate."""
        return max(self.mbps) / NOMINAL_MBPS


def cluster(name: str, rate: float) -> Cluster:
    """Return the cluster ``name``."""
    hosts, ranks = (4, 2) if name == "lopsided" else map(int, name.split("x"))
    whole = join(keep_gpus(load_profile("ndv2"), list(range(ranks))), hosts)
    mbps = (1000.0, 1000.0, 200.0, 200.0) if name == "lopsided" else (rate,) * hosts
    label = f"{name} at {rate:g} Mb/s" if name != "lopsided" else "4x2 at 1000, 1000, 200, 200 Mb/s"
    fastest = max(mbps)
    topology = with_rates(whole, [NOMINAL_MBPS * m / fastest for m in mbps])
    return Cluster(label, msgspec.structs.replace(topology, name=label), mbps)


def with_rates(t: Topology, mbps: list[float]) -> Topology:
    """Return ``t`` with the network links of host ``i`` at ``mbps[i]``."""
    links = []
    for link in t.links:
        host = next((i for i, h in enumerate(t.hosts) if link.src.startswith(f"{h}/")), None)
        wire = link.kind == "network" and host is not None
        links.append(
            msgspec.structs.replace(link, bandwidth=mbps[host] / 8e3)
            if wire and host is not None
            else link
        )
    return msgspec.structs.replace(t, links=tuple(links))


def programs(c: Cluster, collective: str, nbytes: int) -> list[NamedProgram]:
    """Return our candidates for one size, every one verified, and msccl-default."""
    call, mesh = Collective(collective, c.topology.ranks), full_mesh(c.topology)
    usual = lower(msccl_default(c.topology, call))
    found = [NamedProgram("robust", usual, MSCCL_DEFAULT_KNOBS, DEFAULT)]
    for name, chunks in candidates(c, call):
        try:
            program = lower(synthesize(call, mesh, name, chunks, nbytes, c.topology))
        except Infeasible:
            continue
        if not verify(program, "executor", 0).ok:
            raise TucclError(f"{name} with {chunks} chunks does not verify")
        found.append(NamedProgram(f"{name}/{chunks}", program, Knobs("Simple")))
    return found


def candidates(c: Cluster, call: Collective) -> list[tuple[str, int]]:
    """Return the methods that are tried, with their chunks per rank."""
    mesh = full_mesh(c.topology)
    found = []
    for name, fixed in METHODS_TRIED.items():
        method = METHODS[name]
        if call.name not in method.collectives:
            continue
        made = method.chunkings(call, mesh, c.topology, 16)[-2:] if method.chunkings else fixed
        found += [(name, chunks) for chunks in made]
    return found


def bound_mbs(c: Cluster, emulation: Emulation, collective: str, nbytes: int) -> float:
    """Return the MB/s that no algorithm passes, on the rates that TCP has at that size."""
    rates = [round(rate.mbps / c.scale, -2) for rate in wire_rates(emulation, nbytes)]
    measured = with_rates(c.topology, rates)
    return bound(measured, Collective(collective, measured.ranks)).algbw_gbs * c.scale * 1e3


def summary(report: PeerReport, limits: dict[int, float], title: str, mark: float) -> str:
    """Return each size's figures, and the geometric means against the marks.

    Args:
        report: what was measured.
        limits: the bound in MB/s by size.
        title: of the table.
        mark: ratio to the best peer that the mean should reach.
    """
    lines = []
    by_size: dict[int, list[PeerRow]] = {}
    for row in report.rows:
        by_size.setdefault(row.size, []).append(row)
    ratios: dict[int, float] = {}
    parts: dict[int, float] = {}
    defaults = []
    for size, rows in by_size.items():
        usual = next((row.speedup for row in rows if row.peer == DEFAULT), float("nan"))
        defaults.append(usual)
        best = min((row for row in rows if row.peer != DEFAULT), key=lambda row: row.peer_us)
        mbs = size / best.time_us
        ratios[size], parts[size] = best.speedup, mbs / limits[size]
        figures = (f"{mbs:.1f}", f"{limits[size]:.1f}", f"{parts[size]:.0%}")
        theirs = (f"{best.peer} {best.algorithm}", f"{size / best.peer_us:.1f}")
        ratio = (f"{best.speedup:.2f}x", f"{usual:.2f}x")
        lines.append([size, best.chosen, *figures, *theirs, *ratio])
    head = ["bytes", "ours", "MB/s", "bound", "part", "best peer", "MB/s", "ratio", DEFAULT]
    marked = [size for size in by_size if size >= MARKED]
    text = f"\n# {title}, measured\n{columns(head, lines)}\n"
    if marked:
        mean_part = geometric_mean(parts[size] for size in marked)
        mean_ratio = geometric_mean(ratios[size] for size in marked)
        text += f"4-64 MB: {mean_part:.0%} of the bound (mark {MARK_OF_BOUND:.0%}); "
        text += f"{mean_ratio:.2f}x the best peer (mark {mark:g}x); "
    text += f"worst {min(ratios.values()):.2f}x (mark {MARK_NOWHERE:g}x); "
    return text + f"vs {DEFAULT} {geometric_mean(defaults):.2f}x (paper 1.75x to 11.49x)"


def main() -> None:
    """Print a table for each collective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="2x4", choices=("2x4", "4x2", "lopsided"))
    parser.add_argument("--rate", type=float, default=200.0, metavar="MBPS")
    parser.add_argument("-c", "--collective", action="append", choices=COLLECTIVES)
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), metavar="BYTES,...")
    args = parser.parse_args()
    c = cluster(args.cluster, args.rate)
    sizes = [int(size) for size in args.sizes.split(",")]
    names = tuple(args.peers.split(","))
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        emulation = stack.enter_context(Emulation(c.topology, c.scale))
        ours = stack.enter_context(EmulatedExecutor(emulation, find_mpi()))
        peers, missing = peers_beside(ours, names, stack)
        for why in missing:
            print(f"# {why}")
        for collective in args.collective or COLLECTIVES:
            limits = {n: bound_mbs(c, emulation, collective, n) for n in sizes}
            report = peer_report(
                *(ours, peers, lambda n, of=collective: programs(c, of, n), collective, sizes),
                effort=Effort(seconds=3.0),
                tell=lambda line: print(line, file=sys.stderr, flush=True),
            )
            print(peer_text(report))
            far = collective in MARKED_FAR and args.cluster != "4x2"
            mark = MARK if far else MARK_EVEN
            title = f"{collective} on {c.name}"
            print(summary(report, limits, title, mark), flush=True)


if __name__ == "__main__":
    main()
