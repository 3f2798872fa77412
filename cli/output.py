"""Output of verbs: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from tuccl.errors import InputError
from tuccl.files import write_file


def say(line: str) -> None:
    """Print a line of progress or of an error to standard error."""
    print(line, file=sys.stderr, flush=True)


def one_line(message: str) -> str:
    r"""Return ``message`` with line ends and control characters made visible.

    >>> one_line("a\nb")
    'a b'
    """
    flat = " ".join(message.split())
    return "".join(c if c.isprintable() else "?" for c in flat)


def warn(warnings: Iterable[str]) -> None:
    """Print each warning on a line of its own to standard error."""
    for line in warnings:
        say(f"warning: {one_line(line)}")


def warn_new(path: Path) -> None:
    """Print a warning if ``path``, with which --resume goes on, is not there."""
    if not path.exists():
        warn([f"--resume: {path} is not there; this begins anew"])


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return the part of a refusal that names what may have been meant.

    >>> did_you_mean("tun", ["tune", "train"])
    '; did you mean tune?'
    """
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print one JSON object to standard output."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_json_lines(rows: Iterable[Any]) -> None:
    """Print one JSON object a line to standard output."""
    for row in rows:
        print_json(row)


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return ``rows`` under ``header`` in aligned columns, numbers to the right.

    >>> print(columns(["size", "us"], [["1K", 2.5], ["64K", 10.0]]))
    size     us
      1K   2.50
     64K  10.00
    """
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    words = [all(_is_word(row[i]) for row in rows) for i in range(len(header))]
    lines = (
        "  ".join(
            text.ljust(width) if word else text.rjust(width)
            for text, width, word in zip(row, widths, words, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _is_word(value: object) -> bool:
    if isinstance(value, str):
        return " " in value or not value[:1].isdigit()
    return value is None


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.0f}"
    return "-" if value is None else str(value)


def check_target(path: Path) -> None:
    """Refuse to work long for a file that cannot be written.

    Raises:
        InputError: the folder of ``path`` is not there, or ``path`` is a folder.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first")


def check_picture(name: str | None) -> None:
    """Refuse a picture's file that cannot be written, or whose name is of another format.

    Raises:
        InputError: such a file.
    """
    if name is None:
        return
    if Path(name).suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".pdf"):
        raise InputError(f"{name}: pictures are SVG; name it {Path(name).stem}.svg")
    check_target(Path(name))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` whole or not at all.

    Raises:
        InputError: the folder of ``path`` is not there, or ``path`` is a folder.
    """
    check_target(path)
    write_file(path, text.encode())
