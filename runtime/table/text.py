"""The table as strict lines of text, for readers in the native core (docs/reference/table.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tuccl.runtime.table.entry import Candidate, Entry
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.programs import program_dialect

HEADER = "tuccl-table-text 2"


def table_text(table: LookupTable) -> bytes:
    r"""Return the entries of ``table`` as text, one entry or candidate a line.

    The last line holds the checksum of all before it. The same table always gives the same
    bytes.

    >>> table = LookupTable(name="t", signature="0" * 16, ranks=2, entries=())
    >>> table_text(table).splitlines()[:2]
    [b'tuccl-table-text 2', b'table 0000000000000000 2 1 executor 0']
    """
    body = "".join(f"{line}\n" for line in _lines(table)).encode()
    return body + f"end {hashlib.sha256(body).hexdigest()}\n".encode()


def _lines(table: LookupTable) -> Iterator[str]:
    yield HEADER
    size = f"{table.ranks} {table.hosts}"
    yield f"table {table.signature} {size} {program_dialect(table.dialect)} {len(table.entries)}"
    for entry in table.entries:
        yield _entry_line(entry)
        yield from (_candidate_line(candidate) for candidate in entry.candidates)


def _entry_line(entry: Entry) -> str:
    root = "-" if entry.root is None else entry.root
    max_bytes = "-" if entry.max_bytes is None else entry.max_bytes
    return (
        f"entry {entry.collective} {entry.datatype_class} {entry.reduction_class} "
        f"{entry.placement} {root} {entry.min_bytes} {max_bytes} {len(entry.candidates)}"
    )


def _candidate_line(candidate: Candidate) -> str:
    return f"candidate {candidate.name} {_program(candidate)} {candidate.on} {_stats(candidate)}"


def _program(candidate: Candidate) -> str:
    knobs, nccl = candidate.knobs, candidate.nccl
    if nccl is not None:
        tuned = f"{nccl.protocol} {nccl.channels} 0 {nccl.chunk_bytes}"
        return f"nccl/{nccl.algorithm} - 0 1 1 0 {tuned}"
    if candidate.program is None or knobs is None:
        return "- - 0 1 1 0 - 0 0 0"
    return (
        f"{candidate.program} {candidate.sha256} {candidate.nchunks} {candidate.in_place:d} "
        f"{candidate.out_of_place:d} {candidate.max_safe_bytes} {knobs.protocol} "
        f"{knobs.channels} {knobs.threads} {knobs.buffer_bytes}"
    )


def _stats(candidate: Candidate) -> str:
    stats = candidate.stats
    if stats is None:
        return "0 0 0 0 0"
    times = (stats.median_us, stats.p10_us, stats.p99_us, stats.recent_us)
    return " ".join([str(stats.count), *(repr(float(t)) for t in times)])
