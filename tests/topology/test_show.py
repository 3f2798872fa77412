"""Topologies as text: what people know from nvidia-smi, and rates with their origin."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tuccl.topology import PROFILES, Topology, join, load_profile, read_cluster
from tuccl.topology.show import matrix
from tuccl.topology.smi import smi_matrix

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "topologies" / "smi_topo"


def cells(text: str) -> dict[str, list[str]]:
    """The rows of a matrix by name, each with its cells and what follows them."""
    header, *rows = text.split("\n\n")[0].splitlines()
    names = [name for name in header.split("\t") if name and "Affinity" not in name]
    return {row.split("\t")[0]: row.split("\t")[1 : len(names) + 3] for row in rows}


@pytest.mark.parametrize("name", PROFILES)
def test_the_smi_matrix_is_square_and_symmetric(name: str) -> None:
    topology = load_profile(name)
    text = smi_matrix(topology)
    rows = cells(text)
    names = list(rows)
    nics = topology.nics_of("n0")
    assert len(names) == topology.ranks + len(nics)
    for i, one in enumerate(names):
        assert rows[one][i] == " X "
        assert all(rows[one][j] == rows[other][i] for j, other in enumerate(names))
    assert all(f"  NIC{number}: {nic}" in text.splitlines() for number, nic in enumerate(nics))


def test_a_dgx_1_reads_as_nvidia_smi_prints_it() -> None:
    if not DATA.is_dir():
        pytest.skip("the recorded machines are not here (../shared/data)")
    recorded = cells((DATA / "dgx1_v100_4hca_unordered.txt").read_text())
    rows = cells(smi_matrix(load_profile("dgx-1v")))
    for gpu in range(8):
        assert rows[f"GPU{gpu}"][:8] == recorded[f"GPU{gpu}"][:8]


def test_links_are_counted_at_the_rate_of_their_generation() -> None:
    assert cells(smi_matrix(load_profile("dgx-a100")))["GPU0"][1] == "NV12"
    assert cells(smi_matrix(load_profile("dgx-h100")))["GPU0"][1] == "NV18"


def test_equal_hosts_are_printed_once() -> None:
    text = smi_matrix(join(load_profile("ndv2"), 3))
    assert text.startswith("n0, n1, n2:\n\tGPU0")
    assert text.count("GPU7\t") == 2  # a column and a row
    assert smi_matrix(join(load_profile("ndv2"), 3), "n1") == smi_matrix(load_profile("ndv2"))


def test_a_tray_of_a_rack_is_printed_as_its_own_server() -> None:
    text = smi_matrix(load_profile("gb200-nvl72"))
    assert text.startswith("n0 (18 servers):\n")
    assert text.partition("\n")[2] == smi_matrix(load_profile("gb200"))


@pytest.mark.parametrize("name", [n for n in PROFILES if not n.startswith("mi")])
def test_a_matrix_is_read_back_with_the_same_classes(name: str, tmp_path: Path) -> None:
    printed = tmp_path / "matrix.txt"
    printed.write_text(smi_matrix(load_profile(name)))
    topology, _ = read_cluster(printed)
    again = cells(smi_matrix(topology))
    for row, row_again in zip(cells(printed.read_text()).values(), again.values(), strict=True):
        assert row[: len(again)] == row_again[: len(again)]


def measured(topology: Topology) -> Topology:
    links = [msgspec.structs.replace(link, assumed=False, measured=1.0) for link in topology.links]
    return msgspec.structs.replace(topology, links=tuple(links))


def test_rates_carry_their_origin() -> None:
    topology = load_profile("v100x4")
    table = matrix(topology)
    assert "nic0 PIX 15.8?" in table
    assert "NVL 50?" not in table
    assert "assumed, as NCCL does for Intel SKL" in table
    assert "NVL 50*" in matrix(measured(topology))
    assert "?" not in matrix(measured(topology)).splitlines()[1]
