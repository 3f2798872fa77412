"""NCCL's and RCCL's topology XML: the public files, the oddities, and damage of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.topology import Topology, all_paths, path, signature
from tuccl.topology.readers.nccl_xml import decode_nccl_xml, read_nccl_xml

PUBLIC = {
    "aws_p4d-24xl": (8, 4),
    "azure_ncv4-topo": (4, 1),
    "azure_ndv2-topo": (8, 1),
    "azure_ndv4-topo": (8, 8),
    "oci_H100-topology": (8, 16),
    "rccl_topo_8p_90a_1": (8, 1),
    "rccl_topo_8p_pcie_2nic": (8, 2),
}
MACHINES = Path(__file__).resolve().parents[1] / "machines"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "machines" / "ndv2-topo.xml"
DAMAGED = [(MACHINES / f"{name}.xml").read_bytes() for name in ("traps", "xgmi", "nvswitch")]


def link(t: Topology, src: str, dst: str) -> float:
    return sum(x.bandwidth for x in t.links if (src, dst) in x.directions())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_files_are_read_whole(name: str, shared_data: Path) -> None:
    t, _ = read_nccl_xml(shared_data / "topologies" / "nccl_xml" / f"{name}.xml")
    host = t.hosts[0]
    assert (t.ranks, len(t.nics_of(host)), t.name) == (*PUBLIC[name], name)
    assert len(all_paths(t)) == t.ranks * (t.ranks - 1)
    assert all(x.source.startswith(f"{name}.xml:") for x in t.links)
    assert all(x.duplex for x in t.links)


def test_gpus_behind_one_switch_share_its_uplink(shared_data: Path) -> None:
    t, _ = read_nccl_xml(shared_data / "topologies" / "nccl_xml" / "aws_p4d-24xl.xml")
    uplink = ("pci-ffff:ff:01.0", "cpu0")
    users = {
        src
        for (src, _), way in all_paths(t).items()
        if uplink in [(hop.src, hop.dst) for hop in way.hops]
    }
    assert users == {0, 1}
    assert [hop.dst for hop in path(t, 0, 1).hops] == ["pci-ffff:ff:01.0", "gpu1"]


def test_switch_uplinks_of_a_slow_generation_are_kept_and_reported(shared_data: Path) -> None:
    t, warnings = read_nccl_xml(shared_data / "topologies/nccl_xml/oci_H100-topology.xml")
    assert link(t, "pci-0000:08:00.0", "cpu0") == 8.0
    assert any("slower than a device behind it" in text for text in warnings)
    assert link(t, "gpu0", "nvswitch0") == 450.0
    # Both ports of an adapter hang on its one PCIe link.
    assert link(t, "nic0", "pci-0000:0c:00.0") == link(t, "nic1", "pci-0000:0c:00.0") == 63.04
    assert {t.node(nic).port_gbs for nic in t.nics_of("n0")} == {22.5}


def test_the_example_holds_what_the_cloud_publishes(shared_data: Path) -> None:
    ours, _ = read_nccl_xml(EXAMPLE)
    theirs, _ = read_nccl_xml(shared_data / "topologies/nccl_xml/azure_ndv2-topo.xml")
    assert signature(ours) == signature(theirs)


def test_oddities() -> None:
    t, warnings = read_nccl_xml(MACHINES / "traps.xml")
    assert (t.ranks, len(t.nics_of("n0"))) == (4, 5)
    text = "\n".join(warnings)
    for expected in (
        "unknown or duplicate NUMA node",
        "emulated bridge",
        "link speed unknown, width unknown",
        "itself is left out (line 9)",
        "not in the file is left out (line 11)",
        "without <net>",
        "neither GPU nor NIC",
    ):
        assert expected in text
    # Devices are numbered by dev where ranks are missing, not by their place in the file.
    assert link(t, "gpu2", "gpu3") == 50.0
    assert link(t, "gpu2", "pci-ffff:ff:01.0") == 63.04
    assert link(t, "gpu3", "pci-ffff:ff:01.0") == 15.76
    assert link(t, "pci-ffff:ff:01.0", "cpu1") == 63.04
    assert link(t, "gpu3", "cpu1") == 450.0
    assert link(t, "nic2", "slot-0000:12:00") == link(t, "slot-0000:12:00", "cpu0") == 31.52
    assert t.node("nic4").port_gbs == 1.25
    assumed = {(x.src, x.dst) for x in t.links if x.assumed}
    assert ("pci-ffff:ff:01.0", "cpu1") in assumed
    assert ("gpu3", "pci-ffff:ff:01.0") in assumed
    assert ("gpu1", "pci-0000:0a:00.0") not in assumed
    assert sum(node.kind == "pcie" for node in t.nodes) == 13


def test_several_nvswitches_are_one_node() -> None:
    t, warnings = read_nccl_xml(MACHINES / "nvswitch.xml")
    assert warnings == ()
    assert [node.id for node in t.nodes if node.kind == "nvswitch"] == ["nvswitch0"]
    assert all(way.bandwidth == 300.0 for way in all_paths(t).values())
    assert t.gpus[0].model == "A100-SXM4-80GB"
    fewer = (MACHINES / "nvswitch.xml").read_bytes().replace(b'count="6"', b'count="5"', 1)
    twice = fewer.replace(b'rank="1"', b'rank="0"')
    assert any("rank 0 is given to several" in text for text in decode_nccl_xml(twice)[1])
    assert any("fewer links to the NVSwitches" in text for text in decode_nccl_xml(fewer)[1])


def test_xgmi() -> None:
    t, _ = read_nccl_xml(MACHINES / "xgmi.xml", name="four dies")
    assert t.name == "four dies"
    assert (link(t, "gpu0", "gpu1"), link(t, "gpu1", "gpu2"), link(t, "gpu0", "gpu2")) == (
        100,
        50,
        0,
    )
    assert t.gpus[0].model == "MI250X"


def test_bare_gpus_are_numbered_by_address_whatever_the_order() -> None:
    def machine(order: str) -> Topology:
        text = "".join(
            f'<pci busid="000{c}:00:00.0" class="0x030200" link_speed="{g} GT/s" link_width="16"/>'
            for c, g in sorted({"1": 8, "2": 16, "3": 32}.items(), key=lambda x: order.index(x[0]))
        )
        return decode_nccl_xml(
            f'<system version="1"><cpu numaid="0">{text}</cpu></system>'.encode()
        )[0]

    assert machine("123").gpus == machine("321").gpus
    assert [gpu.busid for gpu in machine("312").gpus] == [f"000{c}:00:00.0" for c in "123"]
    assert set(machine("123").nodes) == set(machine("213").nodes)
    assert signature(machine("123")) == signature(machine("231"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((MACHINES / "graph.xml").read_bytes(), "x.xml:1: expected an NCCL topology (<system>)"),
        (b"<algo/>", "MSCCL program"),
        (b"", "x.xml:1: not well-formed"),
        (b"{}", "x.xml:1: not well-formed"),
        (b"<system/>", "version=''"),
        (b"<system version='3'/>", "version='3'"),
        (b"<system version='1'/>", "no GPU"),
        (b"<system version='1'>\n<cpu numaid='x'/></system>", "x.xml:2: <cpu numaid='x'>"),
        (b"<system version='1'><cpu numaid='0'>\n<pci busid='9'/></cpu></system>", "x.xml:2: <pci"),
        (b"<system version='1'>text</system>", "text 'text'"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><system version='1'/>", "document type"),
        (b"<a>" * 100, "64 levels"),
        (b"<system version='1'><cpu host_hash='1'/><cpu host_hash='2'/></system>", "2 hosts"),
        (b"<?xml version='1.0' encoding='utf-7'?><system version='9'/>", "version='9'"),
        *(
            (
                (MACHINES / "nvswitch.xml").read_bytes().replace(good, damaged, 1),
                f"x.xml:4: <pci {damaged.decode().partition('=')[0]}=",
            )
            for good, damaged in (
                (b'class="0x060400"', b'class="0x06O4"'),
                (b'link_width="16"', b'link_width="1G"'),
                (b'link_width="16"', b'link_width="160"'),
                (b'link_speed="16 GT/s"', b'link_speed="1600 GT/s"'),
                (b'link_speed="16 GT/s"', b'link_speed="16 GB/s"'),
            )
        ),
        (
            (MACHINES / "nvswitch.xml").read_bytes().replace(b'count="6"', b'count="60"', 1),
            "x.xml:7: more than the 12 NVLinks that a GPU of sm_80 has",
        ),
    ],
)
def test_other_files_are_refused_in_one_line(data: bytes, expected: str) -> None:
    with pytest.raises(InputError) as error:
        decode_nccl_xml(data, "x.xml")
    assert expected in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_bus_ids_without_a_class_are_explained() -> None:
    """NCCL fills in the class of such files of cloud vendors when it runs."""
    pci = "".join(f'<pci busid="000{n}:00:00.0"/>' for n in range(4))
    data = f'<system version="1"><cpu numaid="0">{pci}</cpu></system>'.encode()
    with pytest.raises(InputError, match="NCCL_TOPO_DUMP_FILE") as error:
        decode_nccl_xml(data, "cloud.xml")
    assert str(error.value).startswith("cloud.xml: no GPU: <pci> elements have bus ids without")


def test_a_speed_as_aws_writes_it_is_read_with_a_warning() -> None:
    """Files of aws-ofi-nccl have 'PCIe/s', which NCCL's table of speeds lacks."""
    speed = 'link_speed="32 GT/s PCIe/s" link_width="16"'
    gpus = "".join(f'<pci busid="000{n}:00:00.0" class="0x030200" {speed}/>' for n in range(2))
    data = f'<system version="1"><cpu numaid="0">{gpus}</cpu></system>'.encode()
    t, warnings = decode_nccl_xml(data, "p5.xml")
    assert {link.bandwidth for link in t.links} == {16 * 3.94}
    assert any("'GT/s PCIe/s' read as GT/s" in warning for warning in warnings)
    with pytest.raises(InputError, match="link_speed"):
        decode_nccl_xml(data.replace(b"PCIe/s", b"PCIe/h"), "p5.xml")


