"""Rows of a run in a file, so that an interrupted run goes on."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.files import write_file
from tuccl.training.rows import TrainingRow

_MOST_BYTES = 1 << 26


class RowsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A ``tuccl-training/1`` file: the rows so far of the run that ``run`` describes."""

    run: str
    rows: tuple[TrainingRow, ...] = ()
    format: Literal["tuccl-training/1"] = "tuccl-training/1"


class Journal:
    """The rows of one run, written whole to its file after each; without a file only kept."""

    def __init__(self, path: Path | None, run: str, *, resume: bool = False) -> None:
        """Begin, or go on where the file ends.

        Args:
            path: of the file; None: none is written.
            run: whatever makes rows comparable: kind, model, machine, table.
            resume: go on with the file if there is one.

        Raises:
            InputError: the file is there and not to be resumed, or it is another run's.
        """
        self._path = path
        self._file = RowsFile(run=run)
        if path is None or not path.exists():
            return
        if not resume:
            raise InputError(f"{path}: is there already; --resume goes on with it")
        self._file = _read(path)
        if self._file.run != run:
            raise InputError(f"{path}: rows of another run: {_difference(self._file.run, run)}")

    @property
    def rows(self) -> tuple[TrainingRow, ...]:
        """All rows so far, in the order in which they came."""
        return self._file.rows

    def row(self, method: str, backend: str) -> TrainingRow | None:
        """Return the row of a method by a backend, None where there is none yet."""
        names = (method, backend)
        return next((row for row in self.rows if (row.method, row.backend) == names), None)

    def add(self, row: TrainingRow) -> None:
        """Keep ``row``, in the file before this returns, in place of an earlier one like it."""
        key = (row.method, row.backend)
        others = tuple(each for each in self.rows if (each.method, each.backend) != key)
        self._file = msgspec.structs.replace(self._file, rows=(*others, row))
        if self._path is not None:
            write_file(self._path, msgspec.json.encode(self._file) + b"\n")


def _difference(before: str, now: str) -> str:
    """Return in which of their facts, which commas part, two descriptions of runs differ."""
    pairs = zip_longest(before.split(", "), now.split(", "), fillvalue="nothing")
    facts = [f"it has {old[:60]!r}, now {new[:60]!r}" for old, new in pairs if old != new]
    return f"{'; '.join(facts[:4])}; give the same options, or another -o"


def _read(path: Path) -> RowsFile:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        return msgspec.json.decode(data, type=RowsFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; expected the rows of tuccl train") from None
