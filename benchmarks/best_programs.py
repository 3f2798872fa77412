"""Prints whether the best program found is at least as good as every known one, simulated.

    .venv/bin/python benchmarks/best_programs.py [--only TEXT] [--budget 60] [--times 16]
        [--data ../shared/data/algorithms] [--all]

On every profile, and on two hosts of those with network adapters, the search of `tuccl tune` (its
budget in evaluations a size) stands beside

- templates: ring, rings, recursive, all-pairs and hierarchical ones, on the best sketch and on the full
  mesh, with each protocol and 1 to 16 channels, and both forms of msccl-default;
- programs made by TACCL, and programs shipped with MSCCL for machines of as many ranks, at the
  sizes they claim, where the data is there; each with its own protocol.

`ratio` is the time of the best of these over that of the best program found: below 1 another one is
faster. All times are simulated, of one call without the host's share.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean

from tuccl._native import Knobs, Program, parse_xml
from tuccl.errors import TucclError
from tuccl.runtime import SimExecutor, time_baseline
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import METHODS, Collective, lower, synthesize
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import even_size, tune
from tuccl.tuning.programs import ll128_is_safe

COLLECTIVES = ("allgather", "reduce-scatter", "allreduce", "alltoall")
ALONE = ("v100x4", "dgx-1v", "ndv2", "dgx-2", "dgx-a100", "ndv4", "dgx-h100", "ndv5", "a100x8-roce")
PAIRED = ("ndv2", "dgx-2", "ndv4", "ndv5", "a100x8-roce")
TEMPLATES = ("ring", "rings", "recursive", "allpairs", "hierarchical2", "hierarchical3")
CHANNELS = (1, 2, 4, 8, 16)
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


@dataclass(frozen=True)
class Row:
    """One size: simulated us of the best found and of the best other program."""

    case: Case
    nbytes: int
    found: str
    found_us: float
    other: str
    other_us: float

    @property
    def ratio(self) -> float:
        """Return how many times slower the other one is."""
        return self.other_us / self.found_us


def cases(only: str) -> Iterator[Case]:
    """Make the cases whose name has ``only`` in it."""
    machines = [(name, 1) for name in ALONE] + [(name, 2) for name in PAIRED]
    for (profile, hosts), collective in product(machines, COLLECTIVES):
        case = Case(profile, hosts, collective)
        if only in str(case):
            yield case


def templates(t: Topology, call: Collective) -> Iterator[tuple[str, Program]]:
    """Make every template's programs that can be made."""
    protocols = ("Simple", "LL", "LL128") if ll128_is_safe(t, ()) else ("Simple", "LL")
    sketches = (candidate_sketches(t, call.name, 1 << 20)[0], full_mesh(t))
    for sketch, method in product(sketches, TEMPLATES):
        if call.name not in METHODS[method].collectives:
            continue
        for channels, protocol in product(CHANNELS, protocols):
            try:
                schedule = synthesize(call, sketch, method, 1, 1 << 20, t)
                program = lower(schedule, protocol=protocol, instances=channels)
            except TucclError:
                break
            yield f"{method} on {sketch.name}, {protocol}, {channels}ch", program


def shipped(folder: Path, call: Collective) -> Iterator[tuple[str, Program]]:
    """Read the programs that others made for as many ranks."""
    for path in sorted(folder.rglob("*.xml")):
        program = parse_xml(path.read_bytes(), str(path))
        if program.collective == call.name and program.ngpus == call.ranks:
            yield f"{path.parent.name}/{path.name}", program


def claims(program: Program, nbytes: int) -> bool:
    """Return whether the program's own size limits admit ``nbytes``."""
    return (program.min_bytes or 0) <= nbytes and (
        not program.max_bytes or nbytes <= program.max_bytes
    )


def time_us(executor: SimExecutor, program: Program, nbytes: int) -> float:
    """Return the GPUs' simulated time of ``program`` with its own protocol, or infinity."""
    knobs = Knobs(program.protocol, 1, program.nthreads or 512)
    try:
        return executor.time(program, knobs, nbytes).us
    except TucclError:
        return float("inf")


def others(
    executor: SimExecutor, t: Topology, call: Collective, folder: Path, sizes: list[int]
) -> dict[int, tuple[float, str]]:
    """Return the best other program's time and name by size."""
    best: dict[int, tuple[float, str]] = {}
    made = [(name, p, False) for name, p in templates(t, call)]
    made += [(name, p, True) for name, p in shipped(folder, call)]
    for (name, program, limited), nbytes in product(made, sizes):
        if not limited or claims(program, nbytes):
            one = (time_us(executor, program, nbytes), name)
            best[nbytes] = min(best.get(nbytes, one), one)
    for kind, nbytes in product(("msccl-default", "msccl-default-robust"), sizes):
        try:
            timing = time_baseline(executor, t, kind, call.name, nbytes).timing
        except TucclError:
            continue
        best[nbytes] = min(best[nbytes], (timing.us, kind))
    return best


def rows_of(case: Case, budget: int, times: int, folder: Path) -> list[Row]:
    """Tune a case, and time all else there is."""
    t = case.topology()
    call = Collective(case.collective, t.ranks)
    # A graph launch: the host's share, equal for all, would hide what programs differ by.
    executor = SimExecutor(t, launch="graph")
    sizes = []
    nbytes = SMALLEST
    while nbytes <= LARGEST:
        sizes.append(even_size(nbytes, t.ranks))
        nbytes *= times
    sizes = sorted(set(sizes))
    with tempfile.TemporaryDirectory() as out:
        result = tune(executor, t, [call.name], sizes, budget=budget, out=Path(out) / "table")
    best = others(executor, t, call, folder, sizes)
    return [
        Row(
            case,
            tuned.size,
            tuned.best or "the default",
            tuned.best_us if tuned.best_us is not None else tuned.default_us,
            *reversed(best[tuned.size]),
        )
        for tuned in result.tuned
    ]


def main() -> None:
    """Print a line a size that is lost, and a line a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--times", type=int, default=16, help="between sizes")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/algorithms"))
    parser.add_argument("--all", action="store_true", help="print every size")
    args = parser.parse_args()
    ratios: list[float] = []
    with ProcessPoolExecutor(2) as pool:
        todo = list(cases(args.only))
        jobs = [pool.submit(rows_of, c, args.budget, args.times, args.data) for c in todo]
        for case, job in zip(todo, jobs, strict=True):
            rows = job.result()
            mean = geometric_mean([row.ratio for row in rows])
            print(
                f"{case!s:<32}{len(rows):>4} sizes, least ratio "
                f"{min(row.ratio for row in rows):.3f}, mean {mean:.3f}",
                flush=True,
            )
            for row in rows:
                if args.all or row.ratio < 1 - 1e-9:
                    print(
                        f"  {row.nbytes:>11} B  {row.ratio:.3f}  found {row.found_us:.2f} us "
                        f"({row.found})  other {row.other_us:.2f} us ({row.other})"
                    )
            ratios += [row.ratio for row in rows]
    if not ratios:
        raise SystemExit(f"--only {args.only!r}: no case has that in its name")
    lost = sum(ratio < 1 - 1e-9 for ratio in ratios)
    print(
        f"simulated: at least as good at {len(ratios) - lost} of {len(ratios)} sizes, "
        f"least ratio {min(ratios):.3f}, mean {geometric_mean(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
