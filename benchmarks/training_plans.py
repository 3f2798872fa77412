"""Bucket schedules against brute force: how often the published greedy is optimal.

    .venv/bin/python benchmarks/training_plans.py [--cases 10000]

Random models of up to ten tensors under random start-ups and rates. `exact` is the O(L^2) one, for
any cost; `greedy` is MG-WFBP's. Brute force tries each cut of the tensors into groups.
"""

from __future__ import annotations

import argparse
import itertools
import random

from report import publish

from tuccl.training.buckets import groups_end_us, merged_groups, merged_groups_exact
from tuccl.training.costs import linear

MOST = 10


def main() -> int | None:
    """Print how often each schedule is optimal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    args = parser.parse_args()
    rng = random.Random(0)
    exact_optimal, losses = 0, []
    for _ in range(args.cases):
        count = rng.randint(1, MOST)
        sizes = [rng.choice((8, 100, 4096, 50_000)) for _ in range(count)]
        backward = [rng.uniform(0, 100) for _ in range(count)]
        ready = [sum(backward[place:]) for place in range(count)]
        alpha_us = rng.uniform(0, 80)
        cost = linear(alpha_us, rng.uniform(0, 2e-3))
        least = min(
            groups_end_us(sizes, ready, cut(count, cuts), cost)
            for cuts in itertools.product((False, True), repeat=count - 1)
        )
        exact = groups_end_us(sizes, ready, merged_groups_exact(sizes, ready, cost), cost)
        greedy = groups_end_us(sizes, ready, merged_groups(sizes, ready, cost, alpha_us), cost)
        exact_optimal += exact <= least * (1 + 1e-12)
        losses.append(greedy / least - 1)
    print(f"{args.cases} cases of up to {MOST} tensors")
    print(f"exact schedule optimal: {exact_optimal} ({exact_optimal / args.cases:.1%})")
    optimal = sum(loss <= 1e-12 for loss in losses)
    mean = sum(losses) / len(losses)
    print(
        f"published greedy optimal: {optimal} ({optimal / args.cases:.1%}), mean loss {mean:.2%}, "
        f"worst {max(losses):.1%}"
    )
    return 0 if exact_optimal == args.cases else 1


def cut(count: int, cuts: tuple[bool, ...]) -> list[tuple[int, int]]:
    """Return the groups, from the last tensors to the first."""
    edges = [0, *(place + 1 for place, is_cut in enumerate(cuts) if is_cut), count]
    return list(reversed(list(itertools.pairwise(edges))))


if __name__ == "__main__":
    publish(main, "Computed; nothing is timed")
