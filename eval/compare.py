"""The tuned table against the defaults, size by size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tuccl.errors import Infeasible, InputError
from tuccl.eval.columns import BandwidthRow, bandwidth_row
from tuccl.eval.comparison import Comparison, ComparisonRow, comparison_row
from tuccl.eval.peers import Peer
from tuccl.eval.peers.report import NamedProgram, PeerComparison
from tuccl.runtime import (
    BASELINES,
    NCCL_VERSION,
    BaselineTiming,
    Candidate,
    Executor,
    LookupTable,
    StoredTable,
    Timing,
    TimingCandidate,
    baselines_on,
    open_table,
    paired_timings,
    select,
    time_baseline,
)
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.synth import Bound, Collective, bound, time_bound_us
from tuccl.tuning import tuned_sizes
from tuccl.units import format_bytes

__all__ = ["compare"]

Progress = Callable[[int, int, str], None]
_ROUNDS = 9  # where times have noise
_FEWEST_ROUNDS = 5
_CALL_S = 20.0  # of one size, beyond the fewest rounds


def compare(
    table_dir: Path,
    executor: Executor,
    baselines: Sequence[str] = BASELINES,
    sizes: Sequence[int] | None = None,
    nccl_version: str | None = None,
    progress: Progress = lambda done, total, what: None,
    peers: Sequence[Peer] = (),
) -> Comparison:
    """Return the table in ``table_dir`` against ``baselines``, timed anew on ``executor``.

    Without ``sizes`` each collective is compared at the sizes it was tuned at. Where the table
    picks the runtime's own default, the tuned time is that of ``nccl``, or of msccl-default where
    NCCL cannot run. Without ``nccl_version`` that is the NCCL the table was tuned against.
    ``progress(done, total, what)`` is called before each size. ``peers`` run in turns with the
    table's choice and the baselines, once all sizes have been compared.

    Raises:
        InputError: the table, a baseline or the executor's machine is not what it should be.
    """
    if unknown := [b for b in baselines if b not in BASELINES]:
        known = ", ".join(BASELINES)
        raise InputError(f"baseline {unknown[0][:30]!r}: expected one of {known}")
    able = baselines_on(executor)
    if unable := [b for b in baselines if b not in able]:
        raise InputError(
            f"baseline {unable[0]!r}: NCCL runs on GPUs only, not on {executor.name}; expected "
            f"one of {', '.join(able)}"
        )
    stored = open_table(table_dir)
    if stored.table.dialect == "nccl":
        raise InputError(
            f"{table_dir}: holds choices of NCCL's own, which only NCCL itself can time; "
            "use --on nccl-tests, or name a table of programs"
        )
    if executor.ranks != stored.topology.ranks:
        raise InputError(
            f"{table_dir}: made for {stored.topology.ranks} ranks, the executor has "
            f"{executor.ranks}; expected the same machine"
        )
    table = stored.table
    version = "" if executor.runs_nccl else nccl_release(nccl_version or _tuned_against(table))
    comparer = _Comparer(
        stored, executor, tuple(baselines), version, PeerComparison(executor, peers)
    )
    calls = [
        (Collective(collective, executor.ranks, root or 0), nbytes)
        for collective, root in dict.fromkeys((e.collective, e.root) for e in table.entries)
        for nbytes in (sizes if sizes is not None else tuned_sizes(table, collective, root))
    ]
    for done, (call, nbytes) in enumerate(calls):
        progress(done, len(calls), f"{call.name} {format_bytes(nbytes)}")
        comparer.add(call, nbytes)
    return comparer.comparison(progress)


def _tuned_against(table: LookupTable) -> str:
    name, _, version = table.baseline.partition(" ")
    return version if name == "nccl" and version else NCCL_VERSION


def _default_kind(table: LookupTable, executor: Executor) -> str:
    """Return the baseline that the table's default candidates are on ``executor``."""
    name = table.baseline.partition(" ")[0]
    return name if name in baselines_on(executor) else executor.default_baseline


def _provenance(table: LookupTable, executor: Executor) -> tuple[str, ...]:
    """Say so if the table was tuned on something else than what now times it."""
    if not table.tuned_on or table.tuned_on == executor.label:
        return ()
    return (f"tuned on other ground ({table.tuned_on}); all times here are new",)


