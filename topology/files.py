"""Reading and writing ``topology.json`` (``tuccl-topology/1``)."""

from __future__ import annotations

import os

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded, write_file
from tuccl.topology.graph import FORMAT, Topology

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
    place = printable_path(path)
    _refuse_other_kinds(data, place)
    try:
        return msgspec.json.decode(data, type=Topology)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = decode_reason(error, Topology)
        raise InputError(
            f'{place}: {reason}; expected topology JSON, "format": "{FORMAT}"'
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

    >>> import tempfile, tuccl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tuccl.save_topology(tuccl.profile("v100x4"), folder + "/host.json")
    ...     tuccl.read_topology(folder + "/host.json").ranks
    4

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    write_file(path, encode_topology(topology))


def _refuse_other_kinds(data: bytes, place: str) -> None:
    if data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        graphs = b"<graphs" in data[:4096]
        what = "an NCCL graph file (<graphs>)" if graphs else "XML"
        fix = (
            "dump the topology instead, with NCCL_TOPO_DUMP_FILE"
            if graphs
            else "turn it into one with `tuccl probe --from FILE -o topology.json`"
        )
        raise InputError(f"{place}: {what}, but topology JSON is expected; {fix}")
    if not data.strip():
        raise InputError(f'{place}: empty; expected topology JSON, "format": "{FORMAT}"')
