"""Our programs beside other libraries' collectives on the same ranks and network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, log

import msgspec

from tuccl._native import Call, Knobs, Program, RankResult
from tuccl.errors import InputError
from tuccl.eval.peers import (
    LONG_US,
    Competitor,
    Peer,
    PeerCall,
    RaceResult,
    prescreen,
    race,
)
from tuccl.runtime import Effort, MpiExecutor, Workload
from tuccl.runtime.executors import cpu_threads
from tuccl.synth.model.collective import ROOTED

__all__ = [
    "NamedProgram",
    "PeerReport",
    "PeerRow",
    "geometric_mean",
    "peer_report",
    "peer_rows_text",
    "peer_text",
]

OURS = "tuccl"
_FINALISTS = 2  # of ours and of each peer, beside its own choice
_SHORT_US, _SHORT_FINALISTS = 2e4, 4  # of runs so short, which scatter and cost little
_PRESCREEN_BYTES = 1 << 20  # above, only what was good at the size before is tried
_GOOD = 1.5  # times the best of its owner
_MOST_TRIED = 6  # of an owner, where only the good are
_MOST_LONG = 3  # where runs are long
_LEAST_SENT = 0.25  # of the whole buffer: any of these collectives sends more between hosts


@dataclass(frozen=True)
class NamedProgram:
    """A program with its knobs, by a name for tables; ``of`` is a default's name if it is one."""

    name: str
    program: Program
    knobs: Knobs
    of: str = OURS


class PeerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One size: the best of ours and of one peer or default, as measured in turns.

    Times are medians in us of ``runs`` and ``peer_runs``; ``spread`` is how far the medians of the
    rounds lie apart, as a part; ``speedup`` the peer's time over ours. ``root`` is -1 for
    collectives that have none.
    """

    collective: str
    size: int
    chosen: str
    time_us: float
    spread: float
    runs: int
    peer: str
    algorithm: str
    peer_us: float
    peer_spread: float
    peer_runs: int
    speedup: float
    root: int = -1


class PeerReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every row; ``label`` says on what, ``notes`` what took no part, and why."""

    label: str
    peers: dict[str, str]
    rows: tuple[PeerRow, ...]
    notes: tuple[str, ...]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean.

    >>> round(geometric_mean([1.0, 4.0]), 6)
    2.0
    """
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs))


@dataclass
class _Field:
    """Who takes part: all at first, the good ones of the size before where runs are long."""

    tried: dict[str, list[str]] = field(default_factory=dict)
    us_per_byte: dict[str, float] = field(default_factory=dict)

    def admits(self, competitor: Competitor, nbytes: int) -> bool:
        known = self.tried.get(competitor.of)
        if nbytes <= _PRESCREEN_BYTES or known is None:
            return True
        long = self.us_per_byte[competitor.of] * nbytes >= LONG_US
        return competitor.name in known[: _MOST_LONG if long else _MOST_TRIED]

    def learn(self, results: Sequence[RaceResult], nbytes: int) -> None:
        for of in {s.competitor.of for s in results}:
            own = _good([s for s in results if s.competitor.of == of])
            self.tried[of] = [s.competitor.name for s in own]
            self.us_per_byte[of] = own[0].us / nbytes


def peer_report(
    executor: MpiExecutor,
    peers: Sequence[Peer],
    programs: Callable[[int], Sequence[NamedProgram]],
    collective: str,
    sizes: Sequence[int],
    *,
    root: int = 0,
    workload: Workload | None = None,
    effort: Effort | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> PeerReport:
    """Return our best program against each peer's best algorithm, size by size.

    All are prescreen with their contents checked; then the best two of ours and of each peer, four
    where runs are short, and each peer's own choice where it is within 1.5 times its best, run in
    turns.

    Args:
        executor: runs our programs.
        peers: whom to compare with.
        programs: our programs for a size.
        collective: what all compute.
        sizes: bytes of the whole buffer, ascending.
        root: of a rooted collective.
        workload: elements and reduction.
        effort: runs of a round.
        tell: is given a line for each row as soon as it is there.

    Raises:
        InputError: none of ours can do it.
    """
    asked = workload or Workload()
    known = _Field()
    rows: list[PeerRow] = []
    notes: dict[str, None] = {}
    for nbytes in sizes:
        own = [_ours(executor, e, nbytes, root, asked) for e in programs(nbytes)]
        others = [
            c for p in peers for c in _theirs(p, collective, nbytes, root, asked, executor.pause_us)
        ]
        field_ = [c for c in (*own, *others) if known.admits(c, nbytes)]
        results, left_out = prescreen(field_, executor.sent_bytes, _LEAST_SENT * nbytes)
        known.learn(results, nbytes)
        notes.update(dict.fromkeys(left_out))
        final, lost = race(_finalists(results), effort or Effort())
        notes.update(dict.fromkeys(lost))
        own_rows = _rows(collective, nbytes, root, final)
        for row in own_rows:
            tell("  ".join(_cells(row)))
        rows += own_rows
    return PeerReport(
        label=executor.label,
        peers={peer.name: peer.version for peer in peers},
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _ours(
    executor: MpiExecutor, named: NamedProgram, nbytes: int, root: int, asked: Workload
) -> Competitor:
    def run(checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        call = Call(
            *(named.program, named.knobs, nbytes),
            datatype=asked.datatype,
            op=asked.op,
            root=root,
            in_place=not named.program.out_of_place,
            checked=checked,
            warmup=warmup,
            timed=timed,
            threads=cpu_threads(named.knobs, named.program.ngpus),
            pause_us=executor.pause_us,
        )
        return executor.run(call)

    return Competitor(named.of, named.name, run)


def _theirs(
    peer: Peer, collective: str, nbytes: int, root: int, asked: Workload, pause_us: int
) -> list[Competitor]:
    def run(algorithm: str, checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        kind = (asked.datatype, asked.op, root, checked, warmup, timed)
        return peer.run(PeerCall(collective, algorithm, nbytes, *kind, pause_us=pause_us))

    return [Competitor(peer.name, name, partial(run, name)) for name in peer.algorithms(collective)]


def _finalists(results: Sequence[RaceResult]) -> list[RaceResult]:
    """Return the best of each, and the peers' own choices where they are near them."""
    final = []
    for of in dict.fromkeys(s.competitor.of for s in results):
        own = _good([s for s in results if s.competitor.of == of])
        count = _finalists_of(own[0].us)
        final += [*own[:count], *(s for s in own[count:] if s.competitor.name == "auto")]
    return final


