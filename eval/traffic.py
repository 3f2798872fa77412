"""Bytes between hosts in jobs: what their table observed of its programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuccl.errors import InputError
from tuccl.runtime import Table
from tuccl.runtime.table import ObservedTiming
from tuccl.runtime.table.programs import sent_chunks
from tuccl.tuning.final_round import tuned_size


def traffic_text(table: Table, rows: Iterable[ObservedTiming]) -> str:
    """Return lines ``host host bytes`` of the calls of ``rows``, as `tuccl probe --traffic` reads.

    A call counts as many bytes as its entry was tuned at. Calls by the runtime's own algorithms
    are left out: their routes are not known.

    Raises:
        InputError: no program sent anything between hosts.
    """
    host_of = {rank: table.topology.host_of(rank) for rank in range(table.topology.ranks)}
    nbytes: Counter[tuple[str, str]] = Counter()
    for row in rows:
        entry = table.entries[row.entry]
        if (program := table.program(entry.candidates[row.place])) is not None:
            each = row.calls * tuned_size(entry) // program.nchunks
            for hosts, chunks in sent_chunks(program, host_of).items():
                nbytes[hosts] += chunks * each
    if not nbytes:
        raise InputError(f"{table.folder}: no job was seen to send by a program between hosts")
    return "".join(f"{src} {dst} {count}\n" for (src, dst), count in sorted(nbytes.items()))
