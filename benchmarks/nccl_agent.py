"""Compares the agent on NCCL's own configurations with a sweep of all of them, simulated.

    .venv/bin/python benchmarks/nccl_agent.py [--share 0.1] [--noise 0.03] [--seeds 20] [--write]

For each version of NCCL a policy is trained on simulated machines. On other machines, for each
collective and size, searches may look at a share of the configurations that a sweep times: the
agent with the policy, the agent and the default search without; NCCL's own choice, which is timed
anyway, is known to all. Each sample is the simulated time
times exp(N(0, noise)), one sample a configuration, as in `tune --dialect nccl`; the three best are
timed again five times, and the best of those is the choice. Regret is its simulated time without
noise over the best of all configurations, less one; the sweep's own choice is made alike.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from statistics import median

from report import publish

from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import SEARCHES, train_policy
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.rl.search import search_from
from tuccl.tuning.searches.search import Request, run_search
from tuccl.tuning.searches.space import Point

VERSIONS = ("2.19", "2.30")
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter")
SIZES = tuple(1 << n for n in range(12, 31, 2))
TRAINED_ON = (
    ("v100x4", 1),
    ("v100x4", 4),
    ("ndv2", 1),
    ("dgx-a100", 1),
    ("dgx-a100", 4),
    ("a100x8-roce", 2),
    ("dgx-h100", 1),
    ("dgx-h100", 2),
    ("dgx-h100", 4),
    ("dgx-2", 2),
    ("dgx-2", 4),
    ("ndv2", 4),
    ("p4de", 2),
    ("dgx-b200", 2),
    ("rtx4090x4", 1),
    ("rtx4090x4", 2),
)
UNSEEN = (("v100x4", 2), ("dgx-1v", 2), ("ndv4", 2), ("dgx-h200", 2), ("dgx-2", 1), ("l40sx8", 1))
AGAIN = 5
CANDIDATES = 3


def machine(profile: str, hosts: int) -> Topology:
    """Return so many hosts of a profile."""
    host = load_profile(profile)
    return host if hosts == 1 else join(host, hosts)


def samples(call: SimulatedCall, sigma: float, rng: random.Random) -> Callable[..., list[float]]:
    """Return what times points of ``call`` with noise."""

    def timed(point: Point, repeats: int = 1) -> list[float]:
        us = call.us(point)
        if math.isinf(us):
            return []
        return [us * math.exp(rng.gauss(0.0, sigma)) for _ in range(repeats)]

    return timed


def choice(ranked: Sequence[Point], timed: Callable[..., list[float]]) -> Point:
    """Return the best of the three first, timed again."""
    return min(ranked[:CANDIDATES], key=lambda point: median(timed(point, AGAIN)))


def main() -> None:
    """Print the regret of each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    print(f"share {args.share:g} of the sweep's timings, noise {args.noise:g}; regret in %")
    for version in VERSIONS:
        machines = [machine(*each) for each in TRAINED_ON]
        policy = train_policy(machines, COLLECTIVES, SIZES, dialect="nccl", nccl_version=version)
        print(f"\nNCCL {version}; {policy.trained_on}")
        kinds = {
            "sweep": None,
            "agent, policy": ("rl", policy),
            "agent alone": ("rl", None),
            "descent": ("descent", None),
            "NCCL's own": None,
        }
        regrets: dict[str, list[float]] = {name: [] for name in kinds}
        for profile, hosts in UNSEEN:
            own: dict[str, list[float]] = {name: [] for name in kinds}
            for collective in COLLECTIVES:
                calls = simulated_calls(machine(profile, hosts), collective, SIZES, "nccl", version)
                for call in calls:
                    legal = [p for p in call.space.grid() if not math.isinf(call.us(p))]
                    best_us = min(call.us(point) for point in legal)
                    budget = max(round(args.share * len(legal)), 1)
                    own["NCCL's own"].append(call.default_us / best_us - 1)
                    for seed in range(args.seeds):
                        rng = random.Random(seed)
                        timed = samples(call, args.noise, rng)
                        once = {point: timed(point)[0] for point in legal}
                        ranked = sorted(legal, key=lambda p: once[p])
                        own["sweep"].append(call.us(choice(ranked, timed)) / best_us - 1)
                        for name, how in kinds.items():
                            if how is None:
                                continue
                            search = search_from(
                                SEARCHES[how[0]],
                                call.space,
                                call.state,
                                how[1],
                                seed=seed,
                                full_effort=1,
                                first=(),
                            )
                            search.tell(Request(call.space.default, 1), timed(call.space.default))
                            ranked = run_search(search, timed, budget).ranked()
                            own[name].append(call.us(choice(ranked, timed)) / best_us - 1)
            print(f"{hosts}x {profile:10s} {len(legal):3d} configurations, {budget} timings each")
            for name, row in own.items():
                print(f"    {name:14s} {line(row)}")
                regrets[name] += row
        print("all")
        for name, row in regrets.items():
            print(f"    {name:14s} {line(row)}")


def line(regrets: Sequence[float]) -> str:
    """Return the distribution of regrets in percent."""
    ranked = sorted(100 * r for r in regrets)
    at = [ranked[min(math.ceil(q * len(ranked)) - 1, len(ranked) - 1)] for q in (0.5, 0.9, 1.0)]
    within = sum(r <= 2 for r in ranked) / len(ranked)
    return (
        f"median {at[0]:6.2f}  90 % {at[1]:7.2f}  worst {at[2]:8.2f}  mean "
        f"{sum(ranked) / len(ranked):6.2f}  within 2 %: {within:.0%}"
    )


if __name__ == "__main__":
    publish(main, "Simulated")
