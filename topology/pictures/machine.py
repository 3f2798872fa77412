"""The picture of a whole machine: its fabric, and each kind of host once."""

from __future__ import annotations

from tuccl.topology.graph import Topology
from tuccl.topology.pictures.fabric import FabricPicture
from tuccl.topology.pictures.host import HostPicture, legend
from tuccl.topology.pictures.svg import Drawing

_MOST_KINDS = 3


def machine_svg(topology: Topology) -> str:
    """Return the machine as SVG text: for a cluster its fabric, then each kind of host once.

    Lines are as wide as links are fast, and say rates and origins where the mouse rests. Hosts
    and switches of a tier with more than eight share a box where nothing distinguishes them. Equal
    topologies give equal text.

    >>> from tuccl.topology import load_profile
    >>> machine_svg(load_profile("dgx-1v")).count("<rect")
    19
    """
    fabric = FabricPicture(topology)
    cluster = len(topology.hosts) > 1
    kinds = fabric.host_kinds[:_MOST_KINDS]
    pictures = [(HostPicture(topology, host), host, many) for host, many in kinds]
    width = max([fabric.width if cluster else 0.0, *(p.width for p, _, _ in pictures), 330.0])
    drawing = Drawing()
    drawing.text(8, 14, topology.name[:60], "title left")
    y = 30.0
    if cluster:
        fabric.draw(drawing, y)
        y += fabric.height
        for fact in fabric.facts():
            drawing.text(12, y, fact, "left")
            y += 16
    for picture, host, many in pictures:
        alike = f" and {many - 1} more alike" if many > 1 else ""
        picture.draw(drawing, 0, y + 8, f"{host}{alike}")
        y += picture.height + 8
    links = [link for link in topology.links if link.kind != "network"]
    y = legend(drawing, links, y + 8)
    return drawing.svg(width, y + 6, f"picture of {topology.name}")
