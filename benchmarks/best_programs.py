"""Prints whether the best program found is at least as good as every known one, simulated.

    .venv/bin/python benchmarks/best_programs.py [--only "2x ndv4"] [--save FOLDER] [--budget 100]
        [--times 16] [--equal] [--data ../shared/data/algorithms] [--all]

On every profile, and on two hosts of those with network adapters, the search of `tuccl tune
--any-order` (its budget in evaluations a size; `--equal`: without --any-order) stands next to

- templates: ring, rings, recursive, all-pairs and hierarchical ones, on the best sketch and on the
  full mesh, and both forms of msccl-default;
- programs made by TACCL, and programs shipped with MSCCL, for as many ranks, whatever sizes they
  claim, where the data is there.

These get the same knobs: each protocol, up to 16 channels (instances), and the best three of a size
also other threads and buffers. Where the search tries `--budget` points of that, they get all.

Both placements count, each against the programs that run so. `ratio` is the time of the best of
these over that of the best program found: below 0.999 another one is faster. NCCL's own choice is
no program here; `nccl` is its time. All times are simulated, of one call without the host's share.
With `--save` a case that is done is not run again.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean

import msgspec
from report import publish

from tuccl.errors import TucclError
from tuccl.program import Knobs, Program, default_buffer_bytes, max_threads, parse_xml
from tuccl.runtime import NCCL_VERSION, SimExecutor, time_baseline
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import (
    METHODS,
    Collective,
    Problem,
    lower,
    make_schedule,
    replicate,
    searched_methods,
)
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions, aligned_size
from tuccl.tuning.final_round import FinalRound
from tuccl.tuning.programs import ProgramCache, ll128_is_safe
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.studies.task_queue import Task
from tuccl.tuning.tuner import Tuner

COLLECTIVES = ("allgather", "reduce-scatter", "allreduce", "alltoall")
ALONE = ("v100x4", "dgx-1v", "ndv2", "dgx-2", "dgx-a100", "ndv4", "dgx-h100", "ndv5", "a100x8-roce")
PAIRED = ("ndv2", "dgx-2", "ndv4", "ndv5", "a100x8-roce")
TEMPLATES = ("ring", "rings", "recursive", "allpairs", "hierarchical2", "hierarchical3")
CHANNELS = (1, 2, 4, 8, 16)
AS_GOOD = 0.999  # as tuning counts: stock knobs are taken where they cost no more than that
VARIED = 3
BUFFERS_OF_DEFAULT = (0.25, 0.5, 1, 2)
SMALLEST, LARGEST = 1 << 10, 1 << 30


@dataclass(frozen=True)
class Case:
    """A collective on hosts of a profile."""

    profile: str
    hosts: int
    collective: str

    def __str__(self) -> str:
        """Return the case in a word or two."""
        return f"{self.hosts}x {self.profile} {self.collective}"

    def topology(self) -> Topology:
        """Return the machine."""
        node = load_profile(self.profile)
        return join(node, self.hosts) if self.hosts > 1 else node


class Row(msgspec.Struct, frozen=True):
    """One size and placement: simulated us of our best, the best other, and NCCL's choice."""

    nbytes: int
    placement: str
    found: str
    found_us: float
    other: str
    other_us: float
    nccl_us: float

    @property
    def ratio(self) -> float:
        """Return how many times slower the other one is."""
        return self.other_us / self.found_us

    @property
    def method(self) -> str:
        """Return the method of our best, which its description begins with."""
        return self.found.partition(",")[0]


def cases(only: str) -> Iterator[Case]:
    """Make the cases whose name has ``only`` in it."""
    machines = [(name, 1) for name in ALONE] + [(name, 2) for name in PAIRED]
    for (profile, hosts), collective in product(machines, COLLECTIVES):
        case = Case(profile, hosts, collective)
        if only in str(case):
            yield case


def templates(topology: Topology, call: Collective) -> Iterator[tuple[str, Program]]:
    """Make every template's program that can be made."""
    sketches = (candidate_sketches(topology, call.name, 1 << 20)[0], full_mesh(topology))
    for sketch, method in product(sketches, TEMPLATES):
        if call.name in METHODS[method].collectives:
            try:
                schedule = make_schedule(Problem(call, sketch, 1, 1 << 20, topology), method)
                yield f"{method} on {sketch.name}", lower(schedule)
            except TucclError:
                continue


