"""Trees of small text files, in a folder or in a tar file that is never unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zlib
from pathlib import Path
from typing import Protocol

from tuccl.errors import InputError

_MOST_TEXT = 4096
_MOST_LINK = 1024
_MOST_FILES = 1 << 18
_MOST_UNPACKED = 1 << 28


class Tree(Protocol):
    """Folders, links and files below a root; what is not there is empty."""

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the folder ``path``."""

    def link(self, path: str) -> str:
        """Return what the link ``path`` points to, as written."""

    def text(self, path: str) -> str:
        """Return the beginning of the file ``path``, stripped."""


class Folder:
    """A tree on disk."""

    def __init__(self, root: Path) -> None:
        """Read below ``root``, or below its only folder if that is what holds ``sys``."""
        names = self._names(root)
        is_wrapped = "sys" not in names and len(names) == 1
        self._root = Path(os.path.realpath(root))
        if is_wrapped:
            self._root = self._folder(names[0]) or self._root

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the folder ``path``."""
        folder = self._folder(path)
        return self._names(folder) if folder else []

    def link(self, path: str) -> str:
        """Return what the link ``path`` points to, as written."""
        parent, _, name = path.rpartition("/")
        folder = self._folder(parent)
        try:
            return str((folder / name).readlink()) if folder else ""
        except OSError:
            return ""

    def text(self, path: str) -> str:
        """Return the beginning of the file ``path``, stripped."""
        parent, _, name = path.rpartition("/")
        folder = self._folder(parent)
        if folder is None:
            return ""
        try:
            # A captured tree may hold anything: files that are links, and pipes, are not read.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.open(folder / name, flags)
        except OSError:
            return ""
        try:
            is_file = stat.S_ISREG(os.fstat(file).st_mode)
            data = os.read(file, _MOST_TEXT) if is_file else b""
        except OSError:
            data = b""
        finally:
            os.close(file)
        return _text(data)

    def _folder(self, path: str) -> Path | None:
        """Return the folder behind its links, None where they lead out of the tree."""
        folder = Path(os.path.realpath(self._root / path))
        return folder if folder.is_relative_to(self._root) else None

    @staticmethod
    def _names(folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in folder.iterdir())[:_MOST_FILES]
        except OSError:
            return []


class Archive:
    """A tree in the bytes of a tar file, plain or packed by gzip, bzip2 or xz."""

    def __init__(self, data: bytes, place: str) -> None:
        """Read ``data``; ``place`` stands in the messages.

        Raises:
            InputError: it is damaged, or larger than any capture of /sys.
        """
        self._texts: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        plain = _unpacked(data, place)
        # A tar file ends in empty blocks: without them it was cut, if need be between two files.
        if plain[-1024:].strip(b"\0"):
            raise InputError(f"{place}: the tar file is cut short; capture it again")
        try:
            with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
                for count, member in enumerate(tar):
                    if count >= _MOST_FILES:
                        raise InputError(f"{place}: more than {_MOST_FILES} files; pack /sys alone")
                    self._add(tar, member)
        except (tarfile.TarError, EOFError, ValueError, OSError) as error:
            reason = str(error).splitlines()[0][:100] if str(error) else "damaged"
            raise InputError(f"{place}: not a sound tar file: {reason}; capture it again") from None
        self._prefix = "" if "sys" in self._names.get("", ()) else self._only_folder()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the folder ``path``."""
        return sorted(self._names.get(self._prefix + path, ()))

    def link(self, path: str) -> str:
        """Return what the link ``path`` points to, as written."""
        return self._links.get(self._prefix + path, "")

    def text(self, path: str) -> str:
        """Return the beginning of the file ``path``, stripped."""
        return self._texts.get(self._prefix + path, "")

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts or not parts:
            return
        path = "/".join(parts)
        if member.issym():
            if len(member.linkname) > _MOST_LINK:
                raise tarfile.TarError(f"a link of more than {_MOST_LINK} characters")
            self._links[path] = member.linkname
        elif member.isfile():
            content = tar.extractfile(member)
            self._texts[path] = _text(content.read(_MOST_TEXT)) if content else ""
        while path:
            parent, _, name = path.rpartition("/")
            siblings = self._names.setdefault(parent, set())
            if name in siblings:
                break  # and so are the folders above it
            siblings.add(name)
            path = parent

    def _only_folder(self) -> str:
        names = self._names.get("", set())
        return f"{next(iter(names))}/" if len(names) == 1 else ""


def is_archive(data: bytes) -> bool:
    """Return whether ``data`` begins as a tar file, or as something packed that may be one.

    >>> is_archive(b"BZh91AY"), is_archive(b"<system>")
    (True, False)
    """
    return data.startswith(tuple(_PACKINGS)) or data[257:262] == b"ustar"


def _unpacked(data: bytes, place: str) -> bytes:
    unpack = next((way for magic, way in _PACKINGS.items() if data.startswith(magic)), None)
    try:
        plain = data if unpack is None else unpack(data, _MOST_UNPACKED + 1)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).splitlines()[0][:100] if str(error) else "damaged"
        raise InputError(f"{place}: cannot be unpacked: {reason}; capture it again") from None
    if len(plain) > _MOST_UNPACKED:
        raise InputError(f"{place}: more than {_MOST_UNPACKED} bytes unpacked; pack /sys alone")
    return plain


def _from_bzip2(data: bytes, most: int) -> bytes:
    with bz2.open(io.BytesIO(data)) as file:
        return file.read(most)


def _from_gzip(data: bytes, most: int) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        return file.read(most)


def _from_xz(data: bytes, most: int) -> bytes:
    # Its header may claim gigabytes.
    unpacker = lzma.LZMADecompressor(memlimit=_MOST_UNPACKED)
    plain = unpacker.decompress(data, most)
    if not unpacker.eof and len(plain) < most:
        raise EOFError("it ends early")
    return plain


_PACKINGS = {b"BZh": _from_bzip2, b"\x1f\x8b": _from_gzip, b"\xfd7zXZ\x00": _from_xz}


def _text(data: bytes) -> str:
    # Files of /sys claim a page: tar pads what it read to that with zeros.
    return data.partition(b"\0")[0].decode(errors="replace").strip()
