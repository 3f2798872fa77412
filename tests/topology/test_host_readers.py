"""What each reader of hosts does with the oddities of real machines."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.topology.renderings import (
    hwloc_xml,
    pack_sysfs,
    random_machine,
    rocm_text,
    without_nvlink,
)
from tuccl.errors import InputError
from tuccl.topology import Topology, path, read_cluster
from tuccl.topology.readers.nccl_xml import decode_nccl_xml
from tuccl.topology.show import path_class
from tuccl.topology.smi import smi_matrix

GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x20b0"}
GEN4 = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}


def nvlink_gbs(t: Topology, src: str, dst: str) -> float:
    return sum(x.bandwidth for x in t.links if {x.src, x.dst} == {src, dst})


def capture(root: Path, *places: tuple[str, dict[str, str]]) -> Path:
    """Write PCI functions with their files to a /sys below ``root``."""
    listing = root / "sys/bus/pci/devices"
    listing.mkdir(parents=True, exist_ok=True)
    for place, texts in places:
        for name, text in {"numa_node": "0", **texts}.items():
            file = root / "sys/devices" / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        (listing / Path(place).name).symlink_to(f"../../../devices/{place}")
    return root


# --- /sys


def test_what_sys_does_not_know_or_has_wrong(tmp_path: Path) -> None:
    emulated = {"class": "0x060400", "max_link_speed": "2.5 GT/s PCIe", "max_link_width": "1"}
    slot = {"class": "0x060400", "max_link_speed": "8.0 GT/s PCIe", "max_link_width": "8"}
    unknown = {"max_link_speed": "Unknown", "max_link_width": "255"}
    console = {"class": "0x030000", "vendor": "0x1002", "device": "0x515e"}
    root = capture(
        tmp_path,
        ("pci0000:00/0000:00:01.0", emulated),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", {**GPU, **GEN4, "numa_node": "-1"}),
        ("pci0000:00/0000:00:02.0", slot),
        ("pci0000:00/0000:00:02.0/0000:02:00.0", {**GPU, **GEN4}),
        ("pci0000:00/0000:00:03.0", {"class": "0x060400"}),
        ("pci0000:00/0000:00:03.0/0000:03:00.0", {**GPU, **unknown}),
        ("pci0000:00/0000:00:04.0", console),
    )
    (root / "sys/devices/system/node/node0").mkdir(parents=True)
    topology, warnings = read_cluster(root)
    # The console's display adapter is no GPU, and the only NUMA node is everybody's.
    assert (topology.ranks, [n.id for n in topology.nodes if n.kind == "cpu"]) == (3, ["cpu0"])
    rates = {x.src: (x.bandwidth, x.assumed) for x in topology.links if x.dst == "cpu0"}
    assert rates == {"gpu0": (31.52, False), "gpu1": (7.88, False), "gpu2": (15.76, True)}
    assert any("link speed unknown, width unknown" in text for text in warnings)


def test_ports_of_a_card_share_its_slot(tmp_path: Path) -> None:
    nic = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1019", **GEN4}
    adapters = {f"infiniband/mlx5_{n}/ports/1/rate": "100 Gb/sec (4X EDR)" for n in range(2)}
    root = capture(
        tmp_path,
        ("pci0000:00/0000:00:01.0", {"class": "0x060400"}),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", {**GPU, **GEN4}),
        ("pci0000:00/0000:00:02.0", {"class": "0x060400"}),
        *(
            (
                f"pci0000:00/0000:00:02.0/0000:02:00.{n}",
                {**nic, name: text, f"infiniband/mlx5_{n}/node_guid": f"0002:c903:000e:123{n}"},
            )
            for n, (name, text) in enumerate(adapters.items())
        ),
    )
    topology, _ = read_cluster(root)
    nics = [topology.node(nic) for nic in topology.nics_of("n0")]
    assert [(n.device, n.guid) for n in nics] == [
        ("mlx5_0", "0002c903000e1230"),
        ("mlx5_1", "0002c903000e1231"),
    ]
    assert {x.dst for x in topology.links if x.src in ("nic0", "nic1")} == {"slot-0000:02:00"}


def test_a_port_that_is_down_shows_no_rate(tmp_path: Path) -> None:
    nic = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", **GEN4}
    ports = [
        {"infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)"},
        {"infiniband/mlx5_1/ports/1/rate": "10 Gb/sec (4X SDR)"},
    ]
    ports[0]["infiniband/mlx5_0/ports/1/state"] = "4: ACTIVE"
    ports[1]["infiniband/mlx5_1/ports/1/state"] = "1: DOWN"
    root = capture(
        tmp_path,
        ("pci0000:00/0000:01:00.0", {**GPU, **GEN4}),
        *((f"pci0000:00/0000:0{2 + n}:00.0", {**nic, **port}) for n, port in enumerate(ports)),
    )
    topology, warnings = read_cluster(root)
    assert [topology.node(nic).port_gbs for nic in topology.nics_of("n0")] == [50.0, None]
    assert any("port speed is unknown" in text for text in warnings)


def test_xgmi_from_the_driver_of_amd(tmp_path: Path) -> None:
    gpu = {"class": "0x038000", "vendor": "0x1002", "device": "0x7408", **GEN4}
    root = capture(
        tmp_path,
        *((f"pci0000:{bus}0/0000:{bus}1:00.0", {**gpu, "numa_node": "0"}) for bus in (1, 2, 3)),
    )
    nodes = root / "sys/devices/virtual/kfd/kfd/topology/nodes"
    links = {1: {2: (15, 200000), 3: (15, 50000)}, 2: {1: (15, 200000), 3: (30, 50000)}}
    links[3] = {1: (15, 50000), 2: (30, 50000)}
    for node in range(4):
        (nodes / str(node)).mkdir(parents=True)
        bus = (node << 4 | 1) << 8
        facts = f"simd_count {440 if node else 0}\nlocation_id {bus}\ngfx_target_version 90010\n"
        (nodes / str(node) / "properties").write_text(facts)
        for number, (peer, (weight, mbs)) in enumerate(links.get(node, {}).items()):
            folder = nodes / str(node) / f"io_links/{number}"
            folder.mkdir(parents=True)
            (folder / "properties").write_text(
                f"type 11\nnode_from {node}\nnode_to {peer}\nweight {weight}\nmax_bandwidth {mbs}\n"
            )
    topology, _ = read_cluster(root)
    pairs = [("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu1", "gpu2")]
    assert [nvlink_gbs(topology, *pair) for pair in pairs] == [200, 50, 0]


def test_captures_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sys/bus/pci/devices"):
        read_cluster(tmp_path)
    place = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    place.mkdir(parents=True)
    with pytest.raises(InputError, match="capture /sys with its links"):
        read_cluster(tmp_path)
    place.rmdir()
    place.symlink_to("/etc")
    with pytest.raises(InputError, match="capture /sys with its links"):
        read_cluster(tmp_path)


def test_a_link_of_no_length_in_a_capture_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sys.tar"
    with tarfile.open(file, "w") as tar:
        link = tarfile.TarInfo("sys/bus/pci/devices/0000:01:00.0")
        link.type, link.linkname = tarfile.SYMTYPE, "devices/" * 5000 + "!"
        tar.addfile(link)
    with pytest.raises(InputError, match="a link of more than 1024 characters"):
        read_cluster(file)


@pytest.mark.parametrize("level", ["sys", "sys/devices/pci0000:00", "."])
def test_a_folder_of_a_capture_leads_nowhere_outside(tmp_path: Path, level: str) -> None:
    root = tmp_path / "host" / "captured"
    capture(root, ("pci0000:00/0000:01:00.0", {**GPU, **GEN4}))
    assert read_cluster(root)[0].ranks == 1
    folder = (root / level).rename(tmp_path / "outside")
    (root / level).symlink_to(folder)
    with pytest.raises(InputError, match=r"no GPU|no sys/bus"):
        read_cluster(root.parent)


def test_a_capture_points_nowhere_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0x030200")
    root = capture(tmp_path / "host", ("pci0000:00/0000:01:00.0", {**GPU, **GEN4}))
    file = root / "sys/devices/pci0000:00/0000:01:00.0/class"
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(InputError, match="no GPU"):
        read_cluster(root)


# --- hwloc


def test_the_public_dgx_2(shared_data: Path) -> None:
    topology, _ = read_cluster(shared_data / "topologies/hwloc/nvidiaDGX2.xml")
    assert topology.ranks == 16
    assert {x.bandwidth for x in topology.links if x.kind == "nvlink"} == {150.0}
    tree = without_nvlink(topology)
    kinds = [path_class(tree, path(tree, 0, peer)) for peer in (1, 2, 4, 8)]
    assert kinds == ["PIX", "PXB", "PHB", "SYS"]


def test_a_power_machine_has_nvlinks_to_its_cpus(tmp_path: Path) -> None:
    pci = 'pci_type="0302 [10de:15f9] [10de:116b] a1 00" pci_link_speed="4.000000"'
    text = "".join(
        f'<object type="Bridge" bridge_type="1-1" pci_busid="000{n}:00:00.0" '
        f'pci_type="0604 [1014:03dc] [0000:0000] 00 00"><object type="PCIDev" gp_index="{n}" '
        f'pci_busid="000{n}:01:00.0" {pci}><object type="OSDev" gp_index="1{n}" name="nvml{n}" '
        'osdev_type="1"/></object></object>'
        for n in (1, 2)
    )
    file = tmp_path / "power.xml"
    file.write_text(
        '<topology version="2.0"><object type="Machine" nodeset="0x1" gp_index="0">'
        f'<object type="Package" gp_index="9" nodeset="0x1">{text}</object></object>'
        '<distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth">'
        "<indexes>OSDev:11 OSDev:12 Package:9</indexes>"
        "<u64values>1000000 40000 40000 40000 1000000 40000 0 0 1000000</u64values>"
        "</distances2hetero></topology>"
    )
    topology, warnings = read_cluster(file)
    assert nvlink_gbs(topology, "gpu1", "gpu0") == 40
    assert {x.bandwidth for x in topology.links if x.dst == "cpu0" and x.kind == "nvlink"} == {40.0}
    # The link of an idle GPU shows 2.5 GT/s; its model's speed is taken.
    assert {x.bandwidth for x in topology.links if x.dst == "cpu0" and x.kind == "pcie"} == {15.76}
    assert any("idle GPU" in text for text in warnings)
    file.write_text(file.read_text().replace("40000 1000000 40000", "20000 1000000 40000"))
    assert any("to OSDev:12 is 40000, but 20000 back" in w for w in read_cluster(file)[1])


def test_xgmi_of_hwloc(tmp_path: Path) -> None:
    def gpu(n: int) -> str:
        return (
            f'<object type="PCIDev" gp_index="{n}" pci_busid="0000:0{n}:00.0" '
            'pci_type="0380 [1002:7408] [1002:0b0c] 00 00" pci_link_speed="31.507692">'
            f'<object type="OSDev" gp_index="1{n}" name="rsmi{n - 1}" osdev_type="1"/></object>'
        )

    gpus = "".join(gpu(n) for n in (1, 2, 3))
    file = tmp_path / "mi250x.xml"
    file.write_text(
        '<topology version="2.0"><object type="Machine" nodeset="0x1" gp_index="0"><object '
        f'type="Bridge" bridge_type="0-1">{gpus}</object></object>'
        '<distances2 type="OSDev" nbobjs="3" kind="9" name="XGMIBandwidth" indexing="gp">'
        "<indexes>11 12 13</indexes>"
        "<u64values>0 200000 50000 200000 0 0 50000 0 0</u64values></distances2></topology>"
    )
    topology, _ = read_cluster(file)
    pairs = [("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu1", "gpu2")]
    assert [nvlink_gbs(topology, *pair) for pair in pairs] == [200, 50, 0]
    assert topology.gpus[0].model == "MI250X"


def test_hwloc_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.xml"
    good = hwloc_xml(random_machine(0), 2).decode()
    for text, expected in (
        (good.replace('version="2.0"', 'version="9.1"'), "expected 1, 2 or 3"),
        (good.replace("[10de:1db1]", "[10de]"), "expected a class and ids"),
        (re.sub('pci_link_speed="[^"]*', 'pci_link_speed="15.x', good), "expected GB/s"),
        (good.replace("OSDev:", "OSDev:9", 1), "no object 'OSDev:9"),
        (good.replace("<u64values>", "<u64values>7 ", 1), "values for"),
        (good.replace("0302 ", "0108 "), "--whole-io"),
        (good.replace('"hwloc.dtd"', '"hwloc.dtd" [<!ENTITY a "b">]'), "document type"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=r"x\.xml") as error:
            read_cluster(file, "hwloc")
        assert expected in str(error.value)


# --- rocm-smi


def test_rocm_smi(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_bytes(rocm_text(8, near=4))
    topology, _ = read_cluster(file)
    rows = [row.split("\t")[1:9] for row in smi_matrix(topology).splitlines()[1:9]]
    assert rows[0] == [" X ", *["XGMI"] * 3, *["SYS"] * 4]
    assert rows[7] == [*["SYS"] * 4, *["XGMI"] * 3, " X "]
    # In a ring only neighbours are one hop apart.
    file.write_bytes(rocm_text(6))
    ring, _ = read_cluster(file)
    assert sum(x.kind == "xgmi" for x in ring.links) == 6


def test_rocm_smi_of_a_mesh_may_say_too_much(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_bytes(rocm_text(8, near=8))
    assert any("MI250X" in text for text in read_cluster(file)[1])
    gfx = "".join(f"GPU[{n}]\t\t: GFX Version: \t\tgfx942\n" for n in range(8)).encode()
    file.write_bytes(rocm_text(8, near=8) + gfx)
    topology, warnings = read_cluster(file)
    assert not any("MI250X" in text for text in warnings)
    assert {x.bandwidth for x in topology.links if x.kind == "xgmi"} == {64.0}


def test_damaged_rocm_smi_is_refused(tmp_path: Path) -> None:
    good = rocm_text(4).decode()
    lines = good.splitlines()
    file = tmp_path / "x.txt"
    for text, expected in (
        (good.replace("PCIE", "PCI", 1).replace("XGMI", "XGM", 1), "is 'XGM"),
        ("\n".join([*lines[:3], *lines[4:]]), "rows are missing"),
        (good.replace("GPU[2]\t\t: (Topology) Numa Node", "x"), "no NUMA node of GPU2"),
        (good.split("Link Type")[0], "no matrix of link types"),
        (good + good, "a second"),
        ("\n".join([*lines[:3], lines[3] + lines[4], *lines[5:]]), "cells; expected"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=r"x\.txt") as error:
            read_cluster(file)
        assert expected in str(error.value)


# --- NCCL's files


def test_an_xml_that_begins_late(tmp_path: Path) -> None:
    host = b'<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"/>'
    host += b"</cpu></system>"
    for start in (b"", b"\n", b"<!-- a - note -->\n", b"\xef\xbb\xbf"):
        for declaration in (b"", b'<?xml version="1.0" encoding="UTF-8"?>\n'):
            file = tmp_path / "host.xml"
            file.write_bytes(start + declaration + host)
            assert read_cluster(file)[0].ranks == 1


def test_an_idle_gpu_takes_the_rate_of_its_model() -> None:
    text = b'<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200" '
    text += b'vendor="0x10de" device="0x2330" link_speed="2.5 GT/s PCIe" link_width="16"/>'
    topology, warnings = decode_nccl_xml(text + b"</cpu></system>")
    assert [(x.bandwidth, x.assumed) for x in topology.links] == [(63.04, True)]
    assert any("idle GPU" in text for text in warnings)


def test_a_card_with_two_ports_is_no_switch() -> None:
    text = """<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400">
      <pci busid="0000:02:00.0" class="0x030200"/>
      <pci busid="0000:03:00.0" class="0x020700" vendor="0x15b3" device="0x1021"><nic>
        <net name="mlx5_0" dev="0" port="1"/><net name="mlx5_1" dev="1" port="2"/>
      </nic></pci></pci></cpu></system>"""
    topology, _ = decode_nccl_xml(text.encode())
    assert smi_matrix(topology).splitlines()[1].split()[:4] == ["GPU0", "X", "PIX", "PIX"]
    assert smi_matrix(topology).splitlines()[2].split()[1:4] == ["PIX", "X", "PIX"]
    assert topology.node("pci-0000:03:00.0").model == "ConnectX-7"


# --- look-alikes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"nnodes": 1, "intranode_sketch": {}}', "TACCL sketch; `tuccl synth --sketch"),
        ('{"gpus_per_node": 8, "alpha": 30}', "TACCL profile"),
        ('{"name": "x", "collective": "allreduce", "gpus": []}', "MSCCL"),
        ("<graphs version='1'/>", "NCCL_TOPO_DUMP_FILE"),
        ("<algo name='x'/>", "`tuccl verify` reads those"),
        ("Machine (754GB total)\n  Package L#0\n", "lstopo --of xml"),
        ("| NVIDIA-SMI 550.127.05  Driver Version: 550 |\n", "`nvidia-smi topo -m`"),
        ("==== ROCm System Management Interface ====\nGPU  Temp\n", "`rocm-smi --showtopo`"),
        ("\tGPU0GPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X\n", "header is missing or damaged"),
        ("LINK TYPE TABLE:\n", "amd-smi's tables"),
        ("-+-[0000:00]-+-00.0\n", "lspci's output"),
        ("SwitchName=s0 Nodes=n[0-3]\n", "give it as --fabric-file"),
        ("GPU0 GPU1\n", "no known format"),
        ("\n" * 65536, "no known format"),
        ("", "no known format"),
    ],
)
def test_look_alikes_say_what_to_do(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=r"x\.txt") as error:
        read_cluster(file)
    assert expected in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(pack_sysfs(random_machine(2)))
    assert read_cluster(file, "sysfs")[0].ranks == read_cluster(file)[0].ranks
    with pytest.raises(InputError, match="not well-formed"):
        read_cluster(file, "nccl")
    with pytest.raises(InputError, match="format 'xml' is not known"):
        read_cluster(file, "xml")
