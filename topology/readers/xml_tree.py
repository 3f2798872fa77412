"""A small, safe XML reader: bounded, without document types or entities, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from tuccl.errors import InputError
from tuccl.topology.graph import quoted

__all__ = ["Element", "read_xml", "root_tag"]

_MOST_DEPTH = 64
_MOST_ELEMENTS = 100_000
_MOST_CHARACTERS = 4096
_MOST_PROLOGUE = 1 << 16
# What may precede the root element; the possessive parts keep the match linear.
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?[^>]*+>|<!--(?:[^-]|-(?!->))*+-->|<![A-Za-z][^\[>]*+>)*+"
    rb"<([A-Za-z_][\w.-]{0,60})"
)


@dataclass(slots=True)
class Element:
    """A tag with its attributes.

    Attributes:
        tag: its name.
        attributes: as written.
        place: ``file:line``, for messages.
        line: where it starts.
        children: in the order of the file.
    """

    tag: str
    attributes: dict[str, str]
    place: str
    line: int
    children: list[Element] = field(default_factory=list)

    def get(self, name: str) -> str:
        """Return the attribute ``name``, ``""`` where it is missing."""
        return self.attributes.get(name, "")

    def all(self, tag: str) -> tuple[Element, ...]:
        """Return the children called ``tag``."""
        return tuple(child for child in self.children if child.tag == tag)

    def walk(self) -> Iterator[Element]:
        """Return this element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return the attribute ``name`` as a whole number, None where it is missing or empty.

        Raises:
            InputError: it is no number from ``low`` to ``high``.
        """
        text = self.get(name).strip()
        if not text:
            return None
        if not re.fullmatch("-?[0-9]{1,15}", text) or not low <= int(text) <= high:
            raise InputError(
                f"{self.place}: <{self.tag} {name}={quoted(text)}>; expected a whole number from "
                f"{low} to {high}"
            )
        return int(text)


def read_xml(data: bytes, path: str) -> Element:
    """Return the root element of ``data``; ``path`` stands in the messages.

    Raises:
        InputError: it is not well formed, has a document type, or is too deep or too large.
    """
    builder = _Builder(path)
    try:
        builder.parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise InputError(
            f"{path}:{error.lineno}: not well-formed XML: {reason}; expected an NCCL topology file"
        ) from None
    if builder.root is None:
        raise InputError(f"{path}: no element; expected an NCCL topology file (<system>)")
    return builder.root


def root_tag(data: bytes) -> str:
    """Return the name of the root element that ``data`` begins with, ``""`` where it is no XML.

    Document types are passed over: hwloc's files have one that says nothing.

    >>> root_tag(b"<!-- of a VM --><system version='1'>"), root_tag(b"GPU0 GPU1")
    ('system', '')
    """
    match = _ROOT.match(data[:_MOST_PROLOGUE])
    return match[1].decode(errors="replace") if match else ""


class _Builder:
    def __init__(self, path: str) -> None:
        # The encoding is fixed: declarations of others could ask for any codec.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.root: Element | None = None
        self._path = path
        self._open: list[Element] = []
        self._count = 0

    def _refuse(self, what: str) -> InputError:
        return InputError(f"{self._path}:{self.parser.CurrentLineNumber}: {what}")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _MOST_DEPTH or self._count > _MOST_ELEMENTS:
            raise self._refuse(
                f"more than {_MOST_DEPTH} levels or {_MOST_ELEMENTS} elements; expected a smaller "
                "file"
            )
        for name, value in attributes.items():
            if len(value) > _MOST_CHARACTERS:
                raise self._refuse(f"attribute {quoted(name)} is longer than {_MOST_CHARACTERS}")
        line = self.parser.CurrentLineNumber
        element = Element(tag, attributes, f"{self._path}:{line}", line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        if text.strip():
            raise self._refuse(f"text {quoted(text.strip())} outside of any tag; remove it")

    def _doctype(self, *_: object) -> None:
        raise self._refuse("a document type; remove it (entities are not read)")
