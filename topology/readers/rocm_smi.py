"""Reads what ``rocm-smi --showtopo`` prints: matrices of weight, hops and link type, NUMA nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.xml_tree import Element

_MOST_BYTES = 1 << 26
_MOST_GPUS = 1024
_TITLES = {
    "Weight between two GPUs": "weight",
    "Hops between two GPUs": "hops",
    "Link Type between two GPUs": "type",
}
_TITLE = re.compile(r"=*\s*(" + "|".join(_TITLES) + r")\s*=*")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NUMA = re.compile(r"GPU\s*\[?([0-9]{1,4})\]?\s*:\s*\(Topology\) Numa Node:\s*(-?[0-9]{1,5})")
_GFX = re.compile(r"GPU\s*\[?([0-9]{1,4})\]?\s*:\s*GFX Version:\s*gfx(\w{1,20})")
_END = re.compile(r"=+ End of ROCm SMI Log =+")
_HOP_WEIGHT = 15  # of one hop of xGMI
_MESHED = {"942", "950"}  # MI300 and MI350, whose eight GPUs are all joined


@dataclass(slots=True)
class _Matrix:
    """A matrix, as far as it was read: its title's line, and the rows by GPU with their lines."""

    line: int
    columns: list[str] = field(default_factory=list)
    rows: dict[str, tuple[int, list[str]]] = field(default_factory=dict)


def _matches(data: bytes) -> bool:
    return any(title.encode() in data for title in _TITLES)