def shipped(folder: Path, call: Collective) -> Iterator[tuple[str, Program]]:
    """Read the programs that others made for as many ranks, made free of the sizes they claim."""
    for path in sorted(folder.rglob("*.xml")):
        program = parse_xml(path.read_bytes(), str(path))
        if program.collective == call.name and program.ngpus == call.ranks:
            yield f"{path.parent.name}/{path.name}", program.replace(min_bytes=0, max_bytes=1)


class Others:
    """The best other programs of a case, by size and placement."""

    def __init__(
        self, executor: SimExecutor, topology: Topology, nccl: Mapping[int, float]
    ) -> None:
        """Prepare to time programs where they are not hopeless next to ``nccl``'s us by size."""
        self.executor = executor
        self.topology = topology
        self.nccl = nccl
        self.timed: dict[tuple[int, bool], list[tuple[float, str, Program, Knobs]]] = {}

    def add(self, name: str, program: Program) -> None:
        """Time ``program`` at all sizes, with every safe protocol and number of channels."""
        pairs = {
            (gpu.id, block.send_peer)
            for gpu in program.gpus
            for block in gpu.threadblocks
            if block.send_peer >= 0
        }
        safe = ll128_is_safe(self.topology, pairs)
        for channels, protocol in product(CHANNELS, ("Simple", "LL", "LL128")):
            if protocol == "LL128" and not safe:
                continue
            if channels * program.nchannels > 32:
                break
            made = replicate(program, channels).replace(protocol=protocol)
            for nbytes in self.nccl:
                called = f"{name}, {protocol}, {channels}ch"
                self.time(called, made, Knobs(protocol, 1, max_threads(protocol)), nbytes)

    def time(self, name: str, program: Program, knobs: Knobs, nbytes: int) -> None:
        """Keep the simulated time of ``program`` for the placements it runs in."""
        try:
            us = self.executor.time(program, knobs, nbytes).us
        except TucclError:
            return
        for in_place, runs in ((False, program.out_of_place), (True, program.in_place)):
            if runs:
                self.timed.setdefault((nbytes, in_place), []).append((us, name, program, knobs))

    def vary(self) -> None:
        """Time the best three of each size with other threads and buffers too."""
        for (nbytes, _), timed in list(self.timed.items()):
            for _, name, program, knobs in sorted(timed, key=lambda each: each[0])[:VARIED]:
                usual = default_buffer_bytes(knobs.protocol)
                for threads, buffer_bytes in product((256, 384, knobs.threads), BUFFERS_OF_DEFAULT):
                    tried = Knobs(knobs.protocol, 1, threads, int(usual * buffer_bytes))
                    if tried.illegal() is None:
                        self.time(f"{name}, {threads}t", program, tried, nbytes)

    def best(self, nbytes: int, in_place: bool) -> tuple[float, str]:
        """Return the least time and whose it is; infinity where none runs."""
        timed = self.timed.get((nbytes, in_place), [])
        return min(((us, name) for us, name, _, _ in timed), default=(math.inf, "none"))


def rows_of(case: Case, args: argparse.Namespace) -> list[Row]:
    """Tune a case, and time all else there is."""
    saved = args.save / f"{str(case).replace(' ', '_')}.json" if args.save else None
    if saved and saved.exists():
        return msgspec.json.decode(saved.read_bytes(), type=list[Row])
    topology = case.topology()
    call = Collective(case.collective, topology.ranks)
    # A graph launch: the host's share, equal for all, would hide what programs differ by.
    executor = SimExecutor(topology, launch="graph")
    finals = searched(executor, topology, call, args)
    known = Others(executor, topology, {final.nbytes: final.default.timing.us for final in finals})
    for name, program in (*templates(topology, call), *shipped(args.data, call)):
        known.add(name, program)
    known.vary()
    for kind, final in product(("msccl-default", "msccl-default-robust"), finals):
        with suppress(TucclError):
            usual = time_baseline(executor, topology, kind, call.name, final.nbytes)
            known.time(kind, usual.program, usual.knobs, final.nbytes)
    rows = [row for final in finals for row in compared(final, known)]
    if saved:
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_bytes(msgspec.json.encode(rows))
    return rows


