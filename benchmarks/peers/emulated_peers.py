"""Our programs against Gloo, Open MPI and MPICH on emulated clusters, and against the bound.

    sudo .venv/bin/python benchmarks/peers/emulated_peers.py --cluster 2x4 --rate 200 -c allreduce
    sudo .venv/bin/python benchmarks/peers/emulated_peers.py --cluster lopsided

Clusters: 2x4 and 4x2 ranks (hosts times ranks) with uplinks of ``--rate`` Mb/s, and lopsided: 4x2
ranks, two hosts at 1 Gb/s and two at 200 Mb/s. For each size it prints our best program, the part
of the cut bound that it reaches on the rates that TCP has at that size, each peer's best algorithm
and the ratio; then the geometric means over 4 to 64 MB and the marks. ``--json`` keeps the
figures of each collective in a file, which ``peer_tables.py`` prints. Run it alone: a call for one
collective takes six to eight minutes at 200 Mb/s, of which 64 MiB half.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import msgspec
from tcp_flows import link_rates

from peer_report import NamedProgram, PeerRow, peer_report, peer_text
from tuccl.cli.emulation import ended_by_signals
from tuccl.cli.output import columns
from tuccl.emulation import Emulation
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.errors import Infeasible, TucclError
from tuccl.program import Knobs, verify
from tuccl.runtime import Effort, find_mpi
from tuccl.runtime.libraries import LIBRARIES, start_libraries
from tuccl.sketches import full_mesh
from tuccl.synth import (
    METHODS,
    MSCCL_DEFAULT_KNOBS,
    Collective,
    Problem,
    bound,
    lower,
    make_schedule,
    msccl_default,
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
    "allpairs": (1,),
}
# Small buffers cut chunks into passes, so that ranks pass parts of them on; eager messages wait for
# nobody to request them.
KNOBS = {
    "Simple": Knobs("Simple"),
    "Simple 256K": Knobs("Simple", buffer_bytes=256 << 10),
    "LL": Knobs("LL"),
}
DEFAULT = "msccl-default"
LARGEST_OF_DEFAULT = 16 << 20  # beyond, a run takes up to ten seconds
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


def with_rates(topology: Topology, mbps: list[float]) -> Topology:
    """Return ``topology`` with the network links of host ``i`` at ``mbps[i]``."""
    links = []
    for link in topology.links:
        host = next((i for i, h in enumerate(topology.hosts) if link.src.startswith(f"{h}/")), None)
        is_uplink = link.kind == "network" and host is not None
        links.append(
            msgspec.structs.replace(link, bandwidth=mbps[host] / 8e3)
            if is_uplink and host is not None
            else link
        )
    return msgspec.structs.replace(topology, links=tuple(links))


def programs(topology: Topology, collective: str, nbytes: int) -> list[NamedProgram]:
    """Return our candidates for one size, every one verified, and msccl-default.

    ``topology`` has the emulated rates: with those of the profile short messages would look cheap.
    """
    call, mesh = Collective(collective, topology.ranks), full_mesh(topology)
    usual = lower(msccl_default(topology, call))
    default = NamedProgram("robust", usual, MSCCL_DEFAULT_KNOBS, DEFAULT)
    found = [default] if nbytes <= LARGEST_OF_DEFAULT else []
    for name, chunks in candidates(topology, call):
        try:
            program = lower(make_schedule(Problem(call, mesh, chunks, nbytes, topology), name))
        except Infeasible:
            continue
        if not verify(program, "executor", 0).ok:
            raise TucclError(f"{name} with {chunks} chunks does not verify")
        label = f"{name}/{chunks}"
        found += [NamedProgram(f"{label} {k}", program, knobs) for k, knobs in KNOBS.items()]
    return found


def candidates(topology: Topology, call: Collective) -> list[tuple[str, int]]:
    """Return the methods that are tried, with their chunks per rank."""
    mesh = full_mesh(topology)
    found = []
    for name, fixed in METHODS_TRIED.items():
        method = METHODS[name]
        if call.name not in method.collectives:
            continue
        choose = method.choose_chunk_counts
        made = choose(call, mesh, topology, 16)[-2:] if choose else fixed
        found += [(name, chunks) for chunks in made]
    return found


class Figure(msgspec.Struct, frozen=True):
    """One size of one collective on one cluster, as measured.

    Rates in MB/s are the size over the median time; ``peer`` is the best of all, ``versus`` our
    rate over that of each peer and of msccl-default, ``runs`` how many made ours.
    """

    cluster: str
    collective: str
    size: int
    program: str
    mbs: float
    spread: float
    runs: int
    bound_mbs: float
    peer: str
    peer_mbs: float
    versus: dict[str, float]

    @property
    def part(self) -> float:
        """Our rate over the bound."""
        return self.mbs / self.bound_mbs

    @property
    def ratio(self) -> float:
        """Our rate over the best peer's."""
        return self.mbs / self.peer_mbs


