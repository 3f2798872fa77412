"""Prints how long each reader of hosts and of fabrics takes for a large machine.

    .venv/bin/python benchmarks/readers.py [--devices N]

The machine has three GPUs for every two adapters, four GPUs to a PCIe switch, eight CPUs and an
NVSwitch; `rocm-smi` has as many GPUs as there are devices, in groups of eight. A fabric has as
many adapters, eight to a host, on leaves of 32, all below one switch. Times are those of the
processor, the least of three.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TypeVar

from report import publish

from tuccl.topology import Link, Node, Topology, encode_topology
from tuccl.topology.readers.fabrics import FABRIC_READERS
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.registry import HOST_READERS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.topology.fabric_renderings import (
    fat_tree,
    ibnetdiscover,
    infragraph_json,
    kubernetes_json,
    slurm_conf,
)
from tests.topology.renderings import hwloc_xml, nccl_xml, pack_sysfs, rocm_text

T = TypeVar("T")
_CPUS = 8


def machine(gpus: int, nics: int) -> Topology:
    """Return the host with that many GPUs and adapters."""
    switches = -(-gpus // 4)
    nodes = [Node(f"cpu{n}", "cpu", "n0") for n in range(_CPUS)]
    nodes += [Node(f"switch{n}", "pcie", "n0") for n in range(switches)]
    nodes += [Node(f"gpu{n}", "gpu", "n0", rank=n) for n in range(gpus)]
    nodes += [Node(f"nic{n}", "nic", "n0", device=f"mlx5_{n}") for n in range(nics)]
    nodes.append(Node("nvswitch0", "nvswitch", "n0"))
    parents = {f"switch{n}": f"cpu{n * _CPUS // switches}" for n in range(switches)}
    parents |= {f"gpu{n}": f"switch{n // 4}" for n in range(gpus)}
    parents |= {f"nic{n}": f"switch{n * switches // nics}" for n in range(nics)}
    links = [Link(src, dst, "pcie", 15.76, 0.44, duplex=True) for src, dst in parents.items()]
    links += [Link(f"gpu{n}", "nvswitch0", "nvlink", 150.0, 0.2, duplex=True) for n in range(gpus)]
    return Topology("large", tuple(nodes), tuple(links))


def smi_text(topology: Topology) -> bytes:
    """Return the matrix of nvidia-smi, which `smi_matrix` works out anew for every pair."""
    parent = {link.src: link.dst for link in topology.links if link.kind == "pcie"}
    devices = [node for node in topology.nodes if node.kind in ("gpu", "nic")]
    names = [f"{node.kind.upper()}{node.id[3:]}" for node in devices]
    switches = [parent[node.id] for node in devices]
    cpus = [parent[switch] for switch in switches]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])]
    for one, node in enumerate(devices):
        cells = ["NODE" if cpu == cpus[one] else "SYS" for cpu in cpus]
        for other, peer in enumerate(devices):
            if switches[one] == switches[other]:
                cells[other] = "PIX"
            if node.kind == peer.kind == "gpu":
                cells[other] = "NV6"
        cells[one] = " X "
        affinity = [cpus[one][3:], cpus[one][3:]] if node.kind == "gpu" else []
        lines.append("\t".join([names[one], *cells, *affinity]))
    legend = [f"  NIC{n}: mlx5_{n}" for n in range(sum(node.kind == "nic" for node in devices))]
    return "\n".join([*lines, "", "Legend:", "", "NIC Legend:", *legend, ""]).encode()


def main() -> None:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1000, metavar="N")
    devices = parser.parse_args().devices
    host = machine(devices * 3 // 5, devices - devices * 3 // 5)
    reader_of = {reader.name: reader for reader in HOST_READERS}
    files = {
        "tuccl": encode_topology(host),
        "nccl": nccl_xml(host),
        "nvidia-smi": smi_text(host),
        "rocm-smi": rocm_text(devices, near=8),
        "hwloc": hwloc_xml(host, 3),
        "sysfs": pack_sysfs(host, "w:bz2"),
    }
    print(f"{'format':<14}{'bytes':>12}{'GPUs':>7}{'NICs':>7}{'seconds':>10}")
    for name, data in files.items():
        topology, seconds = least_time(reader_of[name], data)
        nics = sum(node.kind == "nic" for node in topology.nodes)
        print(f"{name:<14}{len(data):>12}{topology.ranks:>7}{nics:>7}{seconds:>10.2f}")
    fabric = fat_tree(-(-devices // 32), 1, devices // 8, nics=8)
    fabrics = {
        "ibnetdiscover": ibnetdiscover,
        "slurm": slurm_conf,
        "kubernetes": kubernetes_json,
        "infragraph": infragraph_json,
    }
    fabric_reader_of = {reader.name: reader for reader in FABRIC_READERS}
    print(f"{'format':<14}{'bytes':>12}{'hosts':>7}{'NICs':>7}{'seconds':>10}")
    for name, render in fabrics.items():
        data = render(fabric).encode()
        back, seconds = least_time(fabric_reader_of[name], data)
        nics = len(back.adapters) if back.names_adapters else "-"
        print(f"{name:<14}{len(data):>12}{len(back.hosts):>7}{nics:>7}{seconds:>10.2f}")


def least_time(reader: Reader[T], data: bytes) -> tuple[T, float]:
    """Return what ``data`` describes, and the least of three times in seconds."""
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        value, _ = reader.decode(data, "x", "x")
        seconds.append(time.process_time() - begun)
    return value, min(seconds)


if __name__ == "__main__":
    publish(main, "Measured")
