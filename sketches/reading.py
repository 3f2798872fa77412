"""Reading JSON files of this room: their bytes, and msgspec's complaints in one line."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import InputError

__all__ = ["read_bytes", "reason"]

_MOST_BYTES = 1 << 28


def read_bytes(path: str | os.PathLike[str], expected: str) -> bytes:
    """Return what is in the file `path`, which should be `expected`.

    Raises:
        InputError: it cannot be read, or is longer than a sketch can be.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no file name"
        raise InputError(f"{shown_path(path)}: {why}; expected {expected}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{shown_path(path)}: longer than {_MOST_BYTES} B; expected {expected}")
    return data


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return `path` for a message: one printable line, cut to a sane length."""
    text = _printable(os.fspath(path))
    return text if len(text) <= 120 else f"...{text[-117:]}"


def reason(error: Exception) -> str:
    """Return what msgspec complains of in one line, its JSON path first.

    >>> reason(ValueError("Expected `int`, got `str` - at `$.ranks`"))
    '$.ranks: Expected `int`, got `str`'
    """
    # The last one: a key of the user's own may hold the same words.
    what, _, where = _printable(str(error)).rpartition(" - at ")
    if not what:
        return f"not readable as JSON: {where[:200]}"
    return f"{where.strip('`')[:200]}: {what[:200]}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
