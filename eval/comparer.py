"""The tuned table against the defaults, size by size."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from tuccl.errors import Infeasible, InputError
from tuccl.eval.columns import BandwidthRow, bandwidth_row
from tuccl.eval.compare_plugin import compare_plugin
from tuccl.eval.comparison import Comparison, ComparisonRow, bound_over, comparison_row, provenance
from tuccl.runtime import (
    BASELINES,
    SYMMETRIC_BASELINE,
    Candidate,
    ConfiguredProgram,
    Executor,
    LookupTable,
    NcclTestsExecutor,
    StepLoop,
    Table,
    TimedProgram,
    Timing,
    baselines_on,
    load_table,
    select,
    time_baseline,
)
from tuccl.runtime.backends import Backend, executor_on
from tuccl.runtime.baseline import LIBRARIES_BASELINE
from tuccl.runtime.baseline.candidate import candidate_program
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.synth import BoundKind, Collective, bound
from tuccl.tuning import tuned_sizes
from tuccl.tuning.work import Progress, no_progress
from tuccl.units import Size, format_bytes, sizes_bytes

_ROUNDS = 9  # where times have noise
_FEWEST_ROUNDS = 5
_CALL_S = 20.0  # of one size, beyond the fewest rounds


def compare(
    table: Table | str | os.PathLike[str],
    on: str | Backend = "sim",
    *,
    baselines: Sequence[str] | None = None,
    sizes: Size | Iterable[Size] | None = None,
    nccl_version: str | None = None,
    prefer: str | None = None,
    progress: Progress = no_progress,
) -> Comparison:
    """Return a table against the defaults, both timed anew.

    Where the table picks the runtime's own default, the tuned time is that of ``nccl``, or of
    msccl-default where NCCL cannot run.

    Args:
        table: The table, or its folder.
        on: What times it, as `tuccl.tune` takes it.
        baselines: Names of `BASELINES`; None: all that the executor can stand for.
        sizes: Whole arrays in bytes; None: those that each collective was tuned at.
        nccl_version: The NCCL of ``nccl``; None: the one that the table was tuned against.
        prefer: speed or sms, instead of the table's own order.
        progress: Called with the sizes done, their number, and the next.

    >>> import tuccl
    >>> options = tuccl.TuneOptions(budget=16)
    >>> table = tuccl.tune(tuccl.profile("v100x4"), "allgather", "1M", options=options)
    >>> tuccl.compare(table, baselines=["nccl"]).rows[0].speedup >= 1  # simulated
    True

    Raises:
        InputError: the table, a baseline, the preference or the executor's machine is not what it
            should be.
        Unavailable: the executor needs something that is not installed.
    """
    stored = table if isinstance(table, Table) else load_table(table)
    each = None if sizes is None else sizes_bytes(sizes)
    with executor_on(stored.topology, on, stored.lookup.dialect) as executor:
        if stored.lookup.dialect == "nccl" and executor.runs_nccl:
            if prefer is not None:
                raise InputError(f"{stored.folder}: the tuner plugin follows the table's own order")
            windows = SYMMETRIC_BASELINE in (baselines or ())
            real = cast("NcclTestsExecutor", executor)
            return compare_plugin(stored, real, each, progress, windows=windows)
        comparer = _comparer(stored.preferring(prefer), executor, baselines, nccl_version)
        comparer.add_all(each, progress)
        return comparer.comparison()


def _comparer(
    stored: Table,
    executor: Executor,
    baselines: Sequence[str] | None,
    nccl_version: str | None,
) -> _Comparer:
    """Return what times the rows; the arguments are checked first."""
    known = (*BASELINES, SYMMETRIC_BASELINE, LIBRARIES_BASELINE)
    if unknown := [b for b in baselines or () if b not in known]:
        names = ", ".join(known)
        raise InputError(f"baseline {unknown[0][:30]!r}: expected one of {names}")
    able = baselines_on(executor)
    if baselines is None:
        baselines = [b for b in able if b != SYMMETRIC_BASELINE]
    if unable := [b for b in baselines if b not in able]:
        raise InputError(
            f"baseline {unable[0]!r}: NCCL runs on GPUs only, not on {executor.name}; expected "
            f"one of {', '.join(able)}"
        )
    if stored.lookup.dialect == "nccl":
        raise InputError(
            f"{stored.folder}: holds choices of NCCL's own, which only NCCL itself can time; "
            "use --on nccl-tests, or name a table of programs"
        )
    tuned_against = nccl_version or stored.lookup.nccl_version
    version = "" if executor.runs_nccl else nccl_release(tuned_against)
    return _Comparer(stored, executor, tuple(baselines), version)


def _default_baseline(table: LookupTable, executor: Executor) -> str:
    """Return the baseline that the table's default candidates are on ``executor``."""
    name = table.baseline.partition(" ")[0]
    return name if name in baselines_on(executor) else executor.default_baseline


