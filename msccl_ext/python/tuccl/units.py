"""Sizes and ranges as users write them: ``64M``, ``1K:1G:x4``; all in bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuccl.errors import InputError

__all__ = ["Size", "format_bytes", "parse_range", "parse_size", "size_bytes", "sizes_bytes"]

_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_POWER = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_MOST_SIZES = 4096

Size = int | str
"""Bytes of a call's whole array: a number, or text like ``"16M"``."""


def parse_size(text: str) -> int:
    """Return the bytes that ``text`` means; K, M, G and T are powers of two.

    >>> parse_size("64M")
    67108864

    Raises:
        InputError: ``text`` is no positive size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise InputError(
            f"size {text[:40]!r}: expected a whole number above 0 with K, M, G or T, like 64M"
        )
    return int(match[1]) << _POWER[match[2].upper()]


def parse_range(text: str) -> list[int]:
    """Return the sizes in bytes of ``FIRST:LAST:xFACTOR`` or ``FIRST:LAST:STEP``, or one size.

    >>> parse_range("1K:64K:x4")
    [1024, 4096, 16384, 65536]

    Raises:
        InputError: the range is malformed, falls, or has too many sizes.
    """
    first, *rest = text.split(":")
    if not rest:
        return [parse_size(first)]
    if len(rest) > 2:
        raise InputError(f"range {text[:40]!r}: expected FIRST:LAST:xFACTOR, like 1K:1G:x4")
    low, high = parse_size(first), parse_size(rest[0])
    if high < low:
        raise InputError(f"range {text[:40]!r}: the last size is smaller than the first")
    return _walk(low, high, rest[1] if len(rest) == 2 else "x2", text)


def size_bytes(size: Size) -> int:
    """Return the bytes of ``size``.

    >>> size_bytes(4096), size_bytes("16M")
    (4096, 16777216)

    Raises:
        InputError: it is no positive size.
    """
    if isinstance(size, str):
        return parse_size(size)
    if size < 1:
        raise InputError(f"size {size}: expected at least 1 byte")
    return size


def sizes_bytes(sizes: Size | Iterable[Size]) -> list[int]:
    """Return the bytes of each of ``sizes``: one size, several, or a range.

    >>> sizes_bytes(["1K", 4096]), sizes_bytes("1K:16K:x4")
    ([1024, 4096], [1024, 4096, 16384])

    Raises:
        InputError: one is no positive size, or there is none.
    """
    if isinstance(sizes, str):
        return parse_range(sizes)
    each = [size_bytes(size) for size in ([sizes] if isinstance(sizes, int) else sizes)]
    if not each:
        raise InputError("sizes: expected at least one")
    return each


def _walk(low: int, high: int, pace: str, text: str) -> list[int]:
    factor = int(pace[1:]) if re.fullmatch(r"x[0-9]{1,6}", pace) else 0
    if pace.startswith("x") and factor < 2:
        raise InputError(f"range {text[:40]!r}: expected a factor of at least 2, like x4")
    step = 0 if factor else parse_size(pace)
    sizes = [low]
    while (following := sizes[-1] * factor if factor else sizes[-1] + step) <= high:
        sizes.append(following)
        if len(sizes) > _MOST_SIZES:
            raise InputError(
                f"range {text[:40]!r}: more than {_MOST_SIZES} sizes; a step is in bytes, "
                "x4 multiplies"
            )
    return sizes


def format_bytes(nbytes: int) -> str:
    """Return ``nbytes`` as the shortest exact size.

    >>> format_bytes(1 << 20), format_bytes(1000)
    ('1M', '1000')
    """
    for unit in "TGMK":
        power = 1 << _POWER[unit]
        if nbytes >= power and nbytes % power == 0:
            return f"{nbytes // power}{unit}"
    return str(nbytes)
