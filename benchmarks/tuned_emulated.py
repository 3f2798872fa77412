"""Prints tuned tables against their default and against knobs alone, measured on emulated hosts.

    sudo .venv/bin/python benchmarks/tuned_emulated.py [--budget 16] [--rounds 15]
        [--only lopsided] [--write]

Each host is a network namespace. `tune` makes a table with so many evaluations a call; the same
search with as many has the knobs of the default's program alone (msccl-default, robust). Then the
default, its best knobs and the table's choice are timed in turns. A gain is the median over the
rounds of the default's time over the other's of the same round, with the 10th and 90th percentile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import geometric_mean, median

from emulated_simulation import CLUSTERS
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import EmulatedExecutor, Emulation
from tuccl.runtime import ConfiguredProgram, Effort, find_mpi, time_baseline
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.sketches import candidate_sketches
from tuccl.synth import Collective
from tuccl.tuning import SEARCHES, TunedTable, TuneOptions, aligned_size, tune
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.policy_training import NoStudy
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Space
from tuccl.units import format_bytes

NAMES = ("2x4 200", "4x2 200", "lopsided")  # hosts x ranks, Mb/s; lopsided: two hosts at a fifth
COLLECTIVES = ("allgather", "allreduce")
SIZES = (64 << 10, 1 << 20)
EFFORT = Effort(warmup=1, runs=1, seconds=0.2)


def knobs_alone(
    executor: EmulatedExecutor, collective: Collective, nbytes: int, budget: int
) -> ConfiguredProgram:
    """The default's program with the best knobs that the default search finds."""
    topology = executor.topology
    programs = ProgramCache(topology, collective)
    sketches = candidate_sketches(topology, collective, nbytes)
    whole = programs.space(sketches, nbytes, executor.supported_knobs)
    assert whole is not None
    choice = whole.default.choice
    sketch_of = sketches_by_name(sketches, None)
    channels = programs.channels(sketch_of(choice.sketch), choice, nbytes)
    space = Space(
        {choice: channels},
        whole.default,
        grid=executor.supported_knobs,
        nbytes=nbytes,
        nchunks=lambda each: collective.nchunks(each.chunks_per_rank),
    )
    evaluate = Evaluator(executor, programs, sketch_of, nbytes, NoStudy())
    search = SEARCHES["descent"](space, full_effort=executor.full_effort)
    run_search(search, evaluate, budget)
    best = search.best or space.default
    return ConfiguredProgram(evaluate.program(best).program, best.knobs)


def chosen(table: TunedTable, collective: str, nbytes: int) -> ConfiguredProgram | None:
    """The program that the table runs out of place; None for the default."""
    candidate = table.select(collective, nbytes).candidate
    program = table.program(candidate)
    if program is None or candidate.knobs is None:
        return None
    return ConfiguredProgram(program, candidate.knobs.knobs, name=candidate.name)


def gain(default: Sequence[float], other: Sequence[float]) -> tuple[float, str]:
    """The median gain of the rounds, and it with its spread as text."""
    ratios = sorted(a / b for a, b in zip(default, other, strict=True))
    low, high = (ratios[round(q * (len(ratios) - 1))] for q in (0.1, 0.9))
    return median(ratios), f"{median(ratios):.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    """Print a row for each call, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    rows, of_knobs, of_tables = [], list[float](), list[float]()
    for name in NAMES:
        if args.only not in name:
            continue
        topology, scale = CLUSTERS[name]
        sizes = [aligned_size(size, topology.ranks) for size in SIZES]
        with Emulation(topology, scale) as emulation:

            def executor(_: object, emulation: Emulation = emulation) -> EmulatedExecutor:
                return EmulatedExecutor(emulation, find_mpi(), effort=EFFORT)

            options = TuneOptions(budget=args.budget)
            table = tune(topology, COLLECTIVES, sizes, executor, options)
            for collective in COLLECTIVES:
                for nbytes in sizes:
                    with executor(None) as runs:
                        call = Collective(collective, topology.ranks)
                        default = time_baseline(
                            *(runs, runs.topology, runs.default_baseline, collective, nbytes)
                        )
                        knobs = knobs_alone(runs, call, nbytes, args.budget)
                        best = chosen(table, collective, nbytes)
                        timed = [default, knobs, *([best] if best else [])]
                        timings = paired_timings(runs, timed, nbytes, rounds=args.rounds)
                    samples = [each.samples_us for each in timings]
                    with_knobs, knobs_text = gain(samples[0], samples[1])
                    tuned, tuned_text = gain(samples[0], samples[-1 if best else 0])
                    of_knobs.append(with_knobs)
                    of_tables.append(tuned)
                    row = [name, collective, format_bytes(nbytes), f"{median(samples[0]):.0f}"]
                    what = best.name if best else "the default"
                    rows.append([*row, knobs_text, tuned_text, f"{tuned / with_knobs:.2f}", what])
                    print(*rows[-1], file=sys.stderr, flush=True)
    head = ["cluster", "collective", "size", "default us", "knobs alone", "table"]
    print(f"budget {args.budget} a call, {args.rounds} rounds in turns; gains over the default\n")
    print(columns([*head, "table / knobs", "chosen"], rows))
    print(
        f"\ngeometric means: knobs alone {geometric_mean(of_knobs):.2f}, table "
        f"{geometric_mean(of_tables):.2f}; least of the table {min(of_tables):.2f}"
    )


if __name__ == "__main__":
    publish(main, "Measured, on network namespaces of one machine that others used too")
