"""Host lists as Slurm writes them: ``node[01-16,20],login``."""

from __future__ import annotations

import itertools
import re

from tuccl.errors import InputError
from tuccl.topology.graph import quoted

MOST_NAMES = 1 << 17
_MOST_HOSTS = 65536
_MOST_CHARACTERS = 255
_TERM = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def hostlist(text: str) -> list[str]:
    """Return the names that a list with ranges in brackets stands for, in its order.

    >>> hostlist("tux[08-10,12],login")
    ['tux08', 'tux09', 'tux10', 'tux12', 'login']
    >>> hostlist("r[1-2]n[0-1]")
    ['r1n0', 'r1n1', 'r2n0', 'r2n1']

    Raises:
        InputError: a bracket or a range is not closed or falls, or names are too many or too long.
    """
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        match = _TERM.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in ("", ","):
            raise InputError(f"{quoted(text)}: expected host names like node[01-16,20],login")
        names += _expanded(match[0], _MOST_HOSTS - len(names))
        at = match.end() + 1
        if at == len(text):
            raise InputError(f"{quoted(text)}: ends in a comma; expected another name")
    return names


def _expanded(term: str, most: int) -> list[str]:
    """Return the names of one term, its ranges multiplied out, first bracket slowest."""
    parts = []
    count = 1
    for place, part in enumerate(re.split(r"\[([^\]]*)\]", term)):
        texts = _numbers(part, term, most) if place % 2 else [part]
        count *= len(texts)
        if count > most:
            raise InputError(f"{quoted(term)}: more than {_MOST_HOSTS} names in the list")
        parts.append(texts)
    if sum(max(map(len, texts)) for texts in parts) > _MOST_CHARACTERS:
        raise InputError(f"{quoted(term)}: expected names of at most {_MOST_CHARACTERS} characters")
    return ["".join(combination) for combination in itertools.product(*parts)]


def _numbers(ranges: str, term: str, most: int) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first:
            raise InputError(f"{quoted(term)}: expected rising ranges in brackets, like [01-16,20]")
        if last - first >= most - len(numbers):
            raise InputError(f"{quoted(term)}: more than {_MOST_HOSTS} names in the list")
        width = len(match[1])
        numbers += [f"{number:0{width}}" for number in range(first, last + 1)]
    return numbers
