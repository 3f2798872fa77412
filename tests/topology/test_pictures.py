"""Pictures of machines: well-formed, complete, legible, the same each time."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from tuccl.topology import PROFILES, Link, Node, Topology, join, load_profile, machine_svg
from tuccl.topology.pictures.host import HostPicture

SVG = "{http://www.w3.org/2000/svg}"


def parsed(topology: Topology) -> ET.Element:
    text = machine_svg(topology)
    assert text == machine_svg(topology)
    return ET.fromstring(text)


def boxes(svg: ET.Element, *kinds: str) -> list[tuple[float, float, float, float]]:
    """The corners of the boxes of these kinds: left, top, right, bottom."""
    out = []
    for box in svg.iter(f"{SVG}rect"):
        if box.get("class") in kinds:
            x, y, w, h = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
            out.append((x, y, x + w, y + h))
    return out


def labels(svg: ET.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", [*PROFILES, "torus-4x4", "torus-3x3x3", "gb200-nvl72"])
def test_boxes_stand_apart_inside_the_picture(name: str) -> None:
    topology = load_profile(name)
    svg = parsed(topology)
    _, _, width, height = (float(n) for n in svg.get("viewBox", "").split())
    drawn = boxes(svg, "gpu", "nic", "cpu", "pcie", "nvswitch")
    for left, top, right, bottom in drawn:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for one, other in itertools.combinations(drawn, 2):
        beside = one[2] <= other[0] or other[2] <= one[0]
        assert beside or one[3] <= other[1] or other[3] <= one[1]
    assert len(boxes(svg, "gpu")) == min(topology.ranks, 8 if "nvl" in name else 64)
    assert len(boxes(svg, "gpu")) + HostPicture(topology, "n0").omitted == topology.ranks


def test_lines_are_as_wide_as_links_are_fast() -> None:
    svg = parsed(load_profile("dgx-1v"))
    width_of = {
        (line.findtext(f"{SVG}title") or "").split(", ")[0]: float(line.get("stroke-width", ""))
        for line in svg.iter(f"{SVG}path")
        if line.get("class") == "nvlink"
    }
    assert width_of["gpu0 gpu3: 50 GB/s"] > width_of["gpu0 gpu1: 25 GB/s"]
    assert any(line.startswith("NVLink 50 GB/s each way, read (8)") for line in labels(svg))


def test_text_from_outside_is_escaped() -> None:
    topology = load_profile("v100x4")
    hostile = '<script>alert("&")</script>'
    nodes = [msgspec.structs.replace(n, model=hostile) for n in topology.nodes]
    changed = msgspec.structs.replace(topology, name=hostile, nodes=tuple(nodes))
    svg = parsed(changed)
    assert not list(svg.iter(f"{SVG}script"))
    assert any(hostile in label for label in labels(svg))


def test_colours_follow_the_reader() -> None:
    text = machine_svg(load_profile("v100x4"))
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r'(fill|stroke)="', text)


@pytest.mark.parametrize("fabric", ["single", "rail", "clos"])
def test_few_hosts_have_a_box_each(fabric: str) -> None:
    cluster = join(load_profile("v100x4"), 3, fabric)
    text = labels(parsed(cluster))
    assert {"n0", "n1", "n2"} <= set(text)
    assert any(line.startswith("host to tier 1: 6 links of 12.5 GB/s") for line in text)
    assert any(line.startswith("n0 and 2 more alike") for line in text)


def test_many_hosts_share_a_box_where_nothing_distinguishes_them() -> None:
    cluster = join(load_profile("v100x4"), 64, "clos", up_gbs=20.0)
    text = labels(parsed(cluster))
    assert "n0 … n63" in text
    assert "tor0 … tor63" in text
    assert "2 x 12.5 GB/s" in text
    slow = msgspec.structs.replace(
        cluster,
        links=tuple(
            msgspec.structs.replace(x, bandwidth=1.0) if (x.src, x.dst) == ("tor9", "spine0") else x
            for x in cluster.links
        ),
    )
    text = labels(parsed(slow))
    assert {"n9", "tor9", "1 x 1 GB/s"} <= set(text)


def test_what_is_too_deep_or_too_varied_is_left_out_and_said() -> None:
    chain = [Node(f"pcie{n}", "pcie", "n0") for n in range(3000)]
    nodes = (Node("cpu0", "cpu", "n0"), *chain, Node("gpu0", "gpu", "n0", 0))
    ends = itertools.pairwise(node.id for node in nodes)
    links = tuple(Link(a, b, "pcie", 16.0, 0.4, duplex=True) for a, b in ends)
    assert "GPU" in "".join(labels(parsed(Topology("deep", nodes, links))))
    hosts = range(70)
    gpus = [Node(f"gpu{n}", "gpu", f"n{n}", n) for n in hosts]
    links = tuple(Link(f"gpu{n}", "leaf0", "network", 1.0 + n, 1.0, duplex=True) for n in hosts)
    varied = Topology("varied", (*gpus, Node("leaf0", "switch")), links)
    assert "6 more that differ are not drawn" in labels(parsed(varied))


def test_a_switch_of_nvlink_that_hangs_on_pcie_is_drawn_outside_its_tree() -> None:
    machine = load_profile("v100x4")
    nodes = [
        msgspec.structs.replace(n, kind="nvswitch") if n.kind == "pcie" else n
        for n in machine.nodes
    ]
    changed = msgspec.structs.replace(machine, nodes=tuple(nodes))
    assert len(boxes(parsed(changed), "nvswitch")) == len(boxes(parsed(machine), "pcie")) > 0


def extent(text: ET.Element) -> tuple[float, float, float, float]:
    """The corners of a line of text, by the usual width of a letter."""
    kind = text.get("class") or ""
    width = len(text.text or "") * (5.2 if "small" in kind else 6.2)
    x, y = float(text.get("x", "")), float(text.get("y", ""))
    left = x if "left" in kind else x - width / 2
    return left, y - 5, left + width, y + 5


@pytest.mark.parametrize(
    ("name", "hosts", "fabric"),
    [("dgx-h100", 16, "rail"), ("dgx-h100", 8, "rail"), ("p5", 4, "rail"), ("ndv4", 4, "clos")],
)
def test_links_of_a_fabric_are_few_and_their_labels_apart(
    name: str, hosts: int, fabric: str
) -> None:
    svg = parsed(join(load_profile(name), hosts, fabric))
    lines = [line for line in svg.iter(f"{SVG}path") if line.get("class") == "network"]
    assert 1 <= len(lines) <= 24
    for one, other in itertools.combinations(map(extent, svg.iter(f"{SVG}text")), 2):
        beside = one[2] <= other[0] or other[2] <= one[0]
        assert beside or one[3] <= other[1] or other[3] <= one[1]


def test_one_part_is_counted_in_the_singular() -> None:
    text = labels(parsed(join(load_profile("ndv2"), 2)))
    assert "1 NIC" in text
    assert "8 GPUs" in text
