"""The fabrics on which published synthesizers are compared, with the nominal rates used there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.topology.graph import Link, LinkKind, Node, Topology

__all__ = [
    "REFERENCE_FABRICS",
    "a100_pod",
    "any_fabric",
    "cube_mesh",
    "host_line",
    "ndv2_pair",
    "random_fabric",
    "torus",
    "with_compared_latencies",
]

# NVLinks of a DGX-1V's hybrid cube mesh: links of each pair of GPUs, 25 GB/s each (NVIDIA DGX-1
# with Tesla V100 system architecture, WP-08437-002).
_CUBE = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
_LATENCY_US: Mapping[LinkKind, float] = {"nvlink": 0.7, "pcie": 0.5, "network": 1.0}


def _link(src: str, dst: str, kind: LinkKind, gbs: float) -> Link:
    return Link(src, dst, kind, gbs, _LATENCY_US[kind], duplex=True, source="nominal rate")


def _gpus(host: str, first: int, count: int) -> list[Node]:
    return [Node(f"{host}/gpu{n}", "gpu", host, first + n) for n in range(count)]


def _cube_links(host: str) -> list[Link]:
    return [
        _link(f"{host}/gpu{a}", f"{host}/gpu{b}", "nvlink", 25.0 * links)
        for (a, b), links in _CUBE.items()
    ]


def cube_mesh() -> Topology:
    """Return a DGX-1V's 8 GPUs with their NVLinks alone: 25 GB/s each, six a GPU.

    >>> cube_mesh().ranks
    8
    """
    return Topology("dgx1-cube-mesh", tuple(_gpus("n0", 0, 8)), tuple(_cube_links("n0")))


def ndv2_pair() -> Topology:
    """Return two hosts of 8 GPUs in a cube mesh that share one 12.5 GB/s NIC each.

    >>> ndv2_pair().hosts
    ('n0', 'n1')
    """
    nodes, links = [Node("leaf0", "switch")], []
    for number in range(2):
        host = f"n{number}"
        nodes += [*_gpus(host, 8 * number, 8), Node(f"{host}/nic0", "nic", host)]
        links += [*_cube_links(host), _link(f"{host}/nic0", "leaf0", "network", 12.5)]
        links += [_link(f"{host}/gpu{n}", f"{host}/nic0", "pcie", 12.5) for n in range(8)]
    return Topology("2x-ndv2", tuple(nodes), tuple(links))


def a100_pod(hosts: int) -> Topology:
    """Return hosts of 8 GPUs on an NVSwitch (300 GB/s), with a 25 GB/s NIC each if several.

    >>> a100_pod(2).ranks
    16

    Raises:
        InputError: `hosts` is less than 1.
    """
    if hosts < 1:
        raise InputError(f"{hosts} hosts: expected at least 1")
    nodes = [Node("leaf0", "switch")] if hosts > 1 else []
    links = []
    for number in range(hosts):
        host = f"n{number}"
        nodes += [*_gpus(host, 8 * number, 8), Node(f"{host}/nvswitch", "nvswitch", host)]
        for n in range(8):
            gpu, nic = f"{host}/gpu{n}", f"{host}/nic{n}"
            links.append(_link(gpu, f"{host}/nvswitch", "nvlink", 300.0))
            if hosts > 1:
                nodes.append(Node(nic, "nic", host))
                links += [_link(gpu, nic, "pcie", 25.0), _link(nic, "leaf0", "network", 25.0)]
    return Topology(f"{hosts}x-a100", tuple(nodes), tuple(links))


def torus(rows: int, columns: int, gbs: float = 50.0) -> Topology:
    """Return hosts of one GPU each, joined to their four neighbours; GPUs pass on for the others.

    >>> torus(4, 4).ranks
    16

    Raises:
        InputError: a side is shorter than 3, where neighbours would coincide.
    """
    if min(rows, columns) < 3:
        raise InputError(f"torus of {rows} x {columns}: expected sides of at least 3")
    cells = list(itertools.product(range(rows), range(columns)))
    name = {cell: f"gpu{number}" for number, cell in enumerate(cells)}
    nodes = (Node(name[cell], "gpu", f"n{n}", n) for n, cell in enumerate(cells))
    links = (
        _link(
            name[row, column], name[(row + down) % rows, (column + right) % columns], "nvlink", gbs
        )
        for row, column in cells
        for down, right in ((0, 1), (1, 0))
    )
    return Topology(f"torus-{rows}x{columns}", tuple(nodes), tuple(links))


def host_line() -> Topology:
    """Return three hosts of 4 GPUs and two NICs, cabled in a line: the middle one reaches both.

    >>> host_line().hosts
    ('n0', 'n1', 'n2')
    """
    nodes, links = [], []
    for number in range(3):
        host = f"n{number}"
        nodes += [*_gpus(host, 4 * number, 4), Node(f"{host}/pcie", "pcie", host)]
        nodes += [Node(f"{host}/nic{n}", "nic", host) for n in range(2)]
        for a, b in itertools.combinations(range(4), 2):
            links.append(_link(f"{host}/gpu{a}", f"{host}/gpu{b}", "nvlink", 50.0))
        links += [_link(f"{host}/gpu{n}", f"{host}/pcie", "pcie", 15.76) for n in range(4)]
        links += [_link(f"{host}/nic{n}", f"{host}/pcie", "pcie", 15.76) for n in range(2)]
    for left, right in itertools.pairwise(("n0", "n1", "n2")):
        links.append(_link(f"{left}/nic1", f"{right}/nic0", "network", 12.5))
    return Topology("3x-v100x4-line", tuple(nodes), tuple(links))


REFERENCE_FABRICS: Mapping[str, Callable[[], Topology]] = {
    "dgx1": cube_mesh,
    "2x-ndv2": ndv2_pair,
    "a100": lambda: a100_pod(1),
    "2x-a100": lambda: a100_pod(2),
    "4x-a100": lambda: a100_pod(4),
    "torus-4x4": lambda: torus(4, 4),
    "torus-8x8": lambda: torus(8, 8),
}


def with_compared_latencies(topology: Topology) -> Topology:
    """Return a reference fabric with the latencies at which small sizes are compared.

    0.7 us between GPUs of a host, be it by an NVLink, an NVSwitch or PCIe, 1.3 us by NICs (TE-CCL's
    NDv2), 0.5 us a torus link (TACOS).

    >>> from tuccl.topology import path
    >>> round(path(with_compared_latencies(a100_pod(2)), 0, 8).latency, 3)
    1.3
    """
    return replace(
        topology, links=tuple(_with_compared_latency(topology, link) for link in topology.links)
    )


def _with_compared_latency(topology: Topology, link: Link) -> Link:
    kinds = {node.id: node.kind for node in topology.nodes if node.id in (link.src, link.dst)}
    if link.kind == "network":
        return replace(link, latency=0.3)
    if link.kind == "pcie" or "nvswitch" in kinds.values():
        return replace(link, latency=0.35)
    return replace(link, latency=0.5 if topology.name.startswith("torus") else 0.7)


def any_fabric(rng: random.Random) -> Topology:
    """Return a fabric like `random_fabric`'s, if need be one whose links do not join all ranks.

    Raises:
        InputError: some GPU is cut off.
    """
    return _random_fabric(rng)


def random_fabric(rng: random.Random) -> Topology:
    """Return a connected fabric of 2 to 12 GPUs with switches, one-way and unequal links.

    >>> random_fabric(random.Random(1)) == random_fabric(random.Random(1))
    True
    """
    while True:
        try:
            return _random_fabric(rng)
        except InputError:
            continue  # some GPU was cut off


def _random_fabric(rng: random.Random) -> Topology:
    gpus = [f"gpu{n}" for n in range(rng.randint(2, 12))]
    switches = [f"switch{n}" for n in range(rng.randint(0, 4))]
    hosts = rng.randint(1, 3)
    ends = [(a, b) for a in (*gpus, *switches) for b in (*gpus, *switches) if a != b]
    rates = [rng.choice((1.0, 2.0, 2.5, 3.0, 7.0, 12.5, 25.0, 50.0, 300.0)) for _ in range(4)]
    links = [
        Link(a, b, "nvlink", rng.choice(rates), rng.uniform(0.1, 3.0), duplex=rng.random() < 0.5)
        for a, b in rng.sample(ends, rng.randint(len(gpus), min(len(ends), 4 * len(gpus))))
    ]
    nodes = [Node(gpu, "gpu", f"n{n % hosts}", n) for n, gpu in enumerate(gpus)]
    nodes += [Node(switch, "switch") for switch in switches]
    return Topology("random", tuple(nodes), tuple(links))