def _finalists_of(us: float) -> int:
    """Return how many of an owner whose best run took ``us`` are timed in turns.

    Of long ones all that were tried: one run each says little.
    """
    if us >= LONG_US:
        return _MOST_LONG
    return _SHORT_FINALISTS if us < _SHORT_US else _FINALISTS


def _good(own: Sequence[RaceResult]) -> list[RaceResult]:
    """Return those of one owner that are near its best, by time."""
    best = min(s.us for s in own)
    return sorted((s for s in own if s.us <= _GOOD * best), key=lambda s: s.us)


def _rows(collective: str, nbytes: int, root: int, final: Sequence[RaceResult]) -> list[PeerRow]:
    best = {
        of: min((s for s in final if s.competitor.of == of), key=lambda s: s.us)
        for of in dict.fromkeys(s.competitor.of for s in final)
    }
    if OURS not in best:
        raise InputError(f"{collective} of {nbytes} bytes: none of our programs came through")
    own = best[OURS]
    return [
        PeerRow(
            collective=collective,
            size=nbytes,
            chosen=own.competitor.name,
            time_us=own.us,
            spread=own.spread,
            runs=own.runs,
            peer=of,
            algorithm=theirs.competitor.name,
            peer_us=theirs.us,
            peer_spread=theirs.spread,
            peer_runs=theirs.runs,
            speedup=theirs.us / own.us,
            root=root if collective in ROOTED else -1,
        )
        for of, theirs in best.items()
        if of != OURS
    ]


_COLUMNS = (
    *("collective", "size", "program", "us", "spread", "runs"),
    *("peer", "algorithm", "us", "spread", "runs", "speedup"),
)


def peer_text(report: PeerReport) -> str:
    """Return the report as a table with a line for each size and peer."""
    versions = ", ".join(f"{name} {version}" for name, version in report.peers.items())
    head = f"# {report.label}; peers: {versions}; speedup is the peer's time over ours"
    notes = [f"note: {note}" for note in report.notes]
    return "\n".join([head, peer_rows_text(report.rows), *notes])


def peer_rows_text(rows: Sequence[PeerRow]) -> str:
    """Return a table with a line for each row."""
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells
    )


def _cells(row: PeerRow) -> tuple[str, ...]:
    return (
        *(row.collective, str(row.size), row.chosen, f"{row.time_us:.0f}"),
        *(f"{row.spread:.0%}", str(row.runs), row.peer, row.algorithm, f"{row.peer_us:.0f}"),
        *(f"{row.peer_spread:.0%}", str(row.peer_runs), f"{row.speedup:.2f}x"),
    )
