"""The forms that ``nvidia-smi topo`` had over the years, and pasted ones that lost something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.topology.renderings import classes, without_nvlink
from tuccl.errors import InputError
from tuccl.topology import Topology, all_paths, load_profile, overlay, path, read_cluster
from tuccl.topology.show import path_class
from tuccl.topology.smi import smi_matrix

OLD = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tmlx4_0\tmlx4_1\tCPU Affinity
GPU0\t X \tPIX\tSOC\tSOC\tPHB\tSOC\t0-9,20-29
GPU1\tPIX\t X \tSOC\tSOC\tPHB\tSOC\t0-9,20-29
GPU2\tSOC\tSOC\t X \tNV2\tSOC\tPXB\t10-19,30-39
GPU3\tSOC\tSOC\tNV2\t X \tSOC\tPXB\t10-19,30-39
mlx4_0\tPHB\tPHB\tSOC\tSOC\t X \tSOC\t
mlx4_1\tSOC\tSOC\tPXB\tPXB\tSOC\t X \t

Legend:

  X   = Self
  SOC = Connection traversing PCIe as well as the SMP link between CPU sockets (e.g. QPI)
"""
# One GPU of an NVSwitch machine whose links are down.
ONE_DOWN = """\
      GPU0 GPU1 GPU2 GPU3 GPU4 NIC0 NIC1 CPU Affinity NUMA Affinity GPU NUMA ID
GPU0   X   NV18 NODE NV18 NV18 PIX  SYS  0-55,112-167    0    N/A
GPU1  NV18  X   NODE NV18 NV18 NODE SYS  0-55,112-167    0    N/A
GPU2  NODE NODE  X   NODE SYS  NODE SYS  0-55,112-167    0    N/A
GPU3  NV18 NV18 NODE  X   NV18 NODE SYS  0-55,112-167    0    N/A
GPU4  NV18 NV18 SYS  NV18  X   SYS  PXB  56-111,168-223  1    N/A
NIC0  PIX  NODE NODE NODE SYS   X   SYS
NIC1  SYS  SYS  SYS  SYS  PXB  SYS   X

Legend:

NIC Legend:
  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


def read(text: str, tmp_path: Path) -> tuple[Topology, tuple[str, ...]]:
    file = tmp_path / "topo.txt"
    file.write_text(text)
    return read_cluster(file)


def refusal(text: str, tmp_path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(text, tmp_path)
    assert str(error.value).startswith(str(tmp_path))
    return str(error.value).partition("topo.txt")[2]


PUBLIC = {
    "dgx1_v100_4hca_unordered": (8, 4, "NVL"),
    "dgx_a100_12hca": (8, 12, "NVS"),
    "hgx_h200_12nic": (8, 12, "NVS"),
    "titanv_pcie_8": (8, 0, "PIX"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_matrices_come_back_as_printed(name: str, shared_data: Path) -> None:
    file = shared_data / "topologies" / "smi_topo" / f"{name}.txt"
    topology, _ = read_cluster(file)
    assert (topology.ranks, len(topology.nics_of("n0"))) == PUBLIC[name][:2]
    assert path_class(topology, path(topology, 0, 1)) == PUBLIC[name][2]
    assert len(all_paths(topology)) == topology.ranks * (topology.ranks - 1)
    header, *rows = [line.split() for line in file.read_text().split("\n\n")[0].splitlines()]
    devices = header[: header.index("CPU")]
    order = sorted(devices, key=lambda d: (not d.startswith("GPU"), int(re.sub(r".*\D", "", d))))
    cells = {row[0]: dict(zip(devices, row[1:], strict=False)) for row in rows}
    expected = [[cells[a][b].replace("NODE", "PHB") for b in order] for a in order]
    assert [row.split()[1:] for row in classes(topology)] == expected
    if name == "dgx_a100_12hca":
        printed = smi_matrix(topology).splitlines()[1:9]
        assert [row.split()[-2] for row in printed] == list("33117755")


def test_the_old_form(tmp_path: Path) -> None:
    topology, warnings = read(OLD, tmp_path)
    rows = [line.split("\t")[:7] for line in OLD.replace("SOC", "SYS").splitlines()[1:7]]
    assert [row.split("\t")[1:] for row in classes(topology)] == [row[1:] for row in rows]
    assert [topology.node(nic).device for nic in topology.nics_of("n0")] == ["mlx4_0", "mlx4_1"]
    assert {gpu.busid for gpu in topology.gpus} == {None}  # the matrix has no addresses
    # GPU2 and GPU3 share their CPUs, and the adapter is behind several switches of both.
    assert classes(without_nvlink(topology))[2].split()[4] == "PXB"
    assert any("topo -mp" in text for text in warnings)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\t", "    "),
        lambda text: "\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1),
        lambda text: "[4m" + text.replace("\n", "[0m\n", 1),
        lambda text: "$ nvidia-smi topo -m\n\n" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\n".join([*text.splitlines()[:1], *text.splitlines()[6:0:-1], "\nLegend:"]),
    ],
)
def test_pasted_forms_are_read_alike(change: object, tmp_path: Path) -> None:
    assert callable(change)
    assert classes(read(change(OLD), tmp_path)[0]) == classes(read(OLD, tmp_path)[0])


def test_a_gpu_without_its_nvlinks_stays_on_pcie(tmp_path: Path) -> None:
    topology, _ = read(ONE_DOWN, tmp_path)
    switched = {link.src for link in topology.links if link.dst == "nvswitch0"}
    assert switched == {"gpu0", "gpu1", "gpu3", "gpu4"}
    assert {x.bandwidth for x in topology.links if x.dst == "nvswitch0"} == {450.0}
    assert path_class(topology, path(topology, 0, 2)) == "PHB"
    assert path_class(topology, path(topology, 4, 2)) == "SYS"
    assert topology.node("nic1").device == "mlx5_bond_0"


def test_rates_are_assumed_until_a_profile_shows(tmp_path: Path) -> None:
    text = smi_matrix(read(ONE_DOWN, tmp_path)[0])
    topology, _ = read(text, tmp_path)
    assert all(link.assumed for link in topology.links)


@pytest.mark.parametrize("gpus", [16, 40])
def test_many_gpus(gpus: int, tmp_path: Path) -> None:
    names = [f"GPU{n}" for n in range(gpus)]
    rows = [
        "\t".join([name, *("X" if name == peer else "NV6" for peer in names), "0-47", "0"])
        for name in names
    ]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    topology, _ = read("\n".join([header, *rows, "", "Legend:"]), tmp_path)
    assert topology.ranks == gpus
    assert sum(link.dst == "nvswitch0" for link in topology.links) == gpus


def test_damaged_matrices_are_refused_with_line_and_remedy(tmp_path: Path) -> None:
    lines = OLD.splitlines()
    fused = "\n".join([*lines[:2], lines[2] + lines[3], *lines[4:]])
    assert refusal(fused, tmp_path).startswith(":3: the row of GPU1 is damaged")
    missing = "\n".join([*lines[:3], *lines[4:]])
    assert refusal(missing, tmp_path) == ":1: the row of GPU2 is missing; paste the whole matrix"
    assert ":2: the row of GPU0 is damaged: '0-9" in refusal(OLD.replace("\t X ", "", 1), tmp_path)
    assert ":6: the row of mlx4_0 is damaged: not 6 classes" in refusal(
        OLD.replace("PHB\tPHB\tSOC", "PHB\tSOC"), tmp_path
    )
    assert ":2: the row of GPU0 is damaged: 'PI'" in refusal(OLD.replace("PIX", "PI", 1), tmp_path)
    assert ":2: GPU0 to GPU1 is PXB, but PIX in line 3" in refusal(
        OLD.replace("PIX", "PXB", 1), tmp_path
    )
    assert ":4: a second row of GPU1" in refusal(OLD.replace("GPU2\tSOC", "GPU1\tSOC"), tmp_path)
    assert ":1: a column twice" in refusal(OLD.replace("\tGPU1", "\tGPU0", 1), tmp_path)
    for cell, put in (
        ("1    N/A", "N/A"),
        ("1    N/A", "5000 N/A"),
        ("56-111,", "111-56,"),
        ("56-111,", "56-168,"),
    ):
        assert ":6: the row of GPU4 is damaged" in refusal(ONE_DOWN.replace(cell, put), tmp_path)
    assert "CPU Affinity '0-9;20-29'" in refusal(OLD.replace("0-9,20", "0-9;20", 1), tmp_path)
    assert "topo -p2p" in refusal(
        "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n\nLegend:\n  X = Self\n", tmp_path
    )


def test_classes_that_no_tree_holds_are_reported(tmp_path: Path) -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tSYS\nGPU1\tPIX\tX\tPIX\nGPU2\tSYS\tPIX\tX\n\nLegend:\n"
    )
    _, warnings = read(text, tmp_path)
    assert any("1 pairs of class SYS are nearer" in text for text in warnings)


def test_a_nic_of_many_digits_has_its_place(tmp_path: Path) -> None:
    text = OLD.replace("mlx4_0", "mlx4_" + "0" * 5000)
    assert classes(read(text, tmp_path)[0]) == classes(read(OLD, tmp_path)[0])


def test_two_machines_in_a_file_are_refused(tmp_path: Path) -> None:
    other = OLD.replace("PIX", "PHB")
    assert "keep one machine a file" in refusal(OLD + other, tmp_path)
    assert "keep one machine a file" in refusal(OLD + ONE_DOWN, tmp_path)


def test_a_profile_fills_models_and_rates(tmp_path: Path) -> None:
    topology, _ = read(smi_matrix(load_profile("dgx-2")), tmp_path)
    filled = overlay(topology, "dgx-2")
    assert filled.gpus[0].model == "V100-SXM3-32GB"
    assert all(link.assumed for link in filled.links)
    assert {x.bandwidth for x in filled.links if x.kind == "nvlink"} == {150.0}
    assert all("profile dgx-2" in x.source for x in filled.links)
    newer, _ = read(smi_matrix(load_profile("dgx-h100")), tmp_path)
    rates = {x.kind: x.bandwidth for x in overlay(newer, "dgx-h100").links}
    assert rates == {"nvlink": 450.0, "pcie": 63.04, "cpu": 22.0}


@pytest.mark.parametrize(("name", "gts"), [("dgx-1v", "8"), ("dgx-a100", "16"), ("dgx-h100", "32")])
def test_pcie_is_of_the_generation_that_the_nvlinks_show(
    name: str, gts: str, tmp_path: Path
) -> None:
    topology, warnings = read(smi_matrix(load_profile(name)), tmp_path)
    pcie = [link for link in topology.links if link.kind == "pcie"]
    assert pcie and all(link.assumed and f": {gts} GT/s x16 taken" in link.source for link in pcie)
    assert any(f"{gts} GT/s x16 taken" in warning for warning in warnings)
