"""A policy trained on some machines, tried on others: regret, and starts for the default search.

    python benchmarks/policy.py [--write] [--seeds N] [--longest N] [--policy FILE]

Regret is the time of the best of the policy's evaluations, the search's default among them, over
the best known: of every point that any search here timed. "Evaluations" are those that the default
search needs from nothing and from the policy to come within 1 % of where it ends from nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from report import publish

from baseline_searches import BASELINE_SEARCHES
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import SEARCHES, TuneOptions, load_policy, save_policy, train_policy
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.rl.policy import Policy
from tuccl.tuning.rl.search import RlSearch, search_from
from tuccl.tuning.searches.initial_points import initial_points
from tuccl.tuning.searches.search import Search, run_search
from tuccl.units import format_bytes

TRAINED_ON = (
    ("v100x4", 1),
    ("v100x4", 3),
    ("dgx-1v", 1),
    ("dgx-1v", 2),
    ("ndv2", 2),
    ("dgx-2", 1),
    ("dgx-a100", 1),
    ("ndv4", 2),
)
UNSEEN = (("v100x4", 2), ("a100x8-roce", 2), ("ndv5", 1), ("ndv2", 1))
COLLECTIVES = ("allgather", "allreduce")
TRAINED_SIZES = tuple(1 << k for k in range(14, 29, 2))
SIZES = (64 << 10, 4 << 20, 256 << 20)
FEW = 5
BUDGET = 100


@dataclass(frozen=True)
class Row:
    """A call of an unseen machine: regrets in %, evaluations to the same quality."""

    machine: str
    collective: str
    nbytes: int
    best_us: float
    regret: float
    regret_untrained: float
    cold: float
    warm: float


ALL_SEARCHES = SEARCHES | BASELINE_SEARCHES


def main() -> None:
    """Train, try, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=400, help="evaluations of the best known")
    parser.add_argument("--policy", type=Path, help="kept here, and taken from here")
    args = parser.parse_args()
    policy = _policy(args.policy)
    print(f"trained on {', '.join(policy.machines)}: {len(TRAINED_SIZES)} sizes of each")
    print(f"{'machine':16}{'call':>16}{'best us':>10}{'regret':>8}{'untrained':>10}", end="")
    print(f"{'from nothing':>14}{'from policy':>13}")
    rows = []
    for profile, nodes in UNSEEN:
        for collective in COLLECTIVES:
            for call in simulated_calls(_machine(profile, nodes), collective, SIZES):
                rows.append(_row(call, policy, args.seeds, args.longest))
                _print(rows[-1])
    regrets = sorted(row.regret for row in rows)
    untrained = median(row.regret_untrained for row in rows)
    within = sum(regret <= 10.0 for regret in regrets)
    print(
        f"regret with {FEW} evaluations: median {median(regrets):.1f} %, "
        f"worst {regrets[-1]:.1f} %, within 10 % in {within} of {len(rows)}; "
        f"untrained: median {untrained:.1f} %"
    )
    print(
        f"evaluations of {TuneOptions.search} to the same quality: median "
        f"{median(row.cold for row in rows):g} from nothing, "
        f"{median(row.warm for row in rows):g} from the policy, "
        f"{median(row.cold / row.warm for row in rows):.1f} times as fast in the median"
    )


def _machine(profile: str, nodes: int) -> Topology:
    host = load_profile(profile)
    return host if nodes == 1 else join(host, nodes)


def _policy(path: Path | None) -> Policy:
    if path is not None and path.exists():
        return load_policy(path)
    policy = train_policy(
        [_machine(*each) for each in TRAINED_ON],
        COLLECTIVES,
        TRAINED_SIZES,
        progress=lambda done, total, what: print(f"{done}/{total} {what}", file=sys.stderr),
    )
    if path is not None:
        save_policy(policy, path)
    return policy


def _row(call: SimulatedCall, policy: Policy, seeds: int, longest: int) -> Row:
    def agent(given: Policy | None, seed: int) -> float:
        search = RlSearch(call.space, policy=given, state=call.state, seed=seed)
        measurements = run_search(search, call.samples, FEW)
        return measurements.us(measurements.ranked()[0])

    few, untrained = agent(policy, 0), [agent(None, seed) for seed in range(seeds)]
    cold = [_progress(call, None, seed) for seed in range(seeds)]
    warm = [_progress(call, policy, seed) for seed in range(seeds)]
    for name in ("coordinate", TuneOptions.search):
        first = initial_points(call.space, longest // 4)
        search = ALL_SEARCHES[name](call.space, seed=seeds, first=first)
        run_search(search, call.samples, longest)
    best_us = min(call.samples_us.values())
    quality = 1.01 * median(times[-1] for times in cold)
    return Row(
        call.machine,
        call.state.collective,
        call.state.nbytes,
        best_us,
        100 * (few / best_us - 1),
        100 * (median(untrained) / best_us - 1),
        median(_evaluations(times, quality) for times in cold),
        median(_evaluations(times, quality) for times in warm),
    )


def _progress(call: SimulatedCall, policy: Policy | None, seed: int) -> list[float]:
    """The best time in us after each evaluation of the default search."""
    search: Search = search_from(
        SEARCHES[TuneOptions.search],
        call.space,
        call.state,
        policy,
        seed=seed,
        full_effort=1,
        first=initial_points(call.space, BUDGET // 2),
    )
    times: list[float] = []

    def evaluate(point: object, repeats: int) -> Sequence[float]:
        samples = call.samples(point, repeats)  # type: ignore[arg-type]
        if samples:
            times.append(min(samples[0], times[-1] if times else math.inf))
        return samples

    run_search(search, evaluate, BUDGET)
    return times


def _evaluations(times: Sequence[float], quality: float) -> float:
    """Evaluations until ``quality`` us are reached; twice the budget where they never are."""
    return next((i + 1 for i, us in enumerate(times) if us <= quality), 2 * BUDGET)


def _print(row: Row) -> None:
    call = f"{row.collective} {format_bytes(row.nbytes)}"
    print(
        f"{row.machine:16}{call:>16}{row.best_us:10.1f}{row.regret:7.1f}%"
        f"{row.regret_untrained:9.1f}%{row.cold:14g}{row.warm:13g}",
        flush=True,
    )


if __name__ == "__main__":
    publish(main, "Simulated")
