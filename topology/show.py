"""A topology as a table of rates for people."""

from __future__ import annotations

from collections import Counter

from tuccl.topology.graph import Topology
from tuccl.topology.nics import own_nics
from tuccl.topology.paths import all_paths
from tuccl.topology.relays import Path, relay_path

_LEGEND = (
    "class and narrowest rate on the path in GB/s per direction (nominal): NVL NVLink, XGM xGMI, "
    "NVS NVSwitch,\nPIX one PCIe switch, PXB several, PHB a CPU, SYS between CPUs, C2C GPU to CPU, "
    "NET network; NIC: those that its channels\ntake in turn, each at that rate; parts are ? "
    "assumed, * measured, ~ inferred"
)


def path_class(topology: Topology, path: Path) -> str:
    """Return the three letters that NVIDIA's tools give a path, by the farthest part it passes.

    >>> from tuccl.topology import load_profile, path
    >>> t = load_profile("dgx-1v")
    >>> path_class(t, path(t, 0, 1)), path_class(t, path(t, 0, 7))
    ('NVL', 'SYS')
    """
    kinds = [hop.kind for hop in path.hops]
    nodes = [topology.node(hop.dst) for hop in path.hops[:-1]]
    # A card whose ports are NICs is no switch.
    passed = [node.kind for node in nodes if node.kind != "pcie" or node.model is None]
    if "network" in kinds:
        return "NET"
    if "cpu" in kinds:
        return "SYS"
    if "cpu" in passed:
        return "C2C" if set(kinds) == {"c2c"} else "PHB"
    if "pcie" in kinds:
        return "PXB" if passed.count("pcie") > 1 else "PIX"
    if "nvswitch" in passed:
        return "NVS"
    return "XGM" if "xgmi" in kinds else "NVL"


def matrix(topology: Topology) -> str:
    """Return a table of every pair of GPUs with classes and rates in GB/s, and where from.

    Below it stand the kinds of links, with the origin of each: assumed, read, measured or inferred.

    >>> from tuccl.topology import load_profile
    >>> print(matrix(load_profile("v100x4")).splitlines()[1])
    GPU0       X  NVL 50  NVL 50  NVL 50    n0  nic0 PIX 15.8?
    """
    marks = _marks(topology)
    paths = all_paths(topology)
    own = own_nics(topology)
    names = [f"GPU{rank}" for rank in range(topology.ranks)]
    rows = [["", *names, "host", "NIC"]]
    for rank, name in enumerate(names):
        cells = [
            "X" if peer == rank else _cell(topology, paths.get((rank, peer)), marks)
            for peer in range(topology.ranks)
        ]
        nics = own.get(rank, ())
        path = relay_path(topology, topology.gpus[rank].id, nics[0]) if nics else None
        nic_cell = "-" if path is None else f"{'+'.join(nics)} {_cell(topology, path, marks)}"
        rows.append([name, *cells, topology.host_of(rank) or "-", nic_cell])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        middle = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip())
    return "\n".join([*lines, "", _LEGEND, "", *_links(topology)])


def _cell(topology: Topology, path: Path | None, marks: dict[tuple[str, str], str]) -> str:
    if path is None:  # only through other GPUs
        return "-"
    mark = "".join(sorted({marks.get((hop.src, hop.dst), "") for hop in path.hops}))
    return f"{path_class(topology, path)} {path.bandwidth:.3g}{mark}"


def _marks(topology: Topology) -> dict[tuple[str, str], str]:
    """Return a mark for the pairs of nodes whose link was not read from the machine."""
    marks = {"assumed": "?", "inferred": "~", "measured": "*"}
    return {
        ends: marks[link.origin]
        for link in topology.links
        if link.origin in marks
        for ends in link.directions()
    }


def _links(topology: Topology) -> list[str]:
    """Return a line for each kind, rate and origin of links, with their number and source."""
    counts = Counter(
        (
            link.kind,
            f"{link.bandwidth:.4g}",
            link.origin,
            f"{link.source}; rate of {link.inferred_from}" if link.inferred_from else link.source,
        )
        for link in topology.links
    )
    rows = [("links", "kind", "GB/s", "origin", "source")]
    rows += [(str(count), *facts) for facts, count in sorted(counts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(row[i].rjust(widths[i]) for i in range(4)), row[4]]).rstrip() for row in rows
    ]
