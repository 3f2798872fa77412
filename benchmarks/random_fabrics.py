"""Prints what becomes of random fabrics: verified programs, refusals, and how near the bound.

    .venv/bin/python benchmarks/random_fabrics.py [--count 300] [--first 0] [--links-only]

Seed n stands for one fabric of 2 to 12 GPUs with switches, one-way and lopsided links, and one
collective of five on it. A fabric whose links do not join all ranks must be refused in words. The
share is the algbw that the busiest link of the verified program allows, as a part of the bound;
an allreduce has a bound of its own (cuts both ways, and partitions), not twice the allgather's.
`simulated` is the simulated algbw at 1 GiB over what the machine class allows, by the best of a
grid of knobs (class_allowance.py); `--links-only` leaves it out, for many fabrics.
`--seeds` makes some again. Two processes share the work; a seed that takes over a minute of the
processor is ended and counts as hanging. The goal is none wrong, none hanging, a median of 0.95 of
the bound, and of what the class allows a median of 0.97 and at least 0.85.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import statistics
import time
from collections import Counter
from dataclasses import dataclass

from report import publish

from class_allowance import share_of_allowance
from reference_fabrics import any_fabric, random_fabric
from tuccl.errors import Infeasible, InputError
from tuccl.program import verify
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.packing.packing import packing_chunks
from tuccl.topology import Topology

_NAMES = ("allgather", "reduce-scatter", "allreduce", "broadcast", "reduce")
_MOST_SECONDS = 60
_AS_THEY_COME = 0.2  # part of the fabrics that may be disconnected, as about half of these are


@dataclass(frozen=True)
class Outcome:
    """The outcome of a seed; `share` and `simulated` are 0 where there is no program."""

    seed: int
    collective: str
    what: str
    share: float
    seconds: float  # without simulation
    simulated: float = 0.0


def outcome(seed: int, links_only: bool) -> Outcome:
    """Return what becomes of one seed."""
    rng = random.Random(seed)
    name = rng.choice(_NAMES)
    begun = time.process_time()
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS)
    case = None
    try:
        what, share, case = made(rng, name)
    except TimeoutError:
        what, share = "hangs", 0.0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - begun
    simulated = 0.0 if links_only or case is None else share_of_allowance(*case)
    return Outcome(seed, name, what, share, seconds, simulated)


def _hangs(_number: int, _frame: object) -> None:
    raise TimeoutError


def made(rng: random.Random, name: str) -> tuple[str, float, tuple[Topology, Collective] | None]:
    """Return what was made of a fabric, in words, its share of the bound, and the verified case."""
    try:
        topology = any_fabric(rng) if rng.random() < _AS_THEY_COME else random_fabric(rng)
        collective = Collective(name, topology.ranks, rng.randrange(topology.ranks))
        mesh = full_mesh(topology)
        [chunks] = packing_chunks(collective, mesh, topology)
        program = lower(
            make_schedule(Problem(collective, mesh, chunks, 1 << 30, topology), "packing")
        )
    except (Infeasible, InputError) as why:
        return f"refused: {_kind(str(why))}", 0.0, None
    if not verify(program, "executor", collective.root).ok:
        return "wrong", 0.0, None
    return "verified", fraction_of_bound(program, topology, collective), (topology, collective)


def _kind(message: str) -> str:
    """Return a message without its names and numbers, so that like ones count together."""
    words = (
        "'…'" if "'" in word else "N" if any(map(str.isdigit, word)) else word
        for word in message.split()
    )
    return " ".join(words)[:100]


def report(outcomes: list[Outcome]) -> bool:
    """Print the distribution, the worst cases and the refusals; return whether all went well."""
    for what, times in Counter(outcome.what for outcome in outcomes).most_common():
        first = next(outcome.seed for outcome in outcomes if outcome.what == what)
        print(f"{times:>7} {what} (first seed {first})")
    done = [outcome for outcome in outcomes if outcome.what == "verified"]
    _distribution("share of the bound", [(o.share, o) for o in done])
    if any(o.simulated for o in done):
        _distribution("simulated, of what the class allows", [(o.simulated, o) for o in done])
    slow = sorted(outcomes, key=lambda o: -o.seconds)[:5]
    print("slowest: " + ", ".join(f"{o.seconds:.1f} s {o.collective} seed {o.seed}" for o in slow))
    return not any(o.what in ("wrong", "hangs") for o in outcomes)


def _distribution(title: str, outcomes: list[tuple[float, Outcome]]) -> None:
    print(title)
    for name in (*_NAMES, "all"):
        shares = sorted(share for share, o in outcomes if name in (o.collective, "all"))
        if len(shares) < 2:
            continue
        cuts = statistics.quantiles(shares, n=100, method="inclusive")
        print(
            f"  {name:<15}{len(shares):>6} programs: median {statistics.median(shares):.4f}, a "
            f"tenth below {cuts[9]:.4f}, a hundredth below {cuts[0]:.4f}, least {shares[0]:.4f}"
        )
    worst = sorted(outcomes, key=lambda entry: entry[0])[:10]
    least = ", ".join(f"{share:.4f} {o.collective} seed {o.seed}" for share, o in worst)
    print(f"  lowest: {least}")


def main() -> int:
    """Make the programs and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seeds", metavar="SEED,SEED")
    parser.add_argument("--links-only", action="store_true")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.count)
    chosen = [int(seed) for seed in args.seeds.split(",")] if args.seeds else list(seeds)
    with multiprocessing.get_context("spawn").Pool(2) as processes:
        cases = [(seed, args.links_only) for seed in chosen]
        outcomes = processes.starmap(outcome, cases, chunksize=4)
    return 0 if report(outcomes) else 1


if __name__ == "__main__":
    publish(main, "Simulated")
