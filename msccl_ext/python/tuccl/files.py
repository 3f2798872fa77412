"""Bytes of files, and msgspec's complaints about JSON as one line with the place and the remedy."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuccl.errors import InputError

__all__ = ["decode_reason", "printable_path", "read_bounded", "write_file", "write_files"]

_NETWORKS = ("network", "nic")
_SYNONYMS = {
    "efa": _NETWORKS,
    "ethernet": _NETWORKS,
    "hca": _NETWORKS,
    "ib": _NETWORKS,
    "infiniband": _NETWORKS,
    "roce": _NETWORKS,
    "nvl": ("nvlink",),
    "pci": ("pcie",),
    "qpi": ("cpu",),
    "upi": ("cpu",),
}


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of the file ``path``.

    Raises:
        InputError: it cannot be read, or is longer than ``most`` bytes.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise InputError(f"{printable_path(path)}: cannot be read: {reason}") from None
    if len(data) > most:
        raise InputError(f"{printable_path(path)}: longer than {most} bytes; use a smaller file")
    return data


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all, readable as the umask allows.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    write_files({path: data})


def write_files(contents: Mapping[str | os.PathLike[str], bytes]) -> None:
    """Write each content to its path, all of them or, where the disk refuses one, none.

    Raises:
        InputError: a folder is not there or cannot be written.
    """
    written: list[tuple[str, Path]] = []
    path: str | os.PathLike[str] = ""
    try:
        for path, data in contents.items():
            target = Path(path)
            handle, name = tempfile.mkstemp(prefix=f".{target.name[:60]}.", dir=target.parent)
            written.append((name, target))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(0o666 & ~_umask())
        for name, path in written:
            Path(name).replace(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise InputError(f"{printable_path(path)}: cannot be written: {reason}") from None
    finally:
        for name, _ in written:
            Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def printable_path(path: str | os.PathLike[str]) -> str:
    """Return ``path`` for an error message: printable, and cut from the left to a sane length."""
    text = _printable(os.fspath(path))
    return text if len(text) <= 120 else "..." + text[-117:]


def decode_reason(error: Exception, kind: type[object]) -> str:
    """Return what msgspec complains of in one line, its JSON path first.

    Args:
        error: A decoding error of msgspec.
        kind: The type that was decoded; its enumerations are listed where a value is none of them.

    >>> decode_reason(ValueError("Expected `int`, got `str` - at `$.ranks`"), dict)
    '$.ranks: Expected `int`, got `str`'
    >>> decode_reason(msgspec.ValidationError("Object missing required field `name`"), dict)
    'Object missing required field `name`'
    """
    # The last one: a key of the user's own may hold the same words.
    what, _, where = _printable(str(error)).rpartition(" - at ")
    if not what:  # the whole of it: no path is named
        return (
            where[:200]
            if isinstance(error, msgspec.ValidationError)
            else f"not readable as JSON: {where[:200]}"
        )
    where = where.strip("`")
    if value := re.fullmatch("Invalid enum value '(.*)'", what):
        allowed = [str(v) for part in _types_at(kind, where) for v in getattr(part, "values", ())]
        what = _unknown_value(value[1], tuple(allowed))
    elif field := re.fullmatch("Object contains unknown field `(.*)`", what):
        parts = _types_at(kind, where)
        names = [each.encode_name for part in parts for each in getattr(part, "fields", ())]
        what += _hint((field[1].lower(),), names)
    return f"{where[:200]}: {what[:400]}"


def _unknown_value(value: str, allowed: tuple[str, ...]) -> str:
    hint = _hint(_SYNONYMS.get(value.lower(), (value.lower(),)), allowed)
    return f"{value[:60]!r} is not known; expected one of {', '.join(allowed)}{hint}"


def _hint(words: Sequence[str], known: Sequence[str]) -> str:
    import difflib

    likely = [match for word in words for match in difflib.get_close_matches(word, known, 1)]
    return f"; did you mean {likely[0]!r}?" if likely else ""


def _types_at(kind: type[object], where: str) -> list[Any]:
    """Return the types that may stand at a JSON path, none where the path leads elsewhere."""
    types: list[Any] = [msgspec.inspect.type_info(kind)]
    for name in re.findall(r"\.(\w+)|\[", where):
        parts: list[Any] = [part for each in types for part in getattr(each, "types", [each])]
        if name:
            fields = [field for part in parts for field in getattr(part, "fields", ())]
            types = [field.type for field in fields if field.encode_name == name]
        else:
            keys = ("item_type", "value_type")
            types = [getattr(part, key) for part in parts for key in keys if hasattr(part, key)]
    return [part for each in types for part in getattr(each, "types", [each])]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
