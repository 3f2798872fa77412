"""A host as ``nvidia-smi topo -m`` prints it."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict

from tuccl.topology.graph import Link, Node, Topology
from tuccl.topology.models import nvlink_gbs
from tuccl.topology.servers import servers

_LEGEND = """\
Legend:

  X    = Self
  SYS  = PCIe and the interconnect between CPU sockets or NUMA nodes
  PHB  = PCIe and a host bridge, that is a CPU
  PXB  = Several PCIe switches, no host bridge
  PIX  = At most one PCIe switch
  NV#  = That many NVLinks
  XGMI = AMD's links between GPUs"""
_TREE = ("pcie", "cpu", "c2c")


def smi_matrix(topology: Topology, host: str | None = None) -> str:
    """Return the matrix of GPUs and NICs of a host, in tabs, as ``nvidia-smi topo -m`` prints it.

    It has the classes of paths, no rates (see `matrix`), and no list of cores. Classes are by the
    PCIe tree, and NV# where GPUs have NVLinks or an NVSwitch between them.

    Args:
        topology: The machine.
        host: Of which host; None prints each host, of equal ones the first. In an NVLink domain
            each tray is a server of its own, and printed so.

    >>> from tuccl.topology import load_profile
    >>> print(smi_matrix(load_profile("v100x4")).splitlines()[1].split()[:7])
    ['GPU0', 'X', 'NV2', 'NV2', 'NV2', 'PIX', 'SYS']
    """
    texts: dict[str, list[str]] = defaultdict(list)
    for name in topology.hosts if host is None else (host,):
        for server in servers(topology, name):
            texts[_Server(topology, server).text()].append(name)
    if len(texts) == 1 and len(next(iter(texts.values()))) == 1:
        return next(iter(texts))
    return "\n\n".join(f"{_heading(names)}:\n{text}" for text, names in texts.items())


def _heading(names: list[str]) -> str:
    counts = Counter(names)
    return ", ".join(name if n == 1 else f"{name} ({n} servers)" for name, n in counts.items())


class _Server:
    """The GPUs and NICs of one server, and the PCIe tree that joins them."""

    def __init__(self, topology: Topology, server: frozenset[str]) -> None:
        self._nodes = {n.id: n for n in topology.nodes if n.id in server}
        self._gpus = [gpu for gpu in topology.gpus if gpu.id in server]
        self._nics = [node for node in self._nodes.values() if node.kind == "nic"]
        self._around: dict[str, set[str]] = defaultdict(set)
        self._direct: dict[tuple[str, str], list[Link]] = defaultdict(list)
        for link in topology.links:
            for ends in link.directions():
                self._direct[ends].append(link)
                if link.kind in _TREE and self._nodes.keys() >= set(ends):
                    self._around[ends[0]].add(ends[1])
        self._switches = [n.id for n in topology.nodes if n.kind == "nvswitch"]

    def text(self) -> str:
        """Return the matrix, its legend, and the names of the NICs."""
        gpus = [f"GPU{number}" for number in range(len(self._gpus))]
        nics = [f"NIC{number}" for number in range(len(self._nics))]
        lines = ["\t".join(["", *gpus, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
        devices = [*self._gpus, *self._nics]
        trees = {device.id: self._shortest(device.id) for device in devices}
        for name, device in zip([*gpus, *nics], devices, strict=True):
            cells = [self._cell(device, other, trees[device.id]) for other in devices]
            lines.append("\t".join([name, *cells]))
            if device.kind == "gpu":
                lines[-1] += f"\tN/A\t{self._numa(trees[device.id])}\t\tN/A"
        lines += ["", _LEGEND]
        if nics:
            ids = (nic.device or nic.id.rpartition("/")[2] for nic in self._nics)
            lines += ["", "NIC Legend:", ""]
            lines += [f"  {name}: {nic}" for name, nic in zip(nics, ids, strict=True)]
        return "\n".join(lines)

    def _cell(self, device: Node, other: Node, tree: dict[str, tuple[str, ...]]) -> str:
        if device.id == other.id:
            return " X "
        if device.kind == other.kind == "gpu":
            cell = self._nvlinks(device, other)
            if cell:
                return cell
        if other.id not in tree:
            return "N/A"
        way = tree[other.id]
        nodes = [self._nodes[node] for node in way[1:-1]]
        # A card whose ports are NICs is no switch.
        passed = [node.kind for node in nodes if node.kind != "pcie" or node.model is None]
        chip_to_chip = any(
            link.kind == "c2c" for ends in itertools.pairwise(way) for link in self._direct[ends]
        )
        if passed.count("cpu") > 1 or chip_to_chip:
            return "SYS"
        if "cpu" in passed:
            return "PHB"
        return "PXB" if passed.count("pcie") > 1 else "PIX"

    def _nvlinks(self, gpu: Node, other: Node) -> str:
        """Return NV and the number of links between two GPUs, XGMI for AMD's, else nothing."""
        direct = [
            link for link in self._direct[gpu.id, other.id] if link.kind in ("nvlink", "xgmi")
        ]
        if any(link.kind == "xgmi" for link in direct):
            return "XGMI"
        switched = sum(
            min(self._gbs(gpu.id, switch), self._gbs(switch, other.id)) for switch in self._switches
        )
        gbs = sum(link.bandwidth for link in direct) or switched
        return f"NV{max(1, round(gbs / nvlink_gbs(gpu.model)))}" if gbs else ""

    def _gbs(self, src: str, dst: str) -> float:
        return sum(link.bandwidth for link in self._direct.get((src, dst), ()))

    def _numa(self, tree: dict[str, tuple[str, ...]]) -> str:
        """Return the number of the nearest CPU, as its id has it."""
        cpus = [node for node in tree if self._nodes[node].kind == "cpu"]
        number = re.search(r"\d+$", cpus[0]) if cpus else None
        return number[0] if number else "N/A"

    def _shortest(self, start: str) -> dict[str, tuple[str, ...]]:
        """Return the path of fewest links over PCIe and CPUs to every node, nearest first."""
        ways: dict[str, tuple[str, ...]] = {start: (start,)}
        queue = [start]
        for node in queue:
            if node != start and self._nodes[node].kind in ("gpu", "nic"):
                continue
            for neighbour in sorted(self._around[node] - ways.keys()):
                ways[neighbour] = (*ways[node], neighbour)
                queue.append(neighbour)
        return ways
