"""A table of NCCL's own choices as the CSV files that other tuners read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.lookup import LookupTable
from tuccl.units import format_bytes

CSV_FILES = {"nccl": "nccl_tuner.csv", "ncclx": "ncclx_tuner.csv"}
_HEADERS = {
    "nccl": "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,"
    "nNodes,nRanks,numPipeOps,regBuff",
    "ncclx": "collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,chunkSize",
}
_ALGORITHMS = {
    "Tree": "tree",
    "Ring": "ring",
    "CollnetDirect": "collnet_direct",
    "CollnetChain": "collnet_chain",
    "NVLS": "nvls",
    "NVLSTree": "nvls_tree",
    "PAT": "pat",
}
_TOP = (1 << 63) - 1


@dataclass(frozen=True)
class Line:
    """NCCL's own ``knobs`` for a collective's sizes [min_bytes, max_bytes)."""

    collective: str
    min_bytes: int
    max_bytes: int | None
    knobs: NcclKnobs


def csv_lines(table: LookupTable) -> list[Line]:
    """Return what the table chooses, neighbours of one choice joined; the default is a hole."""
    lines: list[Line] = []
    for entry in sorted(table.entries, key=lambda e: (e.collective, e.min_bytes)):
        if (knobs := entry.candidates[0].nccl) is None:
            continue
        line = Line(entry.collective, entry.min_bytes, entry.max_bytes, knobs)
        last = lines[-1] if lines else None
        if last is not None and _follows(last, line):
            lines[-1] = replace(last, max_bytes=line.max_bytes)
        else:
            lines.append(line)
    return lines


def _follows(last: Line, line: Line) -> bool:
    joined = (last.collective, last.max_bytes, last.knobs)
    return joined == (line.collective, line.min_bytes, line.knobs)


def csv_text(tables: Iterable[LookupTable], dialect: str) -> str:
    """Return the file for ``nccl`` (NVIDIA's example tuner) or ``ncclx`` (the tuner in NCCLX).

    Both take the first line that fits. Lines hold on as many hosts and ranks as their table's;
    those for ``nccl`` for single operations without registered buffers.
    """
    written: Callable[[Line, LookupTable], str | None]
    written = _nccl_line if dialect == "nccl" else _ncclx_line
    lines = [
        text
        for table in tables
        for line in csv_lines(table)
        if (text := written(line, table)) is not None
    ]
    return "".join(f"{text}\n" for text in (f"# {_HEADERS[dialect]}", *lines))


def _nccl_line(line: Line, table: LookupTable) -> str:
    """``max_bytes`` is included there. 0 channels are NCCL's own; -1 would leave one."""
    top = _TOP if line.max_bytes is None else line.max_bytes - 1
    knobs = line.knobs
    return (
        f"{_collective(line)},{line.min_bytes},{top},{_ALGORITHMS[knobs.algorithm]},"
        f"{knobs.protocol.lower()},{knobs.channels},{table.hosts},{table.ranks},1,0"
    )


def _ncclx_line(line: Line, table: LookupTable) -> str | None:
    """Sizes are divided by the ranks, rounded down: edges move up to the next whole share."""
    low = -(-line.min_bytes // table.ranks)
    top = None if line.max_bytes is None else -(-line.max_bytes // table.ranks)
    if top is not None and low >= top:
        return None
    knobs = line.knobs
    local = table.ranks // table.hosts if table.ranks % table.hosts == 0 else "*"
    return (
        f"{_collective(line)},[{low},{'' if top is None else top}),"
        f"{_ALGORITHMS[knobs.algorithm]},{knobs.protocol.lower()},{knobs.channels or -1},"
        f"{table.hosts},{local},{knobs.chunk_bytes}"
    )


def _collective(line: Line) -> str:
    return line.collective.replace("-", "")


def csv_notes(table: LookupTable, dialect: str) -> Iterator[str]:
    """Yield what the file cannot say and what its reader gets wrong."""
    lines = csv_lines(table)
    if not lines:
        yield "no choice but the default: every call is left to NCCL"
    if dialect == "nccl":
        yield (
            "NVIDIA's example tuner gives one channel to every call that no line fits "
            "(plugins/tuner/example): build it without '*nChannels = 1', or use tuccl's plugin"
        )
        for line in lines:
            if line.knobs.chunk_bytes:
                chunk = format_bytes(line.knobs.chunk_bytes)
                yield f"{line.collective}: a chunk of {chunk} cannot be said to the example tuner"
        return
    yield (
        "for NCCLX from 2026-07-02 on (commit 6362ecc16), whose lines have 8 columns and hold for "
        "grouped and registered calls too"
    )
    if any(line.min_bytes % table.ranks for line in lines):
        yield f"NCCL passes sizes per rank: edges move up to multiples of {table.ranks} bytes"
