"""Measured times of collectives, read from nccl-tests' output, ``bench --json`` or a CSV file."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.runtime.nccl_tests.output import TestsOutput, read_json, read_text

_MOST_BYTES = 16 << 20
_MOST_ROWS = 10_000
# Columns of a CSV that hold a time in us, the first found unless one is named.
_TIME_COLUMNS = ("time_us_oop", "time_us", "time_us_ip", "nccl_time_us")


class Measured(msgspec.Struct, frozen=True):
    """One measured size: bytes of the whole array, and us."""

    nbytes: int
    us: float


@dataclass(frozen=True)
class Measurements:
    """A table of measured times by size; ``name`` says which, for reports."""

    name: str
    rows: tuple[Measured, ...]


def read_measurements(path: str | Path, column: str | None = None) -> Measurements:
    """Return the times (us) by size of a table: nccl-tests' text or JSON (``-J``), ours, or a CSV.

    Args:
        path: The file.
        column: What to take: ``in-place`` or ``out-of-place`` (as if not said) of nccl-tests'
            output, or the name of a column of a CSV, which else is the first of time_us_oop,
            time_us, time_us_ip and nccl_time_us. A CSV has its sizes in size_bytes.

    Raises:
        InputError: the file cannot be read, or holds no such column or no times.
    """
    path = Path(path)
    text = _text(path)
    if text.lstrip().startswith("{"):
        rows = _json_rows(text, path, _in_place(column, path))
    elif "size_bytes" in text.partition("\n")[0]:
        rows = _csv_rows(text, path, column)
    else:
        rows = _text_rows(text, path, _in_place(column, path))
    if not rows:
        raise InputError(
            f"{path}: no measured sizes; expected nccl-tests' text or JSON output, or a CSV with "
            "the columns size_bytes and time_us"
        )
    name = path.stem if column in (None, "out-of-place") else f"{path.stem} ({column})"
    return Measurements(name, tuple(rows[:_MOST_ROWS]))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path}: over {_MOST_BYTES >> 20} MiB; expected a table of times")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text; expected a table of times") from None


def _in_place(column: str | None, path: Path) -> bool:
    if column not in (None, "in-place", "out-of-place"):
        raise InputError(
            f"{path}: column {column[:40]!r}: nccl-tests' output has in-place and out-of-place"
        )
    return column == "in-place"


def _csv_rows(text: str, path: Path, column: str | None) -> list[Measured]:
    try:
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise InputError(f"{path}: {error}; expected a CSV of times") from None
    names = list(lines[0]) if lines else []
    columns = [column] if column else list(_TIME_COLUMNS)
    time_column = next((name for name in columns if name in names), None)
    if time_column is None:
        raise InputError(
            f"{path}: no column {' or '.join(columns)}; it has {', '.join(map(str, names))[:200]}"
        )
    return [
        row
        for line, words in enumerate(lines, start=2)
        if (row := _measured(words.get("size_bytes"), words[time_column], f"{path}:{line}"))
        is not None
    ]


def _text_rows(text: str, path: Path, in_place: bool) -> list[Measured]:
    return _of_tests(read_text(text, str(path)), in_place)


def _of_tests(output: TestsOutput, in_place: bool) -> list[Measured]:
    """The rows of nccl-tests that have a time; sizes of 0 bytes have none."""
    times = [(row.nbytes, row.time_us_ip if in_place else row.time_us) for row in output.rows]
    return [Measured(nbytes, us) for nbytes, us in times if us is not None and nbytes > 0]


class _BenchRow(msgspec.Struct, frozen=True):
    size: int
    time_us: float | None = None
    time_us_ip: float | None = None


class _Bench(msgspec.Struct, frozen=True):
    """A row of ``bench --json``; nccl-tests' output has none of these."""

    rows: tuple[_BenchRow, ...] = ()
    on: str = ""


def _json_rows(text: str, path: Path, in_place: bool) -> list[Measured]:
    try:
        bench = msgspec.json.decode(text, type=_Bench, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; expected nccl-tests' JSON output") from None
    if bench.on == "sim":
        raise InputError(f"{path}: simulated by bench; expected times that were measured")
    if not bench.rows:
        return _of_tests(read_json(text, str(path)), in_place)
    times = [(row.size, row.time_us_ip if in_place else row.time_us) for row in bench.rows]
    return [
        row
        for n, (size, us) in enumerate(times)
        if us is not None
        and (row := _measured(str(size), str(us), f"{path}: $.rows[{n}]")) is not None
    ]


def _measured(size: str | None, time: str | None, where: str) -> Measured | None:
    """One row; None where nothing was measured (N/A, or no time)."""
    if time is None or time.strip() in ("", "N/A", "-"):
        return None
    try:
        nbytes, us = int(size or ""), float(time)
    except ValueError:
        raise InputError(
            f"{where}: size {str(size)[:20]!r}, time {time[:20]!r}: expected bytes and us"
        ) from None
    if nbytes < 0 or not math.isfinite(us) or us < 0:
        raise InputError(f"{where}: {nbytes} bytes in {us} us: expected neither below zero")
    return Measured(nbytes, us) if nbytes > 0 and us > 0 else None
