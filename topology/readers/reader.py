"""Readers of file formats, and the choice among them by what a file holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tuccl.errors import InputError
from tuccl.topology.graph import quoted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """A file format, and how to read it into a ``T``.

    Attributes:
        name: as ``--format`` takes it.
        summary: one line for people.
        matches: whether bytes, the beginning of a file or all of it, are of this format.
        decode: returns what a file's bytes describe, and warnings; its further arguments are the
            path, for messages, and the name of the result. Raises `InputError` where the bytes are
            damaged or of another format.
    """

    name: str
    summary: str
    matches: Callable[[bytes], bool]
    decode: Callable[[bytes, str, str], tuple[T, tuple[str, ...]]]


def reader_of(
    readers: Sequence[Reader[T]], data: bytes, place: str, format: str | None = None
) -> Reader[T] | None:
    """Return the reader called ``format``, else the first that ``data`` matches, else None.

    Raises:
        InputError: no reader has that name.
    """
    if format is None:
        return next((reader for reader in readers if reader.matches(data)), None)
    for reader in readers:
        if reader.name == format:
            return reader
    names = ", ".join(reader.name for reader in readers)
    raise InputError(f"{place}: format {quoted(format)} is not known; expected one of {names}")
