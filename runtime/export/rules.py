"""The programs that an unmodified runtime gets: the table cut to what a dialect can say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from tuccl.errors import InputError
from tuccl.program import Program, default_buffer_bytes, max_safe_bytes
from tuccl.runtime.table.entry import Candidate, Entry, KnobValues
from tuccl.runtime.table.lookup import WITH_TUNER
from tuccl.runtime.table.programs import placements
from tuccl.runtime.table.store import Table
from tuccl.runtime.table.supported_knobs import (
    BUFFER_VARIABLES,
    FIXED_THREADS,
    changes_threads,
    exclusion_reason,
    process_buffers,
)
from tuccl.synth.lowering.limits import fork_end, fork_scratch_bytes
from tuccl.units import format_bytes

FORK_FILES = 4  # algorithms of one communicator (docs/reference/msccl.md)
_FORK_TOP = 1 << 40


@dataclass(frozen=True)
class Rule:
    """One file to be: a program for calls of the sizes [min_bytes, max_bytes).

    ``gain`` sums the logarithm of default over candidate time over the entries it serves.
    """

    collective: str
    min_bytes: int
    max_bytes: int | None
    in_place: bool
    out_of_place: bool
    candidate: Candidate
    knobs: KnobValues
    program: Program
    gain: float

    @property
    def text(self) -> str:
        """The calls it serves, for messages."""
        top = "any size" if self.max_bytes is None else format_bytes(self.max_bytes)
        where = {(True, True): "", (True, False): " in place", (False, True): " out of place"}
        placement = where[self.in_place, self.out_of_place]
        return f"{self.collective}{placement} [{format_bytes(self.min_bytes)}, {top})"


@dataclass(frozen=True)
class RuleSet:
    """Rules of which at most one fits any call, buffers by protocol in bytes, and remarks."""

    rules: tuple[Rule, ...]
    buffers: dict[str, int]
    notes: tuple[str, ...]


def export_rules(stored: Table, dialect: str) -> RuleSet:
    """Return what ``dialect`` can be given of the table, with a note on each thing it cannot.

    Every program is proven in the dialect, with the buffer that the runtime will have. What
    fails gives way to the next candidate; the runtime's own default is a hole.
    """
    notes: list[str] = []
    entries = list(_exportable(stored, notes))
    notes.extend(_algorithm_notes(entries, dialect))
    if dialect not in WITH_TUNER:
        entries = [entry.without_algorithms() for entry in entries]
    proofs = _Proofs(stored, dialect)
    first = [_proven(entry, proofs, None) for entry in entries]
    buffers = _agreed_buffers(_kept(_rules(stored, first), dialect, []), dialect, notes)
    rules = _rules(stored, [_proven(entry, proofs, buffers) for entry in entries])
    rules = _kept(rules, dialect, notes)
    if not rules and _programs(entries) and stored.lookup.dialect != dialect:
        notes.append(
            f"no program of this table, tuned for {stored.lookup.dialect}, runs in {dialect}: "
            f"tune with --dialect {dialect}"
        )
    notes.extend(proofs.notes)
    notes.extend(_thread_notes(rules, dialect))
    return RuleSet(tuple(sorted(rules, key=_order)), buffers, tuple(notes))


def _algorithm_notes(entries: list[Entry], dialect: str) -> Iterator[str]:
    chosen = {e.collective for e in entries if e.candidates[0].nccl is not None}
    if chosen:
        sets = "only tuccl's tuner plugin sets (NCCL 2.21 on); `tuccl run` loads it"
        if dialect not in WITH_TUNER:
            sets = f"nothing sets in {dialect}: the next best runs there"
        names = ", ".join(sorted(chosen))
        yield f"{names}: at some sizes NCCL's own algorithm with other knobs is best, which {sets}"


def _kept(rules: list[Rule], dialect: str, notes: list[str]) -> list[Rule]:
    """The rules that become files; in the fork, which knows one placement, only the best."""
    rules = _joined(rules)
    return _best_of_fork(rules, notes) if dialect == "fork" else _any_placement(rules)


def _programs(entries: list[Entry]) -> bool:
    """Return whether the table prefers a program to the default anywhere."""
    return any(not entry.candidates[0].is_default for entry in entries)


def _order(rule: Rule) -> tuple[str, int, bool]:
    return rule.collective, rule.min_bytes, rule.in_place


def _exportable(stored: Table, notes: list[str]) -> Iterator[Entry]:
    """The entries whose key the unmodified selectors can distinguish."""
    left_out: dict[str, set[str]] = defaultdict(set)
    for entry in stored.lookup.entries:
        if (why := exclusion_reason(entry)) is not None:
            left_out[why].add(entry.collective)
        else:
            yield entry
    for why, collectives in sorted(left_out.items()):
        notes.append(f"{', '.join(sorted(collectives))} left out: {why}")


class _Proofs:
    """Verdicts of the verifier on the table's programs in one dialect, each computed once."""

    def __init__(self, stored: Table, dialect: str) -> None:
        self._stored = stored
        self._dialect = dialect
        self._known: dict[tuple[str, int], int | None] = {}
        self.notes: list[str] = []

    def max_safe_bytes(self, candidate: Candidate, buffer_bytes: int) -> int | None:
        """Largest safe size in bytes, 0 for every size, None where the dialect refuses it."""
        path = candidate.program or ""
        if (path, buffer_bytes) not in self._known:
            self._known[path, buffer_bytes] = self._proven(path, buffer_bytes)
        return self._known[path, buffer_bytes]

    def _proven(self, path: str, buffer_bytes: int) -> int | None:
        """The least of the safe sizes of the files that the program becomes in the dialect."""
        singles = placements(self._stored.programs[path], self._dialect)
        try:
            safe = [max_safe_bytes(single, self._dialect, 0, buffer_bytes) for single in singles]
        except InputError as error:
            if (note := f"left out: not {self._dialect}: {error}") not in self.notes:
                self.notes.append(note)
            return None
        return min((limit for limit in safe if limit), default=0)


