"""Executors for these tests: a synthetic surface, and the simulator under another name."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tuccl.program import Knobs, Program
from tuccl.runtime import (
    MSCCL_LOOP,
    Executor,
    SimExecutor,
    StepLoop,
    Timing,
)
from tuccl.runtime.executors.knob_grid import CHANNELS, PROTOCOLS, THREADS, KnobGrid
from tuccl.synth import ScheduleChoice
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import study_folder
from tuccl.tuning.searches.space import Point, Space

DEFAULT_KNOBS = ("Simple", 1, 512, 4 << 20)


def small_space(nbytes: int = 1 << 30) -> Space:
    """Three methods, two sketches, three chunkings; one method has holes."""
    channels: dict[ScheduleChoice, dict[str, tuple[int, ...]]] = {}
    for sketch in ("pruned", "full-mesh"):
        for method in ("ring", "allpairs", "hierarchical2"):
            for chunks in (1, 2, 4):
                if method == "allpairs" and (sketch == "pruned" or chunks == 2):
                    continue
                most = 16 if method == "ring" else 8
                legal = tuple(c for c in CHANNELS if c <= most)
                protocols = PROTOCOLS if sketch == "pruned" else PROTOCOLS[:2]
                channels[ScheduleChoice(sketch, method, chunks)] = {p: legal for p in protocols}
    default = Point(ScheduleChoice("full-mesh", "ring", 1), *DEFAULT_KNOBS)
    return Space(channels, default, nbytes=nbytes)


def tiny_space() -> Space:
    """One choice, one channel count: some hundred points."""
    choice, grid = ScheduleChoice("full-mesh", "ring", 1), KnobGrid(threads=THREADS[::-2][::-1])
    default = Point(choice, *DEFAULT_KNOBS)
    return Space({choice: {"Simple": (1,)}}, default, grid=grid, nbytes=1 << 30)


class Surface:
    """Times that are smooth in the ordinals, differ by category, and carry noise if asked to."""

    def __init__(self, space: Space, seed: int = 0, noise: float = 0.0) -> None:
        rng = random.Random(seed)
        self.space = space
        self.noise = noise
        self.calls = 0
        self._rng = random.Random(seed + 1)
        self._best = {d.name: rng.randrange(d.size) for d in space.dimensions}
        self._steepness = {d.name: rng.uniform(0.3, 1.5) for d in space.dimensions}
        self._category = {
            d.name: [rng.uniform(0.0, 1.0) for _ in range(d.size)]
            for d in space.dimensions
            if not d.ordinal
        }

    def us(self, point: Point) -> float:
        """The true time in us."""
        indices = self.space.indices(point)
        cost = 0.0
        for d in self.space.dimensions:
            i = indices[d.name]
            if d.ordinal:
                away = (i - self._best[d.name]) / max(d.size - 1, 1)
                cost += self._steepness[d.name] * away * away
            else:
                cost += self._category[d.name][i]
        return 10.0 * math.exp(cost)

    def __call__(self, point: Point, repeats: int) -> Sequence[float]:
        self.calls += repeats
        return [
            self.us(point) * math.exp(abs(self._rng.gauss(0.0, self.noise))) for _ in range(repeats)
        ]

    def optimum(self) -> float:
        return min(self.us(p) for p in self.space.grid())


class Stand(Executor):
    """The simulator under another name: counts its calls, adds noise, breaks where told to."""

    def __init__(self, topology: Topology, name: str = "sim", noise: float = 0.0) -> None:
        self.inner = SimExecutor(topology)
        self.name = name
        self.ranks = topology.ranks
        self.simulated = self.deterministic = name == "sim"
        self.full_effort = {"sim": 1, "mpi": 9}.get(name, 27)
        if name == "mpi":
            self.default_baseline = "msccl-default-robust"
        self.calls = 0
        self.slow_down = 1.0
        self.wrong_methods: tuple[str, ...] = ()
        self.break_after: int | None = None
        self._noise = noise
        self._rng = random.Random(11)

    @property
    def label(self) -> str:
        return f"{'simulated' if self.name == 'sim' else 'measured'} in a test"

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        self.calls += 1
        if self.break_after is not None and self.calls > self.break_after:
            raise KeyboardInterrupt
        timing = self.inner.time(program, knobs, nbytes, root=root, loop=loop)
        if program.name.startswith("nccl"):
            return self._noisy(timing, 1.0, repeats, None)
        wrong = int(any(method in program.name for method in self.wrong_methods))
        return self._noisy(timing, self.slow_down, repeats, wrong or None)

    def _noisy(self, timing: Timing, factor: float, repeats: int, wrong: int | None) -> Timing:
        def sample(us: float) -> float:
            return us * factor * math.exp(abs(self._rng.gauss(0.0, self._noise)))

        out = None if timing.time_us is None else sample(timing.time_us)
        within = None if timing.time_us_ip is None else sample(timing.time_us_ip)
        samples = tuple(sample(timing.us) for _ in range(repeats))
        return Timing(out, within, samples, self.name, wrong)


def evaluations(out: Path) -> list[str]:
    """The evaluations in the study's journal, in the order in which they were stored."""
    journal = study_folder(out) / "journal.log"
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    logs = [json.loads(line) for line in lines]
    return [json.dumps(log["user_attrs"]) for log in logs if log.get("params")]


_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], seconds: float = 60.0) -> _T:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def processes_of(session: int, parent: int | None = None) -> list[int]:
    """The processes of a session that live; with ``parent``, its children."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z" and parent in (None, int(fields[1])):
            pids.append(int(stat.parent.name))
    return pids


@pytest.fixture(scope="session")
def topology() -> Topology:
    """Four V100 with NVLink and two NICs: small, and every method has something to do."""
    return load_profile("v100x4")


@pytest.fixture(scope="session")
def cluster() -> Topology:
    """Two hosts of them."""
    return join(load_profile("v100x4"), 2)
