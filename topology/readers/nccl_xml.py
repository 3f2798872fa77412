"""Reads NCCL's and RCCL's topology XML, as dumped or as clouds publish it, into one host."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.xml_tree import Element, read_xml, root_tag

_MOST_BYTES = 1 << 24
_OTHER_ROOTS = {
    "graphs": "an NCCL graph file; dump the topology instead, with NCCL_TOPO_DUMP_FILE",
    "algo": "an MSCCL program; `tuccl verify` reads those",
    "topology": "hwloc's; `tuccl probe --from` reads both",
}


def read_nccl_xml(
    path: str | os.PathLike[str], name: str | None = None
) -> tuple[Topology, tuple[str, ...]]:
    """Return the host that an NCCL or RCCL topology XML describes, and warnings about the file.

    Args:
        path: the file.
        name: of the topology; the file's stem if not given.

    Raises:
        InputError: the file cannot be read, is no topology XML, or describes no GPU.
    """
    data = read_bounded(path, _MOST_BYTES)
    stem = "".join(c if c.isprintable() else "?" for c in Path(path).stem)[:200]
    return decode_nccl_xml(data, path, name or stem or "machine")


def decode_nccl_xml(
    data: bytes, path: str | os.PathLike[str] = "<xml>", name: str = "machine"
) -> tuple[Topology, tuple[str, ...]]:
    """Return what `read_nccl_xml` returns for a file that holds ``data``.

    >>> bare = b'''<system version="1"><cpu numaid="0">
    ...   <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    ...   <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    ... </cpu></system>'''
    >>> t, warnings = decode_nccl_xml(bare, name="two")
    >>> [(link.src, link.dst, link.bandwidth) for link in t.links]
    [('gpu0', 'cpu0', 31.52), ('gpu1', 'cpu0', 31.52)]

    Raises:
        InputError: as `read_nccl_xml`.
    """
    place = printable_path(path)
    root = read_xml(data, place)
    _check_root(root)
    return host_of(root, place, name)


def _check_root(root: Element) -> None:
    if root.tag != "system":
        what = _OTHER_ROOTS.get(root.tag, f"an XML file of <{root.tag[:40]}>")
        raise InputError(f"{root.place}: expected an NCCL topology (<system>), but this is {what}")
    if root.integer("version", 0, 99) not in (1, 2):
        raise InputError(
            f"{root.place}: <system version={quoted(root.get('version'))}>; expected 1 (NCCL) or "
            "2 (RCCL)"
        )
    hashes = {cpu.get("host_hash") for cpu in root.all("cpu")}
    if len(hashes) > 1:
        raise InputError(
            f"{root.place}: {len(hashes)} hosts in one file; keep the <cpu> of one host_hash"
        )


NCCL_XML = Reader(
    "nccl",
    "NCCL's or RCCL's topology XML (NCCL_TOPO_DUMP_FILE)",
    lambda data: root_tag(data) == "system",
    decode_nccl_xml,
)