def _proven(entry: Entry, proofs: _Proofs, buffers: dict[str, int] | None) -> Entry:
    """The entry without the candidates that the dialect refuses, each with its safe sizes.

    ``buffers`` holds those that the runtime will have; None gives each candidate its own.
    """
    candidates = []
    for candidate in entry.candidates:
        if candidate.knobs is None:
            candidates.append(candidate)
            continue
        own = candidate.knobs.buffer_bytes
        buffer_bytes = buffers[candidate.knobs.protocol] if buffers else own
        safe = proofs.max_safe_bytes(candidate, buffer_bytes)
        if safe is not None:
            limits = [limit for limit in (safe, candidate.max_safe_bytes) if limit]
            least = min(limits, default=0)
            candidates.append(msgspec.structs.replace(candidate, max_safe_bytes=least))
    return msgspec.structs.replace(entry, candidates=tuple(candidates))


def _rules(stored: Table, entries: list[Entry]) -> list[Rule]:
    rules = []
    for entry in entries:
        for in_place in (False, True):
            if not entry.takes(in_place):
                continue
            for low, high, candidate in entry.choices(in_place):
                program, knobs = stored.program(candidate), candidate.knobs
                if program is not None and knobs is not None and (high is None or high > 1):
                    gain = _gain(entry, candidate)
                    place = (low, high, in_place, not in_place)
                    rules.append(Rule(entry.collective, *place, candidate, knobs, program, gain))
    return rules


def _gain(entry: Entry, candidate: Candidate) -> float:
    mine, default = candidate.stats, entry.default.stats
    if mine is None or default is None or not (mine.median_us and default.median_us):
        return 0.0
    return math.log(default.median_us / mine.median_us)


