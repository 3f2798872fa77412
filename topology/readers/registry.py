"""The readers of hosts, and reading a file by what it holds, never by its name."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.topology.files import decode_topology
from tuccl.topology.graph import Topology
from tuccl.topology.readers.fabrics import FABRIC_READERS
from tuccl.topology.readers.hwloc import HWLOC
from tuccl.topology.readers.look_alikes import look_alike
from tuccl.topology.readers.nccl_xml import NCCL_XML
from tuccl.topology.readers.reader import Reader, reader_of
from tuccl.topology.readers.rocm_smi import ROCM_SMI
from tuccl.topology.readers.smi_topo import SMI_TOPO
from tuccl.topology.readers.sysfs import SYSFS, read_sysfs

_MOST_BYTES = 1 << 28


def _decode_json(data: bytes, path: str, _: str) -> tuple[Topology, tuple[str, ...]]:
    try:
        return decode_topology(data, path), ()
    except InputError:
        if what := _other_kind(data):
            raise InputError(f"{printable_path(path)}: {what}") from None
        raise


def _other_kind(data: bytes) -> str:
    """Return what a file of no host is and what to do with it, empty where that is unknown."""
    is_fabric = any(reader.matches(data) for reader in FABRIC_READERS)
    return "lists switches, no host; give it as --fabric-file" if is_fabric else look_alike(data)


TOPOLOGY_JSON: Reader[Topology] = Reader(
    "tuccl",
    "topology.json, as this program writes it",
    lambda data: data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"),
    _decode_json,
)
HOST_READERS: tuple[Reader[Topology], ...] = (
    TOPOLOGY_JSON,
    NCCL_XML,
    SMI_TOPO,
    ROCM_SMI,
    HWLOC,
    SYSFS,
)


def read_host(
    path: str | os.PathLike[str], format: str | None = None, name: str | None = None
) -> tuple[Topology, tuple[str, ...]]:
    """Return the machine that a file of any known format describes, and warnings about it.

    Args:
        path: the file, or a folder that holds a machine's ``sys``.
        format: the name of one of `HOST_READERS`; chosen by the file's content if not given.
        name: of the topology, where the file holds none; the file's stem if not given.

    Raises:
        InputError: the file cannot be read, is of no known format, is damaged, or describes no
            GPU.
    """
    place = printable_path(path)
    stem = "".join(c if c.isprintable() else "?" for c in Path(path).stem)[:200]
    if Path(path).is_dir() and format in (None, SYSFS.name):
        return read_sysfs(path, name or stem or "machine")
    data = read_bounded(path, _MOST_BYTES)
    reader = reader_of(HOST_READERS, data, place, format)
    if reader is None and data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        reader = NCCL_XML  # Its refusal says what other XML files are.
    if reader is None:
        names = ", ".join(reader.name for reader in HOST_READERS)
        what = _other_kind(data) or f"no known format; expected one of {names}"
        raise InputError(f"{place}: {what} (see docs/reference/topology.md)")
    return reader.decode(data, os.fspath(path), name or stem or "machine")