def bound_mbs(c: Cluster, emulation: Emulation, collective: str, nbytes: int) -> float:
    """Return the cut bound in MB/s on the rates that TCP has of the links.

    They are measured with the bytes that the slowest host's links must carry for ``nbytes``, full
    buckets at the start included. Of less than a few buckets that is no bound: TCP starts late.
    """
    call = Collective(collective, c.topology.ranks)
    nominal = bound(c.topology, call).algbw_gbs * c.scale * 1e3
    carried = round(nbytes * min(c.mbps) / 8 / nominal)
    mbps = [rate.mbps for rate in link_rates(emulation, carried)]
    measured = with_rates(c.topology, [round(rate / c.scale, -2) for rate in mbps])
    return bound(measured, call).algbw_gbs * c.scale * 1e3


def figure(c: Cluster, rows: list[PeerRow], limit: float) -> Figure:
    """Return what the rows of one size say; ``limit`` is the bound in MB/s."""
    best = min((row for row in rows if row.peer != DEFAULT), key=lambda row: row.peer_us)
    return Figure(
        *(c.name, best.collective, best.size, best.chosen, best.size / best.time_us),
        *(best.spread, best.runs, limit, f"{best.peer} {best.algorithm}"),
        *(best.size / best.peer_us, {row.peer: row.speedup for row in rows}),
    )


def marks(figures: list[Figure]) -> str:
    """Return a line with the means over 4 to 64 MB of one collective and the marks."""
    marked = [f for f in figures if f.size >= MARKED]
    one = figures[0]
    near_the_ring = one.cluster.startswith("4x2") and one.cluster.count(",") == 0
    far = one.collective in MARKED_FAR and not near_the_ring
    text = ""
    if marked:
        parts, ratios = [f.part for f in marked], [f.ratio for f in marked]
        text = f"4-64 MB: {geometric_mean(parts):.0%} of the bound (mark {MARK_OF_BOUND:.0%}); "
        text += (
            f"{geometric_mean(ratios):.2f}x the best peer (mark {MARK if far else MARK_EVEN:g}x); "
        )
    text += f"worst {min(f.ratio for f in figures):.2f}x (mark {MARK_NOWHERE:g}x)"
    usual = [f.versus[DEFAULT] for f in figures if DEFAULT in f.versus]
    if usual:
        text += f"; vs {DEFAULT} {geometric_mean(usual):.2f}x (paper 1.75x to 11.49x)"
    return text


def summary(figures: list[Figure]) -> str:
    """Return each size's figures, and the geometric means against the marks."""
    lines = [
        [
            *(f.size, f.program, f"{f.mbs:.1f}", f"{f.bound_mbs:.1f}", f"{f.part:.0%}"),
            *(f.peer, f"{f.peer_mbs:.1f}", f"{f.ratio:.2f}x"),
            f"{f.versus[DEFAULT]:.2f}x" if DEFAULT in f.versus else "-",
        ]
        for f in figures
    ]
    head = ["bytes", "ours", "MB/s", "bound", "part", "best peer", "MB/s", "ratio", DEFAULT]
    title = f"{figures[0].collective} on {figures[0].cluster}"
    return f"\n# {title}, measured\n{columns(head, lines)}\n{marks(figures)}"


def main() -> None:
    """Print a table for each collective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="2x4", choices=("2x4", "4x2", "lopsided"))
    parser.add_argument("--rate", type=float, default=200.0, metavar="MBPS")
    parser.add_argument("-c", "--collective", action="append", choices=COLLECTIVES)
    parser.add_argument("--peers", default=",".join(LIBRARIES), metavar="NAMES")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), metavar="BYTES,...")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timed runs each (default 3)")
    parser.add_argument(
        "--sent", action="store_true", help="Open MPI's transport as our executor has it alone"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    args = parser.parse_args()
    c = cluster(args.cluster, args.rate)
    sizes = [int(size) for size in args.sizes.split(",")]
    kept: list[Figure] = []
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        emulation = stack.enter_context(Emulation(c.topology, c.scale))
        mpi = replace(find_mpi(), as_shipped=not args.sent)
        ours = stack.enter_context(EmulatedExecutor(emulation, mpi))
        peers, missing = start_libraries(
            ours, emulation.launch, tuple(args.peers.split(",")), stack
        )
        for why in missing:
            print(f"# {why}")
        for collective in args.collective or COLLECTIVES:
            report = peer_report(
                ours,
                peers,
                lambda n, of=collective: programs(ours.topology, of, n),
                collective,
                sizes,
                effort=Effort(seconds=args.seconds),
            )
            print(peer_text(report))
            by_size = {n: [row for row in report.rows if row.size == n] for n in sizes}
            limits = {n: bound_mbs(c, emulation, collective, n) for n in sizes}
            figures = [figure(c, rows, limits[n]) for n, rows in by_size.items()]
            print(summary(figures), flush=True)
            kept += figures
            if args.json:
                args.json.write_bytes(msgspec.json.encode(kept))


if __name__ == "__main__":
    main()