class _Comparer:
    def __init__(
        self,
        stored: Table,
        executor: Executor,
        baselines: Sequence[str],
        version: str,
    ) -> None:
        self._stored = stored
        self._executor = executor
        self._baselines = tuple(baselines)
        self._version = version
        self._default = _default_baseline(stored.lookup, executor)
        self._topology = executor.topology or stored.topology
        self._covers: list[BoundKind] = []
        self._rows: list[ComparisonRow] = []
        self._tuned: list[BandwidthRow] = []
        self._bound_us: list[float] = []
        self._notes = [*provenance(stored.lookup, executor)]

    def comparison(self) -> Comparison:
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
            bounds=tuple(self._covers),
            notes=tuple(dict.fromkeys(self._notes)),
            regressions=sum(row.regression for row in self._rows),
            nccl_version=self._version,
        )

    def add_all(self, sizes: Sequence[int] | None, progress: Progress) -> None:
        """Time every collective of the table, at the sizes it was tuned at or at ``sizes``."""
        table = self._stored.lookup
        calls = [
            (Collective(collective, table.ranks, root or 0), nbytes)
            for collective, root in dict.fromkeys((e.collective, e.root) for e in table.entries)
            for nbytes in (sizes if sizes is not None else tuned_sizes(table, collective, root))
        ]
        for done, (call, nbytes) in enumerate(calls):
            progress(done, len(calls), f"{call.name} {format_bytes(nbytes)}")
            self.add(call, nbytes)

    def add(self, call: Collective, nbytes: int) -> None:
        """Time one size of one collective: tuned, and every baseline."""
        kinds = dict.fromkeys((*self._baselines, self._default))
        defaults = {
            kind: default
            for kind in kinds
            if (default := self._baseline(kind, call, nbytes)) is not None
        }
        if self._default not in defaults:
            return
        timing, chosen, loop, defaults = self._timings(call, nbytes, defaults)
        if timing.time_us is None:
            self._notes.append(f"{call.name}: no out-of-place time at {nbytes} bytes, left out")
            return
        candidate = select(self._stored.lookup, call.name, nbytes, root=call.root).candidate
        sms = defaults[self._default].sms if candidate.is_default else candidate.sms
        over = bound_over(loop)
        least_us = bound(self._topology, call, over).time_us(nbytes)
        bound_us = max(0.0, least_us - self._executor.burst_us)
        self._tuned.append(
            bandwidth_row(call.name, call.ranks, nbytes, timing, chosen, root=call.root)
        )
        self._bound_us.append(bound_us)
        self._covers.append(over)
        for kind in self._baselines:
            if (default := defaults.get(kind)) and default.timing.time_us is not None:
                self._rows.append(
                    comparison_row(call, nbytes, kind, default, timing, chosen, bound_us, over, sms)
                )

    def _baseline(self, kind: str, call: Collective, nbytes: int) -> TimedProgram | None:
        topology = self._stored.topology
        try:
            return time_baseline(
                self._executor,
                topology,
                kind,
                call.name,
                nbytes,
                root=call.root,
                version=self._version,
            )
        except Infeasible as error:
            self._notes.append(f"{kind} has no {call.name}: {error}")
            return None

    def _timings(
        self, call: Collective, nbytes: int, defaults: Mapping[str, TimedProgram]
    ) -> tuple[Timing, str, StepLoop, dict[str, TimedProgram]]:
        """Return the time of the table's choice, its name and its loop, and the defaults' times.

        The table chooses for each placement by itself. Where times have noise all are timed again,
        in turns, each program once.
        """
        table = self._stored.lookup
        choices = [
            select(table, call.name, nbytes, in_place=in_place, root=call.root).candidate
            for in_place in (False, True)
        ]
        programs: dict[str, ConfiguredProgram] = {}
        names = [self._default, self._default]
        for index, candidate in enumerate(choices):
            if (run := self._run(candidate, call, nbytes)) is not None:
                names[index] = f"tuned {candidate.name}"
                programs[names[index]] = run
        times = self._times(call, nbytes, defaults, programs)
        out, within = (times[name] for name in names)
        timing = replace(out, time_us_ip=within.time_us_ip, samples_us_ip=within.samples_us_ip)
        chosen = _description(choices[0], defaults[self._default])
        loop = programs[names[0]].loop if names[0] in programs else defaults[names[0]].loop
        defaults = {kind: replace(d, timing=times[kind]) for kind, d in defaults.items()}
        return timing, chosen, loop, defaults

    def _run(self, candidate: Candidate, call: Collective, nbytes: int) -> ConfiguredProgram | None:
        """Return what runs for ``candidate``, None where that is the runtime's default."""
        executor, stored, version = self._executor, self._stored, self._version
        return candidate_program(
            executor, stored.topology, call, nbytes, candidate, stored.programs, version=version
        )

    def _times(
        self,
        call: Collective,
        nbytes: int,
        defaults: Mapping[str, TimedProgram],
        programs: Mapping[str, ConfiguredProgram],
    ) -> dict[str, Timing]:
        executor = self._executor
        if executor.deterministic:
            times = {kind: default.timing for kind, default in defaults.items()}
            for name, each in programs.items():
                times[name] = each.on(executor, nbytes, root=call.root)
            return times
        candidates: dict[str, ConfiguredProgram] = {**defaults, **programs}
        start = time.monotonic()

        def enough(rounds: int) -> bool:
            return rounds >= _FEWEST_ROUNDS and time.monotonic() - start > _CALL_S

        timings = paired_timings(
            executor,
            list(candidates.values()),
            nbytes,
            root=call.root,
            rounds=_ROUNDS,
            until=enough,
        )
        return dict(zip(candidates, timings, strict=True))


def _description(candidate: Candidate, runtime: TimedProgram) -> str:
    if candidate.nccl is not None:
        return candidate.name
    if candidate.knobs is None:
        return f"default ({runtime.name})"
    k = candidate.knobs
    return (
        f"{candidate.method or candidate.name} on {candidate.sketch or '?'} "
        f"x{candidate.chunks_per_rank} {k.protocol} {k.channels}ch {k.threads}t {k.buffer_bytes}B"
    )
