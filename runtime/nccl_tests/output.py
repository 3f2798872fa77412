"""The output of nccl-tests: thirteen columns of text, and the JSON of ``-J``."""

from __future__ import annotations

import math

import msgspec

from tuccl.errors import InputError

# size count type redop root, then time algbw busbw #wrong out of place and in place.
_OUT_WORD, _IN_WORD = 5, 9
_LEAST_WORDS = 8
_HEADER = "# nThread"
_RANK = "Rank"
_BOUNDS = "# Out of bounds values"


class TestsRow(msgspec.Struct, frozen=True):
    """One size: times in us by placement, None where not run; wrong elements, None if unchecked."""

    nbytes: int
    time_us: float | None
    time_us_ip: float | None
    wrong: int | None = None
    wrong_ip: int | None = None


class TestsOutput(msgspec.Struct, frozen=True):
    """The rows in order; ``ranks`` that took part (0: not said), ``tables`` printed, failures.

    ``args`` is the command as the JSON has it.
    """

    rows: tuple[TestsRow, ...]
    ranks: int = 0
    tables: int = 1
    out_of_bounds: bool = False
    args: tuple[str, ...] = ()


def read_text(text: str, where: str) -> TestsOutput:
    r"""Return what nccl-tests printed; other programs' lines between are passed over.

    >>> read_text("1024 256 float sum -1 36.1 0.03 0.05 0 35.8 0.03 0.05 N/A", "f").rows
    (TestsRow(nbytes=1024, time_us=36.1, time_us_ip=35.8, wrong=0, wrong_ip=None),)

    Raises:
        InputError: a row holds something else than times; names ``where`` and the line.

    Notes:
        NVIDIA/nccl-tests src/util.cu (writeBenchmarkLineBody).
    """
    rows = []
    ranks: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words[:2] == ["#", _RANK] and len(words) > 2:
            ranks.add(words[2])
        elif len(words) >= _LEAST_WORDS and words[0].isdecimal() and words[1].isdecimal():
            rows.append(_row(words, f"{where}:{number}"))
    failed = [w for w in text.splitlines() if w.startswith(_BOUNDS) and "FAILED" in w]
    return TestsOutput(tuple(rows), len(ranks), text.count(_HEADER), bool(failed))


def _row(words: list[str], where: str) -> TestsRow:
    def word(at: int) -> str | None:
        return words[at] if at < len(words) else None

    return TestsRow(
        _size(words[0], where),
        _time(word(_OUT_WORD), where, words[0]),
        _time(word(_IN_WORD), where, words[0]),
        _wrong(word(_OUT_WORD + 3), where),
        _wrong(word(_IN_WORD + 3), where),
    )


class _Placement(msgspec.Struct, frozen=True):
    time: float | str | None = None
    cpu_time: float | str | None = None
    nwrong: float | None = None


class _Result(msgspec.Struct, frozen=True):
    size: int
    out_of_place: _Placement | None = None
    in_place: _Placement | None = None


class _Config(msgspec.Struct, frozen=True):
    devices: tuple[dict[str, object], ...] = ()


class _Json(msgspec.Struct, frozen=True):
    results: tuple[_Result, ...] = ()
    config: _Config = _Config()
    args: tuple[str, ...] = ()


def read_json(text: str, where: str) -> TestsOutput:
    """Return what nccl-tests wrote with ``-J``.

    >>> read_json('{"results": [{"size": 8, "in_place": {"time": 2.5, "nwrong": 0}}]}', "f").rows
    (TestsRow(nbytes=8, time_us=None, time_us_ip=2.5, wrong=None, wrong_ip=0),)

    Raises:
        InputError: it is something else; names ``where`` and the place in it.
    """
    try:
        read = msgspec.json.decode(text, type=_Json, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; expected nccl-tests' JSON output") from None
    rows = tuple(_from_json(r, f"{where}: $.results[{n}]") for n, r in enumerate(read.results))
    return TestsOutput(rows, len(read.config.devices), args=read.args)


def _from_json(result: _Result, where: str) -> TestsRow:
    def time(placed: _Placement | None) -> float | None:
        us = None if placed is None else placed.time if placed.time is not None else placed.cpu_time
        return _time(None if us is None else str(us), where, str(result.size))

    def wrong(placed: _Placement | None) -> int | None:
        return None if placed is None or placed.nwrong is None else int(placed.nwrong)

    outside, inside = result.out_of_place, result.in_place
    nbytes = _size(str(result.size), where)
    return TestsRow(nbytes, time(outside), time(inside), wrong(outside), wrong(inside))


def _size(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{where}: size {text[:20]!r}: expected bytes") from None


def _time(text: str | None, where: str, size: str) -> float | None:
    """A time in us; None where nothing was measured."""
    if text is None or text in ("", "N/A", "-"):
        return None
    try:
        us = float(text)
    except ValueError:
        raise InputError(
            f"{where}: size {size[:20]!r}, time {text[:20]!r}: expected bytes and us"
        ) from None
    if not math.isfinite(us) or us < 0:
        raise InputError(f"{where}: {size[:20]} bytes in {us} us: expected neither below zero")
    return us if us > 0 else None


def _wrong(text: str | None, where: str) -> int | None:
    if text is None or text in ("", "N/A", "-"):
        return None
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise InputError(f"{where}: #wrong {text[:20]!r}: expected a count or N/A") from None
