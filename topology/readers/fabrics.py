"""The readers of fabrics, and reading a file by what it holds, never by its name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.topology.readers.ibnetdiscover import IBNETDISCOVER
from tuccl.topology.readers.infragraph import INFRAGRAPH
from tuccl.topology.readers.kubernetes import KUBERNETES
from tuccl.topology.readers.reader import Reader, reader_of
from tuccl.topology.readers.slurm import SLURM
from tuccl.topology.readers.slurm_yaml import SLURM_YAML
from tuccl.topology.switches import Fabric

_MOST_BYTES = 1 << 28

FABRIC_READERS: tuple[Reader[Fabric], ...] = (
    IBNETDISCOVER,
    SLURM,
    SLURM_YAML,
    KUBERNETES,
    INFRAGRAPH,
)


def read_fabric(
    path: str | os.PathLike[str], format: str | None = None, name: str | None = None
) -> tuple[Fabric, tuple[str, ...]]:
    """Return the switches that a file lists and what hangs on them, and warnings about the file.

    Args:
        path: the file.
        format: the name of one of `FABRIC_READERS`; chosen by the file's content if not given.
        name: of the fabric; the file's stem if not given.

    Raises:
        InputError: the file cannot be read, is of no known format, is damaged, or lists no switch.
    """
    place = printable_path(path)
    data = read_bounded(path, _MOST_BYTES)
    reader = reader_of(FABRIC_READERS, data, place, format)
    if reader is None:
        names = ", ".join(reader.name for reader in FABRIC_READERS)
        raise InputError(f"{place}: no fabric file; expected one of {names}")
    stem = "".join(c if c.isprintable() else "?" for c in Path(path).stem)[:200]
    fabric, warnings = reader.decode(data, os.fspath(path), name or stem or "fabric")
    parts = len(fabric.parts)
    apart = f"{place}: {parts} parts that no cable joins: rails, or a file that was cut"
    return fabric, (*warnings, *([apart] if parts > 1 else []))


_ACCELERATOR = re.compile(rb"""choice["']?\s*:\s*["']?xpu""")


def describes_fabric(path: str | os.PathLike[str]) -> bool:
    """Return whether the file is of a format of fabrics, not of hosts.

    Raises:
        InputError: it cannot be read.
    """
    if Path(path).is_dir():
        return False
    data = read_bounded(path, _MOST_BYTES)
    reader = reader_of(FABRIC_READERS, data, printable_path(path))
    # An InfraGraph with accelerators describes its hosts too.
    return reader is not None and not (reader is INFRAGRAPH and _ACCELERATOR.search(data))
