"""Prints which library is fastest between ranks in containers, regime by regime, as measured here.

    sudo .venv/bin/python benchmarks/regimes.py [--ranks 2] [--sizes 64K] [--regimes bare,vm]

Gloo, Open MPI and MPICH by their own choice, and tuccl's programs over Open MPI, run broadcast,
gather and allreduce in turns. Every second round predicts the fastest library of a place, the
others measure it: so the winner of one regime is compared with what is fastest in each. Where the
ranks' time goes is sampled by perf during the race.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median

from report import ROOT, publish

import tuccl

sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))


from breakdown import PARTS, Breakdown, Samples

from peer_report import NamedProgram, _ours, _theirs
from race import Competitor, RaceResult, prescreen, race
from tuccl.cli.output import columns
from tuccl.emulation import Cells, CellsExecutor
from tuccl.emulation.regimes import REGIMES
from tuccl.errors import Infeasible
from tuccl.execution import RankResult
from tuccl.program import Knobs, verify
from tuccl.runtime import Effort, Operands, find_mpi
from tuccl.runtime.libraries import LIBRARIES, start_libraries
from tuccl.sketches import Sketch, full_mesh
from tuccl.synth import METHODS, Collective, Problem, lower, make_schedule
from tuccl.synth.methods import Method
from tuccl.topology import Topology, keep_gpus, load_profile, split_into_cells
from tuccl.training.job import Job
from tuccl.training.launch import run_job
from tuccl.training.model import Model, Parameter
from tuccl.units import parse_size

COLLECTIVES = ("broadcast", "gather", "allreduce")
ALL = ("tuccl", *LIBRARIES)
ROUNDS = 10  # those of even number predict, the others measure
KNOBS = {
    "LL": Knobs("LL"),
    **{f"Simple {k}K": Knobs("Simple", buffer_bytes=k << 10) for k in (1024, 8192)},
}
LARGEST_LL = 2 << 20
METHODS_TRIED = ("ring", "recursive", "packing", "pipelined", "allpairs")
TRAINING_RANKS, ONE_HOST = 4, ("bare", "shared", "container")
TIE = 1.05
OURS_IN_RACE = 2
ALL_METHODS, KEPT = 2 << 20, 2  # beyond that size the methods of the best programs there
LARGEST_VM, VM_RANKS = 2 << 20, 2  # whose network is slow


@dataclass(frozen=True)
class Place:
    """A call, and where it runs."""

    regime: str
    ranks: int
    collective: str
    nbytes: int


@dataclass
class Times:
    """A library's time at a place in us: of the rounds that predict, and of those that measure.

    ``breakdown`` says where its ranks' time went, None where that is not seen from outside.
    """

    predicted: float
    measured: float
    name: str
    breakdown: Breakdown | None


def timed(competitor: Competitor, seconds: Counter[str]) -> Competitor:
    """Return the competitor with its time added to that of its library."""

    def run(checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        begin = time.perf_counter()
        try:
            return competitor.run(checked, warmup, timed)
        finally:
            seconds[competitor.owner] += time.perf_counter() - begin

    return Competitor(competitor.owner, competitor.name, run)


def programs(topology: Topology, collective: str, nbytes: int) -> Iterator[NamedProgram]:
    """Yield tuccl's candidates, verified."""
    call, mesh = Collective(collective, topology.ranks), full_mesh(topology)
    methods = [METHODS[name] for name in METHODS_TRIED if collective in METHODS[name].collectives]
    for method, chunks in [(m, n) for m in methods for n in chunk_counts(m, call, mesh, topology)]:
        name = method.name
        try:
            program = lower(make_schedule(Problem(call, mesh, chunks, nbytes, topology), name))
        except Infeasible:
            continue
        if verify(program, "executor", 0).ok:
            for label, knobs in KNOBS.items():
                if knobs.protocol != "LL" or nbytes <= LARGEST_LL:
                    yield NamedProgram(f"{name}/{chunks} {label}", program, knobs)


def chunk_counts(
    method: Method, call: Collective, mesh: Sketch, topology: Topology
) -> Sequence[int]:
    """Return the chunks of each rank's part to try."""
    choose = method.choose_chunk_counts
    return choose(call, mesh, topology, 16)[-2:] if choose else (1,)


