"""Small clusters for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tuccl.topology.graph import Link, Node, Topology

Cluster = Callable[..., Topology]


def build_cluster(
    gpus: Sequence[int],
    rates: Sequence[Sequence[float]],
    *,
    nvlink: bool = True,
    tied: bool = False,
) -> Topology:
    """Return hosts of so many GPUs and NICs of such rates; PCIe switches under two sockets.

    Each NIC has a PCIe switch of its own with its share of the GPUs, or with `tied` all hang on
    one switch.
    """
    nodes = [Node("leaf", "switch")]
    links: list[Link] = []
    rank = 0

    def wire(src: str, dst: str, kind: str, rate: float) -> None:
        links.append(Link(src, dst, kind, rate, 0.5, duplex=True))  # type: ignore[arg-type]

    for host, (count, nics) in enumerate(zip(gpus, rates, strict=True)):
        at = f"h{host}"
        switches = 1 if tied else max(1, min(count, len(nics)))
        nodes += [Node(f"{at}/cpu{socket}", "cpu", host=at) for socket in (0, 1)]
        wire(f"{at}/cpu0", f"{at}/cpu1", "cpu", 20.0)
        for switch in range(switches):
            nodes.append(Node(f"{at}/plx{switch}", "pcie", host=at))
            wire(f"{at}/plx{switch}", f"{at}/cpu{2 * switch // switches}", "pcie", 16.0)
        for gpu in range(count):
            nodes.append(Node(f"{at}/gpu{gpu}", "gpu", host=at, rank=rank))
            rank += 1
            wire(f"{at}/gpu{gpu}", f"{at}/plx{gpu * switches // count}", "pcie", 16.0)
            if nvlink:
                wire(f"{at}/gpu{gpu}", f"{at}/nvs", "nvlink", 150.0)
        for nic, rate in enumerate(nics):
            nodes.append(Node(f"{at}/nic{nic}", "nic", host=at))
            wire(f"{at}/nic{nic}", f"{at}/plx{nic * switches // len(nics)}", "pcie", 16.0)
            wire(f"{at}/nic{nic}", "leaf", "network", rate)
        if nvlink:
            nodes.append(Node(f"{at}/nvs", "nvswitch", host=at))
    return Topology("cluster", tuple(nodes), tuple(links))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Return `build_cluster`."""
    return build_cluster
