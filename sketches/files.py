"""Sketch files: ours are read and written, TACCL's are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.files import (
    decode_reason,
    printable_path,
    read_bounded,
    write_file,
    write_files,
)
from tuccl.sketches.checks import checked
from tuccl.sketches.sketch import SKETCH_FORMAT, Sketch
from tuccl.sketches.taccl import MOST_BYTES, decode_taccl_sketch, taccl_to_sketch
from tuccl.sketches.taccl_profile import TacclProfile
from tuccl.topology.graph import Topology


def decode_sketch(data: bytes, path: str = "<bytes>") -> Sketch:
    """Return the sketch that `data` (``tuccl-sketch/1``) holds, fully checked.

    Raises:
        InputError: not JSON, not that format, or a rule on sketches is broken.
    """
    try:
        # Without its name a file would pass for one of this format by the field's default.
        if "format" not in msgspec.json.decode(data, type=dict[str, msgspec.Raw]):
            raise InputError(f"{path[:200]}: $.format: missing; expected {SKETCH_FORMAT!r}")
        return checked(msgspec.json.decode(data, type=Sketch), path)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path[:200]}: {decode_reason(error, Sketch)}; expected {SKETCH_FORMAT}"
        ) from None


def encode_sketch(sketch: Sketch) -> bytes:
    """Return `sketch` as canonical JSON, one link a line.

    >>> lonely = Sketch(name="x", ranks=1, hosts=(0,), links=())
    >>> b'"format": "tuccl-sketch/1"' in encode_sketch(lonely)
    True
    """
    fields = msgspec.to_builtins(sketch, str_keys=True)
    lines = [f'"format": "{fields.pop("format")}"']
    for name, value in fields.items():
        lines.append(f'"{name}": {_lines(value) if name in ("links", "pruned") else _line(value)}')
    return ("{\n " + ",\n ".join(lines) + "\n}\n").encode()


def _line(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _lines(items: list[object]) -> str:
    return "[\n  " + ",\n  ".join(map(_line, items)) + "\n ]" if items else "[]"


def load_sketch(
    path: str | os.PathLike[str], topology: Topology | TacclProfile | None = None
) -> Sketch:
    """Return the sketch in the file `path`, ours or TACCL's (known by its keys).

    Args:
        path: The file.
        topology: What a TACCL sketch, which names no link costs, is applied to: the machine
            itself or a profile read by `read_taccl_profile`. Our files need none; if a topology
            is given, the sketch must have its ranks and hosts.

    Raises:
        InputError: unreadable, damaged, or a rule on sketches is broken.
    """
    data = read_bounded(path, MOST_BYTES)
    name = printable_path(path)
    if _is_taccl(data):
        if topology is None:
            raise InputError(f"{name[:200]}: a TACCL sketch has no link costs: give its topology")
        return taccl_to_sketch(decode_taccl_sketch(data, name), topology, Path(path).stem, name)
    sketch = decode_sketch(data, name)
    if isinstance(topology, Topology):
        _match(sketch, topology, name)
    return sketch


def _is_taccl(data: bytes) -> bool:
    try:
        keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return "format" not in keys and bool(keys & {"nnodes", "intranode_sketch", "hyperparameters"})


def _match(sketch: Sketch, topology: Topology, path: str) -> None:
    names = topology.hosts
    hosts = tuple(names.index(topology.host_of(rank)) for rank in range(topology.ranks))
    if sketch.hosts != hosts:
        raise InputError(
            f"{path[:200]}: $.hosts: a sketch of {sketch.ranks} ranks on {sketch.nhosts} hosts; "
            f"the topology has {topology.ranks} on {len(names)}: make a sketch for it"
        )


def save_sketches(sketches: Sequence[Sketch], folder: str | os.PathLike[str]) -> list[Path]:
    """Write `sketches` into `folder`, all or none, so that files sort by rank; return their paths.

    Raises:
        InputError: a sketch breaks a rule, or the folder cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"{rank:02d}-{s.name}.json" for rank, s in enumerate(sketches)]
    each = zip(paths, sketches, strict=True)
    write_files({path: encode_sketch(checked(s, printable_path(path))) for path, s in each})
    return paths


def save_sketch(sketch: Sketch, path: str | os.PathLike[str]) -> None:
    """Write `sketch` to the file `path`, whole or not at all.

    Raises:
        InputError: the sketch breaks a rule, or the file cannot be written.
    """
    checked(sketch, printable_path(path))
    write_file(path, encode_sketch(sketch))