class _Comparer:
    def __init__(
        self,
        stored: StoredTable,
        executor: Executor,
        baselines: Sequence[str],
        version: str,
        beside: PeerComparison,
    ) -> None:
        self._stored = stored
        self._beside = beside
        self._executor = executor
        self._baselines = tuple(baselines)
        self._version = version
        self._default = _default_kind(stored.table, executor)
        self._topology = executor.topology or stored.topology
        self._bounds: dict[Collective, Bound] = {}
        self._rows: list[ComparisonRow] = []
        self._tuned: list[BandwidthRow] = []
        self._bound_us: list[float] = []
        self._notes = [*_provenance(stored.table, executor)]

    def comparison(self, progress: Progress) -> Comparison:
        peer_rows, left_out = self._beside.rows(progress)
        return Comparison(
            table=str(self._stored.folder),
            topology=self._stored.topology.name,
            ranks=self._executor.ranks,
            label=self._executor.label,
            on=self._executor.name,
            baselines=self._baselines,
            rows=tuple(self._rows),
            tuned=tuple(self._tuned),
            bound_us=tuple(self._bound_us),
            notes=tuple(dict.fromkeys([*self._notes, *left_out])),
            regressions=sum(row.regression for row in self._rows),
            nccl_version=self._version,
            peers={peer.name: peer.version for peer in self._beside.peers},
            peer_rows=peer_rows,
        )

    def add(self, call: Collective, nbytes: int) -> None:
        """Time one size of one collective: tuned, and every baseline."""
        defaults = {kind: self._baseline(kind, call, nbytes) for kind in self._needed}
        runtime = defaults[self._default]
        if runtime is None:
            return
        if self._executor.deterministic:
            timing, chosen = self._tuned_timing(call, nbytes, runtime)
        else:
            timing, chosen, defaults = self._in_turns(call, nbytes, defaults)
        if timing.time_us is None:
            self._notes.append(f"{call.name}: no out-of-place time at {nbytes} bytes, left out")
            return
        self._beside.add(call, nbytes, self._named_programs(call, nbytes, defaults))
        bound_us = max(0.0, time_bound_us(self._bound(call), nbytes) - self._executor.burst_us)
        self._tuned.append(
            bandwidth_row(call.name, call.ranks, nbytes, timing, chosen, root=call.root)
        )
        self._bound_us.append(bound_us)
        for kind in self._baselines:
            if (default := defaults[kind]) is not None and default.timing.time_us is not None:
                self._rows.append(
                    comparison_row(call, nbytes, kind, default, timing, chosen, bound_us)
                )

    def _named_programs(
        self, call: Collective, nbytes: int, defaults: dict[str, BaselineTiming | None]
    ) -> list[NamedProgram]:
        """Return the table's choice and each default, to be timed together with peers."""
        known = {kind: d for kind, d in defaults.items() if d is not None}
        picked = select(self._stored.table, call.name, nbytes, root=call.root).candidate
        program, default = self._stored.program(picked), known[self._default]
        ours = (
            NamedProgram(f"default ({default.chosen})", default.program, default.knobs)
            if program is None or picked.knobs is None
            else NamedProgram(picked.name, program, picked.knobs.knobs)
        )
        return [ours, *(NamedProgram(d.chosen, d.program, d.knobs, k) for k, d in known.items())]

    @property
    def _needed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._baselines, self._default)))

    def _bound(self, call: Collective) -> Bound:
        if call not in self._bounds:
            self._bounds[call] = bound(self._topology, call)
        return self._bounds[call]

    def _baseline(self, kind: str, call: Collective, nbytes: int) -> BaselineTiming | None:
        topology = self._stored.topology
        try:
            return time_baseline(
                *(self._executor, topology, kind, call.name, nbytes),
                root=call.root,
                version=self._version,
            )
        except Infeasible as error:
            self._notes.append(f"{kind} has no {call.name}: {error}")
            return None

    def _tuned_timing(
        self, call: Collective, nbytes: int, runtime: BaselineTiming
    ) -> tuple[Timing, str]:
        """Return the time of the table's choice, chosen and timed for each placement by itself."""
        table = self._stored.table
        outside = select(table, call.name, nbytes, root=call.root).candidate
        inside = select(table, call.name, nbytes, in_place=True, root=call.root).candidate
        out = self._timed(outside, call, nbytes, runtime)
        within = out if inside == outside else self._timed(inside, call, nbytes, runtime)
        timing = replace(out, time_us_ip=within.time_us_ip, samples_us_ip=within.samples_us_ip)
        return timing, _named(outside, runtime)

    def _in_turns(
        self, call: Collective, nbytes: int, defaults: dict[str, BaselineTiming | None]
    ) -> tuple[Timing, str, dict[str, BaselineTiming | None]]:
        """The same, and the defaults' times, all timed in turns; what is the same program once."""
        table = self._stored.table
        runtime = defaults[self._default]
        if runtime is None:
            raise ValueError("no default to compare with")
        outside = select(table, call.name, nbytes, root=call.root).candidate
        inside = select(table, call.name, nbytes, in_place=True, root=call.root).candidate
        known = {k: d for k, d in defaults.items() if d is not None}
        entrants = {k: TimingCandidate(d.program, d.knobs, d.loop) for k, d in known.items()}
        names = {}
        for candidate in dict.fromkeys((outside, inside)):
            program = self._stored.program(candidate)
            if program is None or candidate.knobs is None:
                names[candidate] = self._default
            else:
                names[candidate] = f"tuned {candidate.name}"
                entrants[names[candidate]] = TimingCandidate(program, candidate.knobs.knobs)
        times = dict(zip(entrants, self._rounds(entrants, call, nbytes), strict=True))
        out, within = times[names[outside]], times[names[inside]]
        timing = replace(out, time_us_ip=within.time_us_ip, samples_us_ip=within.samples_us_ip)
        timed = {k: replace(d, timing=times[k]) for k, d in known.items()}
        return timing, _named(outside, runtime), {**defaults, **timed}

    def _rounds(
        self, entrants: dict[str, TimingCandidate], call: Collective, nbytes: int
    ) -> list[Timing]:
        begin = time.monotonic()

        def long_enough(rounds: int) -> bool:
            return rounds >= _FEWEST_ROUNDS and time.monotonic() - begin > _CALL_S

        each = list(entrants.values())
        options = {"root": call.root, "rounds": _ROUNDS}
        return paired_timings(self._executor, each, nbytes, **options, until=long_enough)

    def _timed(
        self, candidate: Candidate, call: Collective, nbytes: int, runtime: BaselineTiming
    ) -> Timing:
        program = self._stored.program(candidate)
        if program is None or candidate.knobs is None:
            return runtime.timing
        return self._executor.time(program, candidate.knobs.knobs, nbytes, root=call.root)


def _named(candidate: Candidate, runtime: BaselineTiming) -> str:
    if candidate.is_default or candidate.knobs is None:
        return f"default ({runtime.chosen})"
    k = candidate.knobs
    return (
        f"{candidate.method or candidate.name} on {candidate.sketch or '?'} "
        f"x{candidate.chunks_per_rank} {k.protocol} {k.channels}ch {k.threads}t {k.buffer_bytes}B"
    )
