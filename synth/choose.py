"""The search for the fastest program: methods on sketches, then knobs of the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from tuccl.errors import Infeasible
from tuccl.program import Knobs
from tuccl.sketches import Sketch
from tuccl.synth.bounds.link_load import busiest_link_us
from tuccl.synth.candidates import Candidates, SynthesizedProgram, Target
from tuccl.synth.methods import EXACT_METHODS, METHODS, find_method, make_schedule
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.solver import Budget

# Programs, each the fastest of its method, whose knobs and form are varied.
_VARIED_PROGRAMS = 4
# Transfers above which a schedule is not lowered in its other form too.
_MOST_REFORMED = 4000
# Transfers and steps that are lowered, proved and simulated in a second on a common processor: what
# limits count, so that an equal seed gives an equal program whatever else the machine does. The
# clock ends a search only where the machine is slower than that by the factor.
_WORK_PER_SECOND = 50_000
_SLOWEST_MACHINE = 3.0
# Transfers from which a schedule is not lowered if its busiest link alone takes longer than the
# fastest program.
_MANY_TRANSFERS = 10_000
# The part of a limit after which no other method is tried; the rest is for the fastest programs.
_METHODS_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The programs of a search.

    Attributes:
        programs: The fastest in simulation first; at least one.
        ended: Why the search ended: ``complete``, ``limit`` (the work of the time limit is done:
            the same again on any machine), ``clock`` or ``interrupt``.
        untried: Pairs of a sketch and a method that were left out.
    """

    programs: tuple[SynthesizedProgram, ...]
    ended: str
    untried: int

    @property
    def best(self) -> SynthesizedProgram:
        """Return the fastest program."""
        return self.programs[0]


