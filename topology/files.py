"""Reading and writing ``topology.json`` (``tuccl-topology/1``)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import FORMAT, Topology

__all__ = ["decode_topology", "encode_topology", "load_topology", "save_topology"]

_MOST_BYTES = 1 << 28


def load_topology(path: str | os.PathLike[str]) -> Topology:
    """Return the topology in the file ``path``.

    Raises:
        InputError: the file cannot be read, is another kind of file, or contradicts itself.
    """
    return decode_topology(read_bounded(path, _MOST_BYTES), path)


def decode_topology(data: bytes, path: str | os.PathLike[str] = "<topology>") -> Topology:
    """Return the topology that ``data`` holds as JSON; ``path`` stands in the error messages.

    Raises:
        InputError: ``data`` is no sound ``tuccl-topology/1``.
    """
    place = shown_path(path)
    _refuse_other_kinds(data, place)
    try:
        return msgspec.json.decode(data, type=Topology)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError and ends in "- at `$.nodes[0].kind`".
        text, _, where = str(error).partition(" - at ")
        at = f" {where.strip('`')}:" if where else ""
        raise InputError(
            f'{place}:{at} {text[:200]}; expected topology JSON, "format": "{FORMAT}"'
        ) from None


def encode_topology(topology: Topology) -> bytes:
    """Return the topology as JSON, one node, link or route a line; equal values, equal bytes.

    >>> from tuccl.topology import load_profile
    >>> t = load_profile("v100x4")
    >>> decode_topology(encode_topology(t)) == t
    True
    """
    encode = msgspec.json.encode
    parts = [b'{"format": ' + encode(topology.format), b'"name": ' + encode(topology.name)]
    for key, entries in (
        ("nodes", topology.nodes),
        ("links", topology.links),
        ("routes", topology.routes),
    ):
        if entries or key != "routes":
            lines = b",\n  ".join(encode(entry) for entry in entries)
            parts.append(b'"%s": [\n  %s\n ]' % (key.encode(), lines))
    return b",\n ".join(parts) + b"}\n"


def save_topology(topology: Topology, path: str | os.PathLike[str]) -> None:
    """Write ``topology`` to ``path``, whole or not at all.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InputError(f"{shown_path(path)}: cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(encode_topology(topology))
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{shown_path(path)}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


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
        raise InputError(f"{shown_path(path)}: cannot be read: {reason}") from None
    if len(data) > most:
        raise InputError(f"{shown_path(path)}: longer than {most} bytes; expected a smaller file")
    return data


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return ``path`` for an error message: printable, and cut from the left to a sane length."""
    text = "".join(c if c.isprintable() else "?" for c in os.fspath(path))
    return text if len(text) <= 120 else "..." + text[-117:]


def _refuse_other_kinds(data: bytes, place: str) -> None:
    if data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        graphs = b"<graphs" in data[:4096]
        what = "an NCCL graph file (<graphs>)" if graphs else "XML"
        mend = (
            "dump the topology instead, with NCCL_TOPO_DUMP_FILE"
            if graphs
            else "turn it into one with `tuccl probe --from FILE -o topology.json`"
        )
        raise InputError(f"{place}: {what}, but topology JSON is expected; {mend}")
    if not data.strip():
        raise InputError(f'{place}: empty; expected topology JSON, "format": "{FORMAT}"')


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
