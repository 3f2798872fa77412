"""Our programs compared with other libraries' collectives on the same ranks and network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from race import Competitor, RaceResult, prescreen, race
from tuccl.errors import InputError
from tuccl.execution import Call, RankResult
from tuccl.program import Knobs, Program
from tuccl.runtime import Effort, MpiExecutor, Operands
from tuccl.runtime.executors import cpu_threads
from tuccl.runtime.libraries import Library, LibraryCall
from tuccl.synth.model.collective import ROOTED

OURS = "tuccl"
_FINAL_COUNT = 3  # of each owner, besides a peer's default
_SHORT_US, _SHORT_FINAL_COUNT = 2e4, 4  # of runs so short, which scatter and cost little
_GOOD = 1.5  # times the best of its owner
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


def peer_report(
    executor: MpiExecutor,
    peers: Sequence[Library],
    programs: Callable[[int], Sequence[NamedProgram]],
    collective: str,
    sizes: Sequence[int],
    *,
    root: int = 0,
    operands: Operands | None = None,
    effort: Effort | None = None,
) -> PeerReport:
    """Return our best program against each peer's best algorithm, size by size.

    All are tried with their contents checked; then the best three of ours and of each peer, four
    where runs are short, and each peer's default where it is within 1.5 times its best, run in
    turns.

    Args:
        executor: runs our programs.
        peers: whom to compare with.
        programs: our programs for a size.
        collective: what all compute.
        sizes: bytes of the whole buffer.
        root: of a rooted collective.
        operands: elements and reduction.
        effort: runs of a round.

    Raises:
        InputError: none of ours can do it.
    """
    rows: list[PeerRow] = []
    notes: list[str] = []
    for nbytes in sizes:
        kind = (collective, nbytes, root, operands or Operands(), executor.pause_us)
        competitors = [
            *(_ours(executor, program, *kind[1:]) for program in programs(nbytes)),
            *(each for peer in peers for each in _theirs(peer, *kind)),
        ]
        results, left_out = prescreen(competitors, executor.sent_bytes, _LEAST_SENT * nbytes)
        final, dropped = race(_final_candidates(results), effort or Effort())
        rows += _rows(collective, nbytes, root, final)
        notes += [*left_out, *dropped]
    return PeerReport(
        label=executor.label,
        peers={peer.name: peer.version for peer in peers},
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(notes)),
    )


def _ours(
    executor: MpiExecutor,
    named: NamedProgram,
    nbytes: int,
    root: int,
    operands: Operands,
    pause_us: int,
) -> Competitor:
    def run(checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        call = Call(
            named.program,
            named.knobs,
            nbytes,
            datatype=operands.datatype,
            op=operands.op,
            root=root,
            in_place=not named.program.out_of_place,
            checked=checked,
            warmup=warmup,
            timed=timed,
            threads=cpu_threads(named.knobs, named.program.ngpus),
            pause_us=pause_us,
        )
        return executor.run(call)

    return Competitor(named.of, named.name, run)


def _theirs(
    peer: Library, collective: str, nbytes: int, root: int, operands: Operands, pause_us: int
) -> list[Competitor]:
    def run(algorithm: str, checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        counts = (operands.datatype, operands.op, root, checked, warmup, timed)
        return peer.run(LibraryCall(collective, algorithm, nbytes, *counts, pause_us=pause_us))

    return [Competitor(peer.name, name, partial(run, name)) for name in peer.algorithms(collective)]


def _by_owner(results: Sequence[RaceResult]) -> dict[str, list[RaceResult]]:
    """Return the results of each owner, fastest first."""
    owners: dict[str, list[RaceResult]] = {result.competitor.owner: [] for result in results}
    for result in sorted(results, key=lambda r: r.us):
        owners[result.competitor.owner].append(result)
    return owners


def _final_candidates(results: Sequence[RaceResult]) -> list[RaceResult]:
    """Return the best of each owner, and the peers' defaults where they are near them."""
    final = []
    for ordered in _by_owner(results).values():
        good = [result for result in ordered if result.us <= _GOOD * ordered[0].us]
        count = _SHORT_FINAL_COUNT if ordered[0].us < _SHORT_US else _FINAL_COUNT
        final += [*good[:count], *(r for r in good[count:] if r.competitor.name == "auto")]
    return final


def _rows(collective: str, nbytes: int, root: int, final: Sequence[RaceResult]) -> list[PeerRow]:
    fastest = {owner: ordered[0] for owner, ordered in _by_owner(final).items()}
    if OURS not in fastest:
        raise InputError(f"{collective} of {nbytes} bytes: none of our programs came through")
    ours = fastest.pop(OURS)
    return [
        PeerRow(
            collective=collective,
            size=nbytes,
            chosen=ours.competitor.name,
            time_us=ours.us,
            spread=ours.spread,
            runs=ours.runs,
            peer=owner,
            algorithm=theirs.competitor.name,
            peer_us=theirs.us,
            peer_spread=theirs.spread,
            peer_runs=theirs.runs,
            speedup=theirs.us / ours.us,
            root=root if collective in ROOTED else -1,
        )
        for owner, theirs in fastest.items()
    ]


_COLUMNS = [
    "collective",
    "size",
    "program",
    "us",
    "spread",
    "runs",
    "peer",
    "algorithm",
    "us",
    "spread",
    "runs",
    "speedup",
]


def peer_text(report: PeerReport) -> str:
    """Return the report as a table with a line for each size and peer."""
    versions = ", ".join(f"{name} {version}" for name, version in report.peers.items())
    head = f"# {report.label}; peers: {versions}; speedup is the peer's time over ours"
    notes = [f"note: {note}" for note in report.notes]
    return "\n".join([head, peer_rows_text(report.rows), *notes])


def peer_rows_text(rows: Sequence[PeerRow]) -> str:
    """Return a table with a line for each row."""
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells
    )


def _cells(row: PeerRow) -> list[str]:
    return [
        row.collective,
        str(row.size),
        row.chosen,
        f"{row.time_us:.0f}",
        f"{row.spread:.0%}",
        str(row.runs),
        row.peer,
        row.algorithm,
        f"{row.peer_us:.0f}",
        f"{row.peer_spread:.0%}",
        str(row.peer_runs),
        f"{row.speedup:.2f}x",
    ]