def test_an_address_twice_is_refused() -> None:
    pci = b'<pci busid="0000:01:00.0" class="0x030200"/>\n'
    with pytest.raises(InputError, match=r"<xml>:2: .*already, in line 1"):
        decode_nccl_xml(b"<system version='1'><cpu numaid='0'>" + pci * 2 + b"</cpu></system>")


def test_two_switches_of_one_address_stay_two() -> None:
    gpu = '<pci busid="0000:0{}:00.0" class="0x030200"/>'
    switch = '<pci busid="0000:c5:00.0" class="0x060400">{}</pci>\n'
    pairs = (gpu.format(1) + gpu.format(2), gpu.format(3) + gpu.format(4))
    text = "".join(switch.format(pair) for pair in pairs)
    t, warnings = decode_nccl_xml(
        f'<system version="1"><cpu numaid="0">{text}</cpu></system>'.encode()
    )
    assert sum(node.kind == "pcie" for node in t.nodes) == 2
    assert [hop.dst for hop in path(t, 2, 3).hops] == ["pci-0000:c5:00.0+2", "gpu3"]
    assert any("another's address" in text for text in warnings)


def read_or_refuse(data: bytes) -> None:
    try:
        t, _ = decode_nccl_xml(data, "x.xml")
    except InputError as error:
        assert str(error).startswith("x.xml")
        assert len(str(error).splitlines()) == 1
    else:
        assert len(all_paths(t)) == t.ranks * (t.ranks - 1)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DAMAGED), st.floats(0, 1), st.binary(max_size=4), st.integers(0, 60))
def test_damage_anywhere_is_read_or_refused(
    data: bytes, place: float, put: bytes, cut: int
) -> None:
    at = int(place * len(data))
    read_or_refuse(data[:at] + put + data[at + cut :])


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DAMAGED), st.data())
def test_swapped_values_are_read_or_refused(data: bytes, draw: st.DataObject) -> None:
    parts = data.split(b'"')
    values = range(1, len(parts), 2)
    one, other = draw.draw(st.sampled_from(values)), draw.draw(st.sampled_from(values))
    parts[one], parts[other] = parts[other], parts[one]
    read_or_refuse(b'"'.join(parts))
