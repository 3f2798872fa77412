"""Prints how long `tune` takes for a whole table, and where the time goes.

    .venv/bin/python benchmarks/tune_speed.py [--sizes 1K:1G] [--workers 1,2] [--write]

The machine is two hosts of 8x V100 (NDv2), simulated. Each row is a tune of its own with an empty
study; the last one serves the same table from the study of the first. Seconds by the clock and of
the processor, the latter of the tune's process and its workers. Shares are of the clock's time of
a tune without workers: what is spent in each part, without the parts that it calls. The goal for
2 collectives x 21 sizes, 42 calls of two placements each, is 35 s on two cores, and two workers
at least 1.8 times one, where nobody else uses the cores.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from report import publish

from tuccl.runtime import SimExecutor
from tuccl.topology import join, load_profile
from tuccl.tuning import TuneOptions, tune
from tuccl.units import parse_range

_P = ParamSpec("_P")
_T = TypeVar("_T")
_PARTS = {
    "synthesis": ("tuning.programs.make_schedule", "tuning.programs.msccl_default"),
    "lowering": ("tuning.programs.lower", "tuning.programs.replicate"),
    "proving": ("tuning.programs.max_safe_bytes", "tuning.programs.to_xml"),
    "simulation": (
        "runtime.executors.sim.SimExecutor.time",
        "runtime.executors.sim.SimExecutor.time_against",
        "runtime.executors.sim.SimExecutor.time_all",
        "runtime.executors.sim.SimExecutor.least_us",
    ),
    "sketches": ("tuning.tuner.searched_sketches", "sketches.parameters.SketchSpace.sketch"),
    "proposals": ("tuning.searches.search.Search.ask", "tuning.searches.search.Search.tell"),
    "storage": (
        "tuning.studies.study.Study.store",
        "tuning.studies.study.Study.recall",
        "tuning.studies.study.Studies.study",
    ),
}
# Of the first profile, for allreduce of 64K:16M:x16 before any of it was made faster.
_BEFORE = {"synthesis": 44.0, "lowering": 21.0, "simulation": 17.0}


class Stopwatch:
    """Seconds of each part of a tune, without those of the parts that it calls."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.seconds: Counter[str] = Counter()
        self._running = ["the rest"]
        self._since = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def wrap(self, part: str, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return ``function`` with its time counted as that of ``part``."""

        @functools.wraps(function)
        def timed(*args: _P.args, **named: _P.kwargs) -> _T:
            self._turn()
            self._running.append(part)
            try:
                return function(*args, **named)
            finally:
                self._turn()
                self._running.pop()

        return timed

    def watch(self) -> None:
        """Count the time of every part from now on."""
        for part, names in _PARTS.items():
            for name in names:
                owner_name, _, attribute = f"tuccl.{name}".rpartition(".")
                owner = _owner(owner_name)
                setattr(owner, attribute, self.wrap(part, getattr(owner, attribute)))
        self._since = time.perf_counter()

    def stop(self) -> dict[str, float]:
        """Return the seconds of each part."""
        self._turn()
        return dict(self.seconds)


def _owner(name: str) -> object:
    """Return the module or class called ``name``."""
    with suppress(ModuleNotFoundError):
        return importlib.import_module(name)
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _processor_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def row(
    name: str, collectives: list[str], sizes: list[int], out: Path, options: TuneOptions
) -> None:
    """Print the line of one tune."""
    topology = join(load_profile("ndv2"), 2)
    begun, clock = _processor_s(), time.perf_counter()
    executor = SimExecutor(topology)
    result = tune(topology, collectives, sizes, lambda _: executor, options, path=out).result
    took, clocked = _processor_s() - begun, time.perf_counter() - clock
    print(
        f"{name:<28}{clocked:>9.1f}{took:>9.1f}{result.evaluations:>13}"
        f"{result.evaluations / clocked:>10.0f}{result.entries:>9}",
        flush=True,
    )


def main() -> None:
    """Print a line for each number of workers, and the parts of a tune without workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--collectives", default="allreduce,allgather")
    parser.add_argument("-s", "--sizes", default="1K:1G")
    parser.add_argument("--workers", default="1,2")
    args = parser.parse_args()
    collectives, sizes = args.collectives.split(","), parse_range(args.sizes)
    numbers = [int(number) for number in args.workers.split(",")]
    print(f"{', '.join(collectives)} at {len(sizes)} sizes, {args.sizes}; 2x NDv2, simulated\n")
    print(
        f"{'tune':<28}{'clock s':>9}{'cpu s':>9}{'evaluations':>13}{'a second':>10}{'entries':>9}"
    )
    parts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in sorted(numbers, reverse=True):
            watch = Stopwatch()
            if number == 1:
                watch.watch()
            out = Path(folder) / f"workers{number}"
            name = f"{number} worker{'s' * (number > 1)}"
            row(name, collectives, sizes, out, TuneOptions(workers=number))
            if number == 1:
                parts = watch.stop()
        again = TuneOptions(workers=number, resume=True)
        row("again, from its study", collectives, sizes, out, again)
    total = sum(parts.values())
    print(f"\n{'part':<28}{'seconds':>9}{'share':>9}{'share before, of 3 sizes':>27}")
    for part, seconds in sorted(parts.items(), key=lambda each: -each[1]):
        before = f"{_BEFORE[part]:.0f} %" if part in _BEFORE else ""
        print(f"{part:<28}{seconds:>9.1f}{seconds / total:>8.1%} {before:>26}")


if __name__ == "__main__":
    publish(main, "Times of the calls are simulated; seconds are measured")
