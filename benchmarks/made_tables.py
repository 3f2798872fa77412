"""Lookup tables of a wanted size for the benchmarks of the selector, written as text."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["SIGNATURE", "made_table", "write_table"]

SIGNATURE = "0123456789abcdef"
_KINDS = (
    ("allreduce", "plain", "-"),
    ("allgather", "none", "-"),
    ("reduce-scatter", "plain", "-"),
    ("alltoall", "none", "-"),
    *(("broadcast", "none", str(root)) for root in range(16)),
)
_PROGRAMS = 64


def made_table(entries: int, ranks: int = 16) -> str:
    """Return table.txt with ``entries`` entries of 20 kinds of call, three candidates each."""
    lines = [f"tuccl-table-text 2\ntable {SIGNATURE} {ranks} 1 executor {entries}\n"]
    for i in range(entries):
        collective, reduction, root = _KINDS[i % len(_KINDS)]
        step = i // len(_KINDS)
        low, high = step * 4096, (step + 1) * 4096
        lines.append(f"entry {collective} any {reduction} any {root} {low} {high} 3\n")
        for k, nchunks in enumerate((16, 64)):
            name = _program_name(collective, i + k)
            checksum = hashlib.sha256(name.encode()).hexdigest()
            time = f"{10 + k + step / 7!r}"
            lines.append(
                f"candidate {collective}-LL-c{k + 1}-{i % 977} {name} {checksum} {nchunks} 1 1 0 "
                f"LL {k + 1} 512 524288 sim 5 {time} {time} {time} {time}\n"
            )
        lines.append("candidate default - - 0 1 1 0 - 0 0 0 sim 5 99.5 99.5 99.5 99.5\n")
    body = "".join(lines)
    return f"{body}end {hashlib.sha256(body.encode()).hexdigest()}\n"


def write_table(folder: Path, nbytes: int) -> int:
    """Write a table's folder whose text has about ``nbytes`` bytes; return how many it has."""
    per_entry = (len(made_table(2000)) - len(made_table(1000))) / 1000
    text = made_table(round(nbytes / per_entry))
    (folder / "algorithms").mkdir(parents=True, exist_ok=True)
    (folder / "table.txt").write_text(text)
    for name in {word for word in text.split() if word.endswith(".xml")}:
        (folder / name).write_text(name)  # the selector checks sums, not programs
    return len(text)


def _program_name(collective: str, number: int) -> str:
    return f"algorithms/{collective}-{number % _PROGRAMS:016x}.xml"