def synthesize_best(
    target: Target,
    candidates: Candidates,
    options: Options = DEFAULT_OPTIONS,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> SearchResult:
    """Return every program that could be made, the fastest in simulation first.

    Args:
        target: The call that programs are made for. They run out of place where they can.
        candidates: What is tried.
        options: Seed, starts and steps of the methods.
        time_limit_s: Ends the search after as much work as a common machine does in that time; a
            solver gets an equal part of it for each of its programs. An interrupt ends the search
            likewise once there is a program.
        progress: Called with (done, total, name of the candidate) before each.

    Raises:
        Infeasible: no program could be made; says why.
    """
    search = _Search(target, candidates, options, time_limit_s, progress)
    return search.run()


@dataclass
class _Search:
    """A search at work; `work_s` is its work so far, in seconds of a common machine."""

    target: Target
    candidates: Candidates
    options: Options
    limit_s: float | None
    progress: Callable[[int, int, str], None]
    programs: list[SynthesizedProgram] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    work_s: float = 0.0
    final_work_s: float = float("inf")
    ended: str = "complete"
    started: float = field(default_factory=time.monotonic)

    def run(self) -> SearchResult:
        pairs = self.candidates.ordered(self.target)
        untried = len(pairs)
        try:
            for number, (sketch, method) in enumerate(pairs):
                if self.over():
                    break
                tell = partial(self.progress, number, len(pairs))
                self.try_method(sketch, method, untried, tell)
                untried -= 1
            if self.ended != "interrupt":
                self.vary_best()
        except KeyboardInterrupt:
            if not self.programs:
                raise
            self.ended = "interrupt"
        if not self.programs:
            raise Infeasible(self.refusal())
        return SearchResult(tuple(sorted(self.programs, key=lambda m: m.rank)), self.ended, untried)

    def over(self) -> bool:
        """Return whether no more methods are tried; a search goes on until it has a program."""
        if self.limit_s is not None and self.programs and self.ended == "complete":
            if self.work_s > _METHODS_SHARE * self.limit_s:
                self.ended = "limit"
            elif time.monotonic() - self.started > _SLOWEST_MACHINE * self.limit_s:
                self.ended = "clock"
        return self.ended != "complete"

    def try_method(
        self, sketch: Sketch, method: str, pairs_left: int, tell: Callable[[str], None]
    ) -> None:
        """Make the programs of a method on a sketch."""
        target, what = self.target, f"{method} on {sketch.name}"
        tell(what)
        counts = self.candidates.counts(target, sketch, method)
        for number, chunks in enumerate(counts):
            left_s = (self.limit_s or 20.0) - (time.monotonic() - self.started)
            budget = Budget(
                seconds=left_s / (pairs_left * (len(counts) - number)),
                report=lambda line: tell(f"{what}: {line}"),
            )
            # Beside others a method takes the same little time everywhere, by its own measure.
            single = len(self.candidates.methods) == 1 or method in EXACT_METHODS
            options = replace(self.options, budget=budget) if single else self.options
            problem = Problem(target.collective, sketch, chunks, target.nbytes, target.topology)
            try:
                begun = time.monotonic()
                schedule = make_schedule(problem, method, options)
                seconds = time.monotonic() - begun
                self.work_s += find_method(method).effort_s
                self.check_promise(schedule, sketch)
                self.lower_first(schedule, sketch, seconds)
            except Infeasible as why:
                self.reasons.append(f"{what}: {why}")
            if budget.interrupted:
                self.ended = "interrupt"
                return

    def check_promise(self, schedule: Schedule, sketch: Sketch) -> None:
        """Refuse a large schedule that no knobs make the fastest.

        Raises:
            Infeasible: its busiest link takes longer than the fastest program so far.
        """
        if _size(schedule) < _MANY_TRANSFERS or not self.programs:
            return
        fastest_us = min(program.time_us for program in self.programs)
        least_us = busiest_link_us(schedule, sketch, self.target.topology, self.target.nbytes)
        if least_us > fastest_us:
            raise Infeasible(
                f"left out: its busiest link takes {least_us:.0f} us, the fastest program so far "
                f"{fastest_us:.0f}"
            )

    def lower_first(self, schedule: Schedule, sketch: Sketch, seconds: float) -> None:
        """Lower `schedule` by the knobs that suit the size, with fewer channels if need be.

        Raises:
            Infeasible: it fits with none.
        """
        first = self.candidates.first_knobs(self.target, schedule)
        for knobs in first:
            try:
                self.lower(schedule, sketch.name, knobs, seconds)
                return
            except Infeasible:
                if knobs is first[-1]:
                    raise

    def lower(
        self, schedule: Schedule, sketch: str, knobs: Knobs, seconds: float = 0.0
    ) -> SynthesizedProgram:
        """Return the program of `schedule`, which counts among those made.

        Raises:
            Infeasible: it does not fit, or the knobs are not allowed for it.
        """
        for program in self.programs:
            # Sketches that differ in links which no method uses give equal schedules.
            if program.knobs == knobs and program.schedule == schedule:
                self.programs.append(replace(program, sketch=sketch, seconds=seconds))
                return self.programs[-1]
        self.work_s += len(schedule.transfers) / _WORK_PER_SECOND
        if not self.candidates.allows(schedule, knobs):
            raise Infeasible(
                f"{knobs.protocol} does not keep data whole on links that it uses, such as PCIe; "
                "use Simple or LL"
            )
        program = self.target.program(schedule, sketch, knobs, seconds)
        self.work_s += program.program.steps / _WORK_PER_SECOND
        self.programs.append(program)
        return program

    def vary_best(self) -> None:
        """Try all knobs, and the other form, of the fastest program of each of some methods."""
        if self.limit_s is not None:
            self.final_work_s = self.work_s + (1 - _METHODS_SHARE) * self.limit_s
        by_method: dict[str, SynthesizedProgram] = {}
        for program in sorted(self.programs, key=lambda m: m.rank):
            by_method.setdefault(program.method, program)
        for program in list(by_method.values())[:_VARIED_PROGRAMS]:
            fastest = program
            others = self.other_protocols(program)
            for protocol in dict.fromkeys((program.knobs.protocol, *others)):
                fastest = min(
                    fastest, self.climb(program, protocol) or fastest, key=lambda m: m.rank
                )
            hints = fastest.schedule.hints
            if _size(fastest.schedule) > _MOST_REFORMED:
                continue
            other = replace(hints, split_send_recv=not hints.split_send_recv)
            if not hints.sends_first:
                self.attempt(replace(fastest.schedule, hints=other), fastest.sketch, fastest.knobs)

    def other_protocols(self, program: SynthesizedProgram) -> list[str]:
        """Return the protocols of all knobs; none for a large program where links are what counts.

        Protocols with flags in their lines send more bytes, in more messages than can be simulated
        in a moment.
        """
        large = _size(program.schedule) >= _MANY_TRANSFERS
        if large and self.target.favours_bandwidth(self.candidates.sketches[0]):
            return []
        return [knobs.protocol for knobs in self.candidates.knobs]

    def climb(self, start: SynthesizedProgram, protocol: str) -> SynthesizedProgram | None:
        """Return the fastest program of a schedule by a protocol: channels doubled, then halved."""
        some = [knobs for knobs in self.candidates.knobs if knobs.protocol == protocol]
        some.sort(key=lambda knobs: knobs.channels)
        first = max(
            (n for n, k in enumerate(some) if k.channels <= start.knobs.channels), default=0
        )
        fastest = start if some[first] == start.knobs else None
        fastest = fastest or self.attempt(start.schedule, start.sketch, some[first])
        for direction in (some[first + 1 :], some[:first][::-1]):
            for knobs in direction:
                other = self.attempt(start.schedule, start.sketch, knobs)
                if other is None or (fastest is not None and other.time_us >= fastest.time_us):
                    break
                fastest = other
        return fastest

    def attempt(self, schedule: Schedule, sketch: str, knobs: Knobs) -> SynthesizedProgram | None:
        """Return a program, None where there is none or the limit is reached."""
        if self.work_s > self.final_work_s:
            return None
        try:
            return self.lower(schedule, sketch, knobs)
        except Infeasible:
            return None

    def refusal(self) -> str:
        """Return why no program could be made: a reason for each sketch of a method by itself."""
        reasons = list(dict.fromkeys(self.reasons))
        if not reasons:
            name, ranks = self.target.collective.name, self.target.collective.ranks
            names = [
                n
                for n, m in METHODS.items()
                if name in m.collectives and not m.suits(self.target.collective)
            ]
            hint = f"; these do, if named: {', '.join(names)}" if names else ""
            return f"no method that searches try serves {name} over {ranks} ranks{hint}"
        if len(self.candidates.methods) > 1 or len(reasons) == 1:
            return reasons[0]
        last_of_sketch = {reason.split(":")[0]: reason for reason in reasons}
        sketches: dict[str, list[str]] = {}
        for where, reason in last_of_sketch.items():
            sketches.setdefault(reason.partition(": ")[2], []).append(where)
        return "; ".join(f"{', '.join(where)}: {why}" for why, where in sketches.items())


def _size(schedule: Schedule) -> int:
    """Return the number of transfers of all ranks."""
    return len(schedule.transfers) * schedule.repeats
