"""A small, safe XML reader: bounded, without declarations of entities, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from tuccl.errors import InputError
from tuccl.topology.graph import quoted

_MOST_DEPTH = 64
_MOST_ELEMENTS = 100_000
_MOST_CHARACTERS = 4096
_MOST_PROLOGUE = 1 << 16
# What may precede the root element; the possessive parts keep the match linear.
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?[^>]*+>|<!--(?:[^-]|-(?!->))*+-->|<![A-Za-z][^\[>]*+>)*+"
    rb"<([A-Za-z_][\w.-]{0,60})"
)
_DECLARATION = re.compile(rb"(?:\s++|<!--(?:[^-]|-(?!->))*+-->)*+(<\?xml\s[^>]*+>)")


@dataclass(slots=True)
class Element:
    """A tag with its attributes.

    Attributes:
        tag: its name.
        attributes: as written.
        place: ``file:line``, for messages.
        line: where it starts.
        children: in the order of the file.
        text: between the tags, of the tags that may have some.
    """

    tag: str
    attributes: dict[str, str]
    place: str
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""

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


def read_xml(
    data: bytes,
    path: str,
    text_tags: Collection[str] | None = (),
    expected: str = "an NCCL topology file (<system>)",
) -> Element:
    """Return the root element of ``data``.

    Args:
        data: the file.
        path: of the file, for messages.
        text_tags: the elements that may hold text; None: all.
        expected: what the file should be, for messages.

    Raises:
        InputError: it is not well formed, declares entities, or is too deep or too large.
    """
    builder = _Builder(path, text_tags)
    try:
        builder.parser.Parse(_without_declaration(data), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise InputError(
            f"{path}:{error.lineno}: not well-formed XML: {reason}; expected {expected}"
        ) from None
    if builder.root is None:
        raise InputError(f"{path}: no element; expected {expected}")
    return builder.root


def _without_declaration(data: bytes) -> bytes:
    """Return ``data`` with an XML declaration that something precedes blanked, as NCCL reads it."""
    match = _DECLARATION.match(data[:_MOST_PROLOGUE])
    if match is None or not match.start(1):
        return data
    return data[: match.start(1)] + re.sub(rb"[^\n]", b" ", match[1]) + data[match.end(1) :]


def root_tag(data: bytes) -> str:
    """Return the name of the root element that ``data`` begins with, ``""`` where it is no XML.

    Document types are passed over: hwloc's files have one that says nothing.

    >>> root_tag(b"<!-- of a VM --><system version='1'>"), root_tag(b"GPU0 GPU1")
    ('system', '')
    """
    match = _ROOT.match(data[:_MOST_PROLOGUE])
    return match[1].decode(errors="replace") if match else ""


class _Builder:
    def __init__(self, path: str, text_tags: Collection[str] | None) -> None:
        # The encoding is fixed: other declarations could name any codec.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.root: Element | None = None
        self._path = path
        self._text_tags = text_tags
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
        tags = self._text_tags
        if self._open and (tags is None or self._open[-1].tag in tags):
            self._open[-1].text += text
        elif text.strip():
            raise self._refuse(f"text {quoted(text.strip())} outside of any tag; remove it")

    def _doctype(
        self, name: str, system: str | None, public: str | None, has_declarations: bool
    ) -> None:
        if has_declarations:
            raise self._refuse("a document type with declarations; remove it (none are read)")
