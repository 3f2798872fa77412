"""Reads the matrix that ``nvidia-smi topo -m`` prints, old or new, and ``topo -mp``'s beside it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.readers.classes import PHB, PIX, PXB, SYS, Classes, system_of_classes
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.system import host_of
from tuccl.topology.switches import natural

_MOST_BYTES = 1 << 24
_MOST_DEVICES = 2048
# Terminals underline the header; pasted text may have lost the escape character alone.
_UNDERLINE = re.compile(r"\x1b?\[[0-9;]{0,8}m")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_LEVELS = {"X": 0, "PIX": PIX, "PXB": PXB, "PHB": PHB, "NODE": PHB, "SYS": SYS, "SOC": SYS}
_NVLINKS = {f"NV{count}": count for count in range(1, 100)}
_CELLS = {*_LEVELS, *_NVLINKS}
_CPUS = re.compile("N/A|[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_NUMA = re.compile("N/A|-1|[0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*")
_AFFINITIES = {"CPU Affinity": _CPUS, "NUMA Affinity": _NUMA, "GPU NUMA ID": _NUMA}
_MOST_NUMA = 4095
_PEER_CELLS = {"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"}


@dataclass(slots=True)
class _Table:
    """A matrix, as far as it was read.

    Attributes:
        line: of its header.
        devices: the columns.
        columns: those that follow the devices: ``CPU Affinity`` and so on.
        rows: cells by device, in the order of the columns.
        lines: of the rows, by device.
        affinities: the CPUs and NUMA nodes that follow the cells, by device.
    """

    line: int
    devices: list[str]
    columns: list[str]
    rows: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    affinities: dict[str, list[str]] = field(default_factory=dict)


def _decode(data: bytes, path: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    place = printable_path(path)
    if len(data) > _MOST_BYTES:
        raise InputError(f"{place}: longer than {_MOST_BYTES} bytes; keep the matrix alone")
    text = data.decode("utf-8-sig", errors="replace")
    tables = _tables(text, place)
    if not tables:
        raise InputError(f"{place}: no header line with GPU0; paste all of `nvidia-smi topo -m`")
    classes = _classes(tables, place)
    classes.names = _names(classes.names, text, classes.warnings)
    if b"Legend" not in data:
        classes.warnings.append("no legend follows the matrix: its last line may be cut")
    topology, warnings = host_of(system_of_classes(classes, place), place, name)
    return topology, (*classes.warnings, *warnings)


def _matches(data: bytes) -> bool:
    """Return whether a row of classes, X among them, follows a header of GPUs."""
    lines = data[: 1 << 20].decode("utf-8-sig", errors="replace").splitlines()
    words = [_UNDERLINE.sub("", line).split() for line in lines]
    headers = (at for at, line in enumerate(words) if _header(line))
    first = next(headers, len(words))
    return any(line and _GPU.match(line[0]) and "X" in line for line in words[first + 1 :])


SMI_TOPO = Reader("nvidia-smi", "the matrix of `nvidia-smi topo -m`", _matches, _decode)


def _header(words: list[str]) -> list[str]:
    """Return the devices of a header line, none if the line is another."""
    if not words or not _GPU.fullmatch(words[0]):
        return []
    end = next((at for at, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    devices = words[:end]
    is_row = any(w in _CELLS or w in _PEER_CELLS or not w[0].isalpha() for w in devices)
    return [] if is_row else devices


def _tables(text: str, place: str) -> list[_Table]:
    tables: list[_Table] = []
    for line, content in enumerate(text.splitlines(), start=1):
        words = _UNDERLINE.sub("", content).split()
        if devices := _header(words):
            columns = re.findall("|".join(_AFFINITIES), " ".join(words[len(devices) :]))
            tables.append(_Table(line, devices, columns))
            if len(devices) > _MOST_DEVICES or len(set(devices)) < len(devices):
                raise InputError(
                    f"{place}:{line}: a column twice, or more than {_MOST_DEVICES}; paste the "
                    "matrix again"
                )
        elif tables and words and words[0] in tables[-1].devices:
            _add_row(tables[-1], words, f"{place}:{line}", line)
        elif words and _GPU.match(words[0]) and any(word in _CELLS for word in words[1:]):
            raise InputError(
                f"{place}:{line}: the row of {quoted(words[0])} has no column in a header above; "
                "paste the matrix again"
            )
    return tables


def _add_row(table: _Table, words: list[str], place: str, line: int) -> None:
    device, *cells = words
    count = len(table.devices)
    if device in table.rows:
        raise InputError(
            f"{place}: a second row of {device}, after line {table.lines[device]}; paste the "
            "matrix again"
        )
    cells, tail = cells[:count], cells[count:]
    if any(cell in _PEER_CELLS for cell in cells):
        raise InputError(f"{place}: a matrix of `topo -p2p`; paste that of `nvidia-smi topo -m`")
    fault = next((cell for cell in cells if cell not in _CELLS), None)
    is_shifted = (
        len(cells) < count or cells.count("X") != 1 or cells[table.devices.index(device)] != "X"
    )
    is_fused = len(tail) > 4 or any(word in _CELLS or word in table.devices for word in tail)
    if fault is not None or is_shifted or is_fused:
        reason = f"{quoted(fault)} is no class" if fault else f"not {count} classes, X for itself"
        raise InputError(
            f"{place}: the row of {device} is damaged: {reason}; paste the matrix again"
        )
    table.rows[device] = cells
    table.lines[device] = line
    table.affinities[device] = tail
    for column, word in zip(table.columns, tail, strict=False):
        if not _is_rising(column, word):
            raise InputError(
                f"{place}: the row of {device} is damaged: {column} {quoted(word)} is no rising "
                "list of ranges like 0-15,128-143; paste the matrix again"
            )


def _is_rising(column: str, word: str) -> bool:
    """Return whether ``word`` is a list of CPUs or NUMA nodes in rising order, or none."""
    if not _AFFINITIES[column].fullmatch(word):
        return False
    ranges = [part.split("-") for part in word.split(",") if part[0].isdecimal()]
    ends = [(int(part[0]), int(part[-1])) for part in ranges]
    rises = all(low <= high for low, high in ends)
    rises &= all(one[1] < other[0] for one, other in itertools.pairwise(ends))
    return rises and (column == "CPU Affinity" or all(high <= _MOST_NUMA for _, high in ends))


def _check_affinities(table: _Table, gpus: Sequence[str], place: str) -> None:
    """Refuse a row that lacks a cell which the other rows of GPUs have."""
    counts = {gpu: len(table.affinities[gpu]) for gpu in gpus}
    for gpu, count in counts.items():
        if count != max(counts.values()):
            raise InputError(
                f"{place}:{table.lines[gpu]}: the row of {gpu} is damaged: {count} cells after "
                f"the classes, {max(counts.values())} in others; paste the matrix again"
            )


def _classes(tables: list[_Table], place: str) -> Classes:
    """Return what the tables say together: `topo -mp` gives the classes that NVLink hides."""
    first = tables[0]
    gpus = sorted((d for d in first.devices if _GPU.fullmatch(d)), key=lambda d: int(d[3:]))
    devices = [*gpus, *sorted(set(first.devices) - set(gpus), key=natural)]
    levels = [[0] * len(devices) for _ in devices]
    nvlinks = [[0] * len(devices) for _ in devices]
    for table in tables:
        rows = _rows(table, devices, first, place)
        _check_affinities(table, gpus, place)
        for at, row in enumerate(rows):
            for peer, cell in enumerate(row):
                if cell in _NVLINKS:
                    nvlinks[at][peer] = _NVLINKS[cell]
                elif not levels[at][peer]:
                    levels[at][peer] = _LEVELS[cell]
                elif levels[at][peer] != _LEVELS[cell]:
                    raise InputError(
                        f"{place}:{table.lines[devices[at]]}: {devices[at]} to {devices[peer]} is "
                        f"{cell}, but not in the first matrix; keep one machine a file"
                    )
    return Classes(
        gpus=len(gpus),
        lines=[first.lines[device] for device in devices],
        levels=levels,
        nvlinks=[row[: len(gpus)] for row in nvlinks[: len(gpus)]],
        affinities=[" ".join(first.affinities[gpu][:2]) for gpu in gpus],
        names=devices[len(gpus) :],
        numa=[_numa(first, gpu) for gpu in gpus],
    )


def _numa(table: _Table, gpu: str) -> str:
    cells = dict(zip(table.columns, table.affinities[gpu], strict=False))
    number = cells.get("NUMA Affinity", "")
    return str(int(number)) if number.isdecimal() else ""


def _names(columns: Sequence[str], text: str, warnings: list[str]) -> Sequence[str]:
    """Return the names of the NICs: the columns' own, or those of the legend of NIC0 and so on."""
    if not all(re.fullmatch("NIC[0-9]{1,4}", column) for column in columns):
        return columns
    legend = dict(re.findall(r"(?m)^[ \t]*(NIC[0-9]{1,4}): ([\w.:+-]{1,100})\s*$", text))
    names = [legend.get(column, "") for column in columns]
    if all(names) and len(set(names)) == len(names):
        return names
    warnings.append("the legend of NICs is missing or cut: their names are not known")
    return [""] * len(columns)


def _rows(table: _Table, devices: list[str], first: _Table, place: str) -> list[list[str]]:
    """Return the cells in the order of ``devices``; refuse a row missing and unequal halves."""
    if set(table.devices) != set(devices):
        raise InputError(
            f"{place}:{table.line}: a matrix of other devices than in line {first.line}; keep one "
            "machine a file"
        )
    for device in table.devices:
        if device not in table.rows:
            raise InputError(
                f"{place}:{table.line}: the row of {device} is missing; paste the whole matrix"
            )
    column = {device: at for at, device in enumerate(table.devices)}
    order = [column[device] for device in devices]
    rows = [[table.rows[device][at] for at in order] for device in devices]
    for at, (row, back) in enumerate(zip(rows, zip(*rows, strict=True), strict=True)):
        if tuple(row) != back:
            peer = next(index for index, cell in enumerate(row) if cell != back[index])
            raise InputError(
                f"{place}:{table.lines[devices[at]]}: {devices[at]} to {devices[peer]} is "
                f"{row[peer]}, but {back[peer]} in line {table.lines[devices[peer]]}; paste the "
                "matrix again"
            )
    return rows