def _agreed_buffers(rules: list[Rule], dialect: str, notes: list[str]) -> dict[str, int]:
    """The buffer of each protocol: its programs' own if they agree, else NCCL's."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for rule in rules:
        wanted[rule.knobs.protocol].add(rule.knobs.buffer_bytes)
    buffers = process_buffers(rule.knobs for rule in rules)
    for protocol, sizes in sorted(wanted.items()):
        default = default_buffer_bytes(protocol)
        if len(sizes) > 1:
            tuned = ", ".join(format_bytes(size) for size in sorted(sizes))
            notes.append(
                f"{protocol} buffers are one for the whole process: {format_bytes(default)} is "
                f"kept, the programs were tuned with {tuned}"
            )
        if buffers[protocol] != default_buffer_bytes(protocol, dialect):
            notes.append(
                f"set {BUFFER_VARIABLES[protocol]}={buffers[protocol]}, as `tuccl run` does: the "
                f"programs are proven with it; it holds for the runtime's own {protocol} too"
            )
    return buffers


def _joined(rules: list[Rule]) -> list[Rule]:
    """Fewer rules that say the same: neighbouring sizes of one program and placement."""
    merged: list[Rule] = []
    for rule in sorted(rules, key=lambda r: (r.collective, r.in_place, r.min_bytes)):
        last = merged[-1] if merged else None
        if last is not None and _same(last, rule) and last.max_bytes == rule.min_bytes:
            merged[-1] = replace(last, max_bytes=rule.max_bytes, gain=last.gain + rule.gain)
        else:
            merged.append(rule)
    return merged


def _any_placement(rules: list[Rule]) -> list[Rule]:
    """Fewer rules that say the same: both placements of one program."""
    both: dict[tuple[object, ...], Rule] = {}
    for rule in rules:
        key = (rule.collective, rule.min_bytes, rule.max_bytes, rule.candidate.sha256, rule.knobs)
        twin = both.get(key)
        gain = rule.gain if twin is None else rule.gain + twin.gain
        both[key] = replace(rule, out_of_place=twin is not None or rule.out_of_place, gain=gain)
    return list(both.values())


def _same(a: Rule, b: Rule) -> bool:
    """Return whether two rules would write the same program with the same knobs and placement."""

    def written(rule: Rule) -> tuple[object, ...]:
        return rule.collective, rule.in_place, rule.candidate.sha256, rule.knobs

    return written(a) == written(b)


def _best_of_fork(rules: list[Rule], notes: list[str]) -> list[Rule]:
    """The four rules of greatest gain, with an end where the fork would reserve scratch."""
    served = [rule for rule in rules if _has_scratch(rule)]
    for rule in rules:
        if rule not in served:
            notes.append(f"{rule.text} left out: fork would reserve over 16 GiB of scratch for it")
    ranked = sorted(served, key=lambda r: (-r.gain, *_order(r)))
    for rule in ranked[FORK_FILES:]:
        notes.append(f"{rule.text} left out: fork loads {FORK_FILES} files, these gain the least")
    ended = [_with_end(rule) for rule in ranked[:FORK_FILES]]
    notes.extend(_scratch_notes(ended))
    return ended


def _has_scratch(rule: Rule) -> bool:
    most = rule.program.fork_scratch_limit
    return most is None or rule.min_bytes < most


def _with_end(rule: Rule) -> Rule:
    """Give the rule the end to which the fork can reserve scratch: it has no word for no limit."""
    if rule.max_bytes is None:
        end = fork_end(rule.program, rule.min_bytes) or _FORK_TOP
        return replace(rule, max_bytes=max(end, rule.min_bytes + 1))
    most = rule.program.fork_scratch_limit
    return rule if most is None else replace(rule, max_bytes=min(rule.max_bytes, most))


def _scratch_notes(rules: list[Rule]) -> Iterator[str]:
    for rule in rules:
        if scratch := fork_scratch_bytes(rule.program.replace(max_bytes=rule.max_bytes)):
            yield f"{rule.text}: fork reserves {scratch >> 20} MiB of scratch when it starts"


def _thread_notes(rules: list[Rule], dialect: str) -> Iterator[str]:
    lost = [r.text for r in rules if changes_threads(r.knobs, dialect)]
    if dialect == "fork":
        if lost:
            calls = ", ".join(lost)
            yield f"threads not honoured by fork, whose chunks they do not divide: {calls}"
        return
    if lost:
        fixed = ", ".join(f"{count} for {p}" for p, count in FIXED_THREADS[dialect].items())
        yield f"threads not honoured, {dialect} has {fixed}: {', '.join(lost)}"