def _decode(data: bytes, path: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    place = printable_path(path)
    if len(data) > _MOST_BYTES:
        raise InputError(f"{place}: longer than {_MOST_BYTES} bytes; keep one --showtopo alone")
    lines = data.decode("utf-8-sig", errors="replace").splitlines()
    matrices = _matrices(lines, place)
    if "type" not in matrices:
        raise InputError(f"{place}: no matrix of link types; paste all of `rocm-smi --showtopo`")
    types = matrices["type"]
    for title, matrix in matrices.items():
        _check(title, matrix, types.columns, place)
    numa = {int(m[1]): m[2] for line in lines if (m := _NUMA.match(line.strip()))}
    gfx = {int(m[1]): m[2] for line in lines if (m := _GFX.match(line.strip()))}
    missing = [gpu for gpu in types.columns if int(gpu[3:]) not in numa]
    if numa and missing:
        raise InputError(f"{place}: no NUMA node of {missing[0]}; paste all of `--showtopo`")
    warnings = [] if numa else ["no NUMA nodes are listed: all GPUs are taken to be on one"]
    if not any(_END.search(line) for line in lines):
        warnings.append("the output's last line is missing: it may be cut")
    if len(types.columns) > 4 and not set(gfx.values()) & _MESHED and _is_mesh(matrices):
        warnings.append(
            "every pair is one hop apart; of MI250X rocm-smi says so even where no link joins the "
            "two: RCCL's dump (NCCL_TOPO_DUMP_FILE) has them"
        )
    system = _system(matrices, numa, gfx, place)
    topology, others = host_of(system, place, name)
    return topology, (*warnings, *others)


ROCM_SMI = Reader("rocm-smi", "`rocm-smi --showtopo`", _matches, _decode)


def _matrices(lines: list[str], place: str) -> dict[str, _Matrix]:
    matrices: dict[str, _Matrix] = {}
    matrix: _Matrix | None = None
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if title := _TITLE.fullmatch(line.strip()):
            key = _TITLES[title[1]]
            if key in matrices:
                raise InputError(
                    f"{place}:{number}: a second {title[1]!r}; keep one machine a file"
                )
            matrix = matrices[key] = _Matrix(number)
        elif matrix is None or not words:
            continue
        elif words[0].startswith("=") or words[0].startswith("GPU["):
            matrix = None
        elif not matrix.columns:
            matrix.columns = words
            if not all(_GPU.fullmatch(w) for w in words) or len(set(words)) < len(words):
                raise InputError(f"{place}:{number}: expected a header GPU0 GPU1 ...; paste again")
            if len(words) > _MOST_GPUS:
                raise InputError(f"{place}:{number}: more than {_MOST_GPUS} GPUs; keep one machine")
        else:
            _add_row(matrix, words, f"{place}:{number}", number)
    return matrices


def _add_row(matrix: _Matrix, words: list[str], place: str, line: int) -> None:
    gpu, *cells = words
    if gpu not in matrix.columns or gpu in matrix.rows or len(cells) != len(matrix.columns):
        raise InputError(
            f"{place}: {quoted(gpu)} with {len(cells)} cells; expected each of "
            f"{matrix.columns[0]} to {matrix.columns[-1]} once, with {len(matrix.columns)}; paste "
            "the output again"
        )
    matrix.rows[gpu] = line, cells


def _check(title: str, matrix: _Matrix, gpus: list[str], place: str) -> None:
    """Refuse a matrix with a row missing, with halves that differ, or with unknown cells."""
    if matrix.columns != gpus or set(matrix.rows) != set(gpus):
        raise InputError(
            f"{place}:{matrix.line}: rows are missing below; paste all of `rocm-smi --showtopo`"
        )
    pattern = "XGMI|PCIE|N/A" if title == "type" else "[0-9]{1,6}|N/A"
    rows = [list(matrix.rows[gpu][1]) for gpu in gpus]
    for at, row in enumerate(rows):
        row[at] = "N/A"  # of a GPU to itself; releases differ in what they print
    for gpu, row, back in zip(gpus, rows, zip(*rows, strict=True), strict=True):
        faults = {cell for cell in {*row} if not re.fullmatch(pattern, cell)}
        if tuple(row) != back or faults:
            at = next(i for i, cell in enumerate(row) if cell != back[i] or cell in faults)
            raise InputError(
                f"{place}:{matrix.rows[gpu][0]}: {title} of {gpu} and {gpus[at]} is "
                f"{quoted(row[at])}, back {quoted(back[at])}; expected "
                f"{pattern.replace('|', ', ')}, both ways alike"
            )


def _system(
    matrices: dict[str, _Matrix], numa: dict[int, str], gfx: dict[int, str], place: str
) -> Element:
    """Return NCCL's <system>; types are links where weight and hops show no relay between."""
    types = matrices["type"]
    gpus = sorted(types.columns, key=lambda gpu: int(gpu[3:]))
    busid = {gpu: f"0000:{at >> 5:02x}:{at & 31:02x}.0" for at, gpu in enumerate(gpus)}
    root = Element("system", {"version": "2"}, place, 0)
    cpus: dict[str, Element] = {}
    for gpu in gpus:
        line, cells = types.rows[gpu]
        where = f"{place}:{line}"
        node = numa.get(int(gpu[3:]), "0")
        if node not in cpus:
            cpus[node] = Element("cpu", {"numaid": node}, where, line)
            root.children.append(cpus[node])
        attributes = {"dev": gpu[3:], "gcn": gfx.get(int(gpu[3:]), "")}
        element = Element("gpu", attributes, where, line)
        for at, peer in enumerate(types.columns):
            if peer != gpu and cells[at] == "XGMI" and _is_direct(matrices, gpu, at):
                link = {"target": busid[peer], "count": "1", "tclass": "0x038000"}
                element.children.append(Element("xgmi", link, where, line))
        pci = {"busid": busid[gpu], "assumed": "1", "class": "0x038000", "vendor": "0x1002"}
        cpus[node].children.append(Element("pci", pci, where, line, [element]))
    return root


def _is_mesh(matrices: dict[str, _Matrix]) -> bool:
    rows = matrices["type"].rows
    columns = matrices["type"].columns
    return all(
        peer == gpu or (rows[gpu][1][at] == "XGMI" and _is_direct(matrices, gpu, at))
        for gpu in columns
        for at, peer in enumerate(columns)
    )


def _is_direct(matrices: dict[str, _Matrix], gpu: str, column: int) -> bool:
    most = {"weight": _HOP_WEIGHT, "hops": 1}
    cells = {title: matrices[title].rows[gpu][1][column] for title in most if title in matrices}
    return all(not cell.isdecimal() or int(cell) <= most[title] for title, cell in cells.items())