def searched(
    executor: SimExecutor, topology: Topology, call: Collective, args: argparse.Namespace
) -> list[FinalRound]:
    """Search every size as `tuccl tune` does."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(
            executor=executor,
            topology=topology,
            programs=ProgramCache(topology, call, any_order=not args.equal),
            studies=Studies(Path(folder) / "table"),
            options=TuneOptions(nccl_version=nccl_release(NCCL_VERSION)),
        )
        powers = range(int(math.log(LARGEST / SMALLEST, args.times) + 1e-9) + 1)
        sizes = sorted({aligned_size(SMALLEST * args.times**k, topology.ranks) for k in powers})
        return [tuner.search(Task(call.name, nbytes, args.budget)).final for nbytes in sizes]


def compared(final: FinalRound, known: Others) -> Iterator[Row]:
    """Yield what came of a size in each placement that another program runs in."""
    for in_place, placement in ((False, "out"), (True, "in")):
        other_us, other = known.best(final.nbytes, in_place)
        times = [
            (us, f"{f.choice.method}, {f.knobs.protocol}, {f.knobs.channels}ch")
            for f in final.candidates
            if f.choice is not None
            and (us := f.timing.time_us_ip if in_place else f.timing.time_us) is not None
        ]
        if times and other_us < math.inf:
            us, name = min(times)
            nccl_us = final.default.timing.us
            yield Row(final.nbytes, placement, name, us, other, other_us, nccl_us)


def main() -> None:
    """Print a line a size that is lost, and a line a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases that have this in their name")
    parser.add_argument("--save", type=Path, help="folder of cases that are done")
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--times", type=int, default=16, help="between sizes")
    parser.add_argument("--equal", action="store_true", help="equal results on all ranks only")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/algorithms"))
    parser.add_argument("--all", action="store_true", help="print every size")
    args = parser.parse_args()
    ratios: list[float] = []
    methods: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        todo = list(cases(args.only))
        for case, job in [(case, pool.submit(rows_of, case, args)) for case in todo]:
            ratios += printed(case, job.result(), whole=args.all)
            methods.update(row.method for row in job.result())
    if not ratios:
        raise SystemExit(f"--only {args.only!r}: no case has that in its name")
    print("rows that a method's program wins:")
    for method in sorted({*searched_methods(unordered=True), *methods}, key=lambda m: -methods[m]):
        print(f"  {method:<28}{methods[method]:>4}")
    lost = sum(ratio < AS_GOOD for ratio in ratios)
    print(
        f"simulated: at least as good at {len(ratios) - lost} of {len(ratios)} sizes and "
        f"placements, least ratio {min(ratios):.3f}, mean {geometric_mean(ratios):.3f}"
    )


def printed(case: Case, rows: Sequence[Row], *, whole: bool) -> list[float]:
    """Print a case, and of its rows the lost ones or all; return the ratios."""
    ratios = [row.ratio for row in rows]
    if not rows:
        print(f"{case!s:<32} no program to compare with", flush=True)
        return []
    least, mean = min(ratios), geometric_mean(ratios)
    won = ", ".join(f"{m} {n}" for m, n in Counter(row.method for row in rows).most_common())
    print(
        f"{case!s:<32}{len(rows):>4} rows, least ratio {least:.3f}, mean {mean:.3f}; by {won}",
        flush=True,
    )
    for row in rows:
        if whole or row.ratio < AS_GOOD:
            print(
                f"  {row.nbytes:>11} B {row.placement:<3}  {row.ratio:.3f}  "
                f"found {row.found_us:.2f} us ({row.found})  "
                f"other {row.other_us:.2f} us ({row.other})  nccl {row.nccl_us:.2f} us",
                flush=True,
            )
    return ratios


if __name__ == "__main__":
    publish(main, "Simulated")