def measure(
    regime: str, ranks: int, sizes: Sequence[int], effort: Effort
) -> Iterator[tuple[Place, dict[str, Times]]]:
    """Yield each library's times at the places of a regime."""
    host = keep_gpus(load_profile("v100x4"), range(ranks))
    with ExitStack() as stack:
        cells = stack.enter_context(Cells(regime, ranks))
        ours = stack.enter_context(CellsExecutor(cells, host, find_mpi("openmpi")))
        peers, missing = start_libraries(ours, cells.launch, LIBRARIES, stack)
        for why in missing:
            print(why)
        for collective in COLLECTIVES:
            methods: set[str] = set()
            for nbytes in sizes:
                if regime == "vm" and nbytes > LARGEST_VM:
                    continue
                place, seconds = Place(regime, ranks, collective, nbytes), Counter[str]()
                call = (nbytes, 0, Operands(), 0)
                contenders = [
                    timed(_ours(ours, named, *call), seconds)
                    for named in programs(ours.topology, collective, nbytes)
                    if not methods or named.name.partition(" ")[0] in methods
                ]
                for peer in peers:
                    auto = next(c for c in _theirs(peer, collective, *call) if c.name == "auto")
                    contenders.append(timed(auto, seconds))
                found, notes = prescreen(contenders, lambda: None, 0)
                for note in notes:
                    print(f"{regime}, {ranks} ranks: {note}")
                best = sorted(
                    (f for f in found if f.competitor.owner == "tuccl"), key=lambda f: f.us
                )
                if nbytes >= ALL_METHODS:
                    methods = {f.competitor.name.partition(" ")[0] for f in best[:KEPT]}
                final = [f for f in found if f.competitor.owner != "tuccl"] + best[:OURS_IN_RACE]
                seconds.clear()
                with Samples() as samples:
                    results, notes = race(final, effort, ROUNDS)
                pids = {"tuccl": ours.pids} | {peer.name: peer.pids() for peer in peers}
                breakdowns = {name: samples.of(each, seconds[name]) for name, each in pids.items()}
                if len(times := libraries(results, breakdowns)) > 1 and "tuccl" in times:
                    yield place, times


def libraries(
    results: Sequence[RaceResult], breakdowns: Mapping[str, Breakdown | None]
) -> dict[str, Times]:
    """Return each library's times; tuccl's program is that which the first rounds found faster."""
    found: dict[str, Times] = {}
    for result in results:
        rounds, who = result.rounds_us, result.competitor
        first = median(rounds[::2])
        if who.owner in found and found[who.owner].predicted <= first:
            continue
        rest = median(rounds[1::2] or rounds)
        found[who.owner] = Times(first, rest, who.name, breakdowns[who.owner])
    return found


Found = dict[Place, dict[str, Times]]


def winner(times: dict[str, Times], field: str) -> str:
    """Return the library with the least time."""
    return min(times, key=lambda name: getattr(times[name], field))


def print_winners(found: Found) -> None:
    """Print the fastest library of each place, and all times."""
    rows = []
    for place, times in found.items():
        best = winner(times, "measured")
        each = [f"{times[name].measured:.0f}" if name in times else "-" for name in ALL]
        rows.append([*astuple(place), *each, best, times["tuccl"].name])
    head = ["regime", "ranks", "collective", "bytes", *(f"{n} us" for n in ALL), "fastest"]
    print(columns([*head, "tuccl's program"], rows))


def print_breakdowns(found: Found) -> None:
    """Print where the ranks' time went at each place."""
    rows = []
    for place, times in found.items():
        seen = [times[name].breakdown if name in times else None for name in ALL]
        parts = [str(each) if each else "-" for each in seen]
        cpu = [f"{100 * each.user:.0f}+{100 * each.system:.0f}" if each else "-" for each in seen]
        rows.append([*astuple(place), *parts, *cpu])
    print(f"\nWhere a mean rank's time goes, in %: {' + '.join(PARTS)}; the rest it waits, asleep.")
    print("Own is the library's code, which mostly polls. Then processor time: user + system.")
    head = ["regime", "ranks", "collective", "bytes", *ALL, *(f"{name} CPU" for name in ALL)]
    print(columns(head, rows))


