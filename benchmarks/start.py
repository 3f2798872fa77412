"""Prints how long each verb takes to start: `tuccl VERB --help`, by the clock and the processor.

    .venv/bin/python benchmarks/start.py [--runs 9] [--write]

The verbs take turns, so that a moment when the machine is busy falls on all of them; each row has
the median of the runs. The first row is Python alone, and the limit of the others is 0.4 s.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from statistics import median

from report import publish

from tuccl.cli.output import columns
from tuccl.cli.parser import VERBS


def seconds_of(words: list[str]) -> tuple[float, float]:
    """Return the seconds that a command takes by the clock, and of the processor."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    commands = {"(python)": ["-c", "pass"]}
    commands |= {verb: ["-m", "tuccl.cli", verb, "--help"] for verb in VERBS}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, words in commands.items():
            times[name].append(seconds_of(words))
    rows = [
        [name, median(c for c, _ in of), min(c for c, _ in of), median(p for _, p in of)]
        for name, of in times.items()
    ]
    print(f"median of {runs} runs, seconds")
    print(columns(["verb", "clock s", "fastest", "cpu s"], rows))


if __name__ == "__main__":
    publish(main, "Measured")
