"""Local search: a schedule changed a little at a time, for as long as its program gets faster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tuccl._native import Knobs, MachineClass, Network, Program, simulate
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch
from tuccl.synth.improve_moves import MOVES
from tuccl.synth.lowering.lower import claims_size, lower
from tuccl.synth.model.certificate import fault
from tuccl.synth.model.schedule import Schedule

__all__ = ["Improved", "Improvement", "improve"]

_BETTER = 1 - 1e-6  # rounding is no gain
_SAME = 1 + 1e-9
_MOST_BARREN = 40  # proposals in a row that change nothing right


@dataclass(frozen=True)
class Improvement:
    """What a schedule is improved for, and how hard.

    Attributes:
        wires: The machine's links.
        machine: Its class.
        knobs: Protocol, instances and threads of the program.
        nbytes: The size to be fast at.
        dialect: The dialect whose limits hold.
        tries: Programs to lower and time.
        seed: Equal seeds give equal results.
        time_limit_s: Stop after so long all the same; then the clock decides what is found.
        progress: Called with (tries so far, tries, simulated time in us).
    """

    wires: Network
    machine: MachineClass
    knobs: Knobs
    nbytes: int
    dialect: str = "executor"
    tries: int = 200
    seed: int = 0
    time_limit_s: float | None = None
    progress: Callable[[int, int, float], None] = lambda done, total, us: None

    def program(self, schedule: Schedule) -> Program:
        """Return the program of `schedule` by these knobs; raises Infeasible where it has none."""
        return lower(
            schedule,
            protocol=self.knobs.protocol,
            instances=self.knobs.channels,
            dialect=self.dialect,
        )

    def time_us(self, program: Program) -> float:
        """Return the GPUs' simulated time in us, the size rounded up to whole chunks."""
        if self.machine.sm_count and program.threadblocks > self.machine.sm_count:
            return float("inf")
        if not claims_size(program, self.nbytes, self.dialect):
            return float("inf")
        whole = -(-self.nbytes // program.nchunks) * program.nchunks
        return simulate(program, self.knobs, self.wires, self.machine, whole).gpu_us


@dataclass(frozen=True)
class Improved:
    """A schedule, its program, and what the search gained.

    Attributes:
        schedule: The best found.
        program: Its program, verified.
        time_us: Simulated.
        before_us: Of the schedule that it started from, simulated.
        tried: Programs lowered and timed.
        gains: How often each kind of move made it faster.
    """

    schedule: Schedule
    program: Program
    time_us: float
    before_us: float
    tried: int
    gains: dict[str, int]


def improve(schedule: Schedule, sketch: Sketch, wanted: Improvement) -> Improved:
    """Return the best schedule found near `schedule`, on the links of `sketch`.

    Raises:
        Infeasible: `schedule` itself has no program.
        InputError: `tries` is negative.

    Notes:
        A climb that takes each change which does not make the simulated time longer: changes that
        do nothing open the way to those that do. A kind of move is drawn the more often, the more
        it has gained. What runs in place or out of place before still does.
    """
    if wanted.tries < 0:
        raise InputError(f"{wanted.tries} tries: expected 0 or more")
    return _Climb(schedule, sketch, wanted).run()


class _Climb:
    def __init__(self, schedule: Schedule, sketch: Sketch, wanted: Improvement) -> None:
        self.sketch = sketch
        self.wanted = wanted
        self.rng = Random(wanted.seed)
        # What one change leaves no longer repeats round the circle of ranks.
        self.schedule = replace(schedule, hints=replace(schedule.hints, rotation=0))
        self.program = wanted.program(schedule)
        self.time_us = self.before_us = wanted.time_us(self.program)
        self.gains: Counter[str] = Counter()
        self.drawn: Counter[str] = Counter()
        self.tried = 0

    def run(self) -> Improved:
        started = time.monotonic()
        limit = self.wanted.time_limit_s
        barren = 0
        while self.tried < self.wanted.tries and barren < _MOST_BARREN * len(MOVES):
            if limit is not None and time.monotonic() - started > limit:
                break
            name = self.draw()
            barren = 0 if self.step(name) else barren + 1
        return Improved(
            self.schedule,
            self.program,
            self.time_us,
            self.before_us,
            self.tried,
            dict(self.gains),
        )

    def draw(self) -> str:
        """Return a kind of move, those that gain more often than others."""
        names = list(MOVES)
        weights = [(1 + 4 * self.gains[name]) / (4 + self.drawn[name]) for name in names]
        name = self.rng.choices(names, weights)[0]
        self.drawn[name] += 1
        return name

    def step(self, name: str) -> bool:
        """Try a move; return whether it gave another right schedule."""
        other = MOVES[name](self.schedule, self.sketch, self.rng)
        if other is None or other == self.schedule or not self.as_right(other):
            return False
        self.tried += 1
        self.wanted.progress(self.tried, self.wanted.tries, self.time_us)
        try:
            program = self.wanted.program(other)
        except Infeasible:
            return True
        kept = program.in_place >= self.program.in_place
        kept &= program.out_of_place >= self.program.out_of_place
        time_us = self.wanted.time_us(program) if kept else float("inf")
        if time_us <= self.time_us * _SAME:
            if time_us < self.time_us * _BETTER:
                self.gains[name] += 1
            self.schedule, self.program, self.time_us = other, program, time_us
        return True

    def as_right(self, other: Schedule) -> bool:
        """Return whether `other` is right wherever the program now claims to be."""
        modes = [
            mode
            for mode, claimed in (
                (False, self.program.out_of_place),
                (True, self.program.in_place),
            )
            if claimed
        ]
        return all(fault(other, in_place=mode) is None for mode in modes)