def print_matrix(found: Found) -> None:
    """Print how often the winner of one regime is the fastest in another, and the regret."""
    names = list(dict.fromkeys(place.regime for place in found))
    shares, regrets = [], []
    for of in names:
        share_row: list[object] = [of]
        regret_row: list[object] = [of]
        for where in names:
            hits, ratios = [], []
            for place, times in found.items():
                other = Place(of, place.ranks, place.collective, place.nbytes)
                if place.regime != where or other not in found:
                    continue
                chosen = winner(found[other], "predicted")
                if chosen not in times:
                    continue  # it failed here, as a note says
                best = times[winner(times, "measured")].measured
                ratios.append(times[chosen].measured / best)
                ordered = sorted(t.measured for t in times.values())
                if len(ordered) > 1 and ordered[1] > TIE * ordered[0]:  # else a tie
                    hits.append(ratios[-1] <= 1.0)
            share_row.append(f"{100 * fmean(hits):.0f}% of {len(hits)}" if hits else "-")
            regret_row.append(f"{geometric_mean(ratios):.3f}, {max(ratios):.2f}" if ratios else "-")
        shares.append(share_row)
        regrets.append(regret_row)
    print("\nPlaces where the winner of the row's regime is the fastest in the column's, no ties")
    print(columns(["predicted in", *names], shares))
    print("\nIts time over the fastest's: geometric mean, worst")
    print(columns(["predicted in", *names], regrets))


def print_marks(found: Found) -> None:
    """Print how often tuccl, and the predicted library, are as fast as the best other one."""
    ours, chosen = [], []
    for times in found.values():
        best = min(t.measured for name, t in times.items() if name != "tuccl")
        ours.append(times["tuccl"].measured <= TIE * best)
        chosen.append(times[winner(times, "predicted")].measured <= TIE * best)
    print(
        f"\ntuccl is at least as fast as the best other library (ties of 5 %) in {fmean(ours):.0%} "
        f"of {len(ours)} places (mark 80 %), the predicted library in {fmean(chosen):.0%} (95 %)"
    )


def print_training(regimes: Sequence[str]) -> None:
    """Print steps of a model with 45 MB of gradients, whose layers compute by timers."""
    layers = tuple(Parameter(f"w{n}", 45 * 1024**2 // 4 // 9, 5e3, 1e4) for n in range(9))
    job = Job(
        kind="replay",
        methods=("ddp", "wfbp-ps"),
        backends=("table", "gloo"),
        ranks=TRAINING_RANKS,
        steps=3,
        rounds=2,
        model=Model(name="45 MB", parameters=layers),
    )
    host, rows = keep_gpus(load_profile("v100x4"), range(TRAINING_RANKS)), []
    for regime in regimes:
        if regime == "vm":
            continue  # its ranks see no common file
        with Cells(regime, TRAINING_RANKS) as cells, tempfile.TemporaryDirectory() as place:
            apart = [[rank] for rank in range(TRAINING_RANKS)]
            topology = host if regime in ONE_HOST else split_into_cells(host, apart, 1.0, 20.0)
            options = tuccl.TuneOptions(budget=16)
            table = tuccl.tune(
                topology, "allreduce", "4M:32M:x2", path=Path(place, "t"), options=options
            )
            for each in run_job(job, table.folder, cells):
                what = "tuccl" if each.backend == "table" else "Gloo"
                step_ms = median(each.steps_us) / 1e3
                times = (f"{step_ms:.0f}", f"{each.exposed_us / 1e3:.0f}")
                rows.append([regime, each.method, what, *times])
    print(f"\nA step of {TRAINING_RANKS} ranks, 45 MB of gradients, 135 ms of compute by timers")
    print(columns(["regime", "method", "collectives by", "step ms", "exposed ms"], rows))


def main() -> None:
    """Measure, and print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--regimes", default=",".join(REGIMES))
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--sizes", default="64K,2M,64M")
    parser.add_argument("--seconds", type=float, default=0.4, help="timed runs of a competitor")
    args = parser.parse_args()
    sizes = [parse_size(size) for size in args.sizes.split(",")]
    effort, begin = Effort(seconds=args.seconds), time.monotonic()
    found: Found = {}
    for ranks in map(int, args.ranks.split(",")):
        for regime in args.regimes.split(","):
            if regime == "vm" and ranks > VM_RANKS:
                continue
            found |= measure(regime, ranks, sizes, effort)
            print(f"{time.monotonic() - begin:.0f} s: {regime}, {ranks} ranks", file=sys.stderr)
    print(
        f"{time.monotonic() - begin:.0f} s on {os.cpu_count()} cores; times are medians, measured"
    )
    print_winners(found)
    print_breakdowns(found)
    print_matrix(found)
    print_marks(found)
    print_training(args.regimes.split(","))


if __name__ == "__main__":
    publish(main, "Measured between processes of one machine")
