"""Known machines: every number has a source, and the wiring is the data sheet's."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.topology import PROFILES, Topology, all_paths, join, load_profile, overlay
from tuccl.topology.readers.nccl_xml import read_nccl_xml

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "machines" / "ndv2-topo.xml"
# GPUs, NICs, GB/s of a NIC's port, GB/s between GPUs of one (NVLink, xGMI)
SHEETS: dict[str, tuple[int, int, float, float | tuple[float, ...]]] = {
    "v100x4": (4, 2, 12.5, 150),
    "dgx-1v": (8, 4, 12.5, 150),
    "ndv2": (8, 1, 12.5, 150),
    "dgx-2": (16, 8, 12.5, 150),
    "dgx-a100": (8, 8, 25.0, 300),
    "ndv4": (8, 8, 25.0, 300),
    "dgx-h100": (8, 8, 50.0, 450),
    "ndv5": (8, 8, 50.0, 450),
    "a100x8-roce": (8, 4, 12.5, 300),
    "dgx-h200": (8, 8, 50.0, 450),
    "dgx-b200": (8, 8, 50.0, 900),
    "gb200": (4, 4, 50.0, 900),
    "mi300x": (8, 8, 50.0, 7 * 64),
    "mi250x": (8, 4, 25.0, (350, 300)),  # every second die has a NIC's port instead of a link
    "rtx2080tix4": (4, 1, 12.5, 0),
    "rtx4090x4": (4, 1, 12.5, 0),
    "l40sx8": (8, 2, 25.0, 0),
    "p5": (8, 32, 12.5, 450),
    "p4de": (8, 4, 12.5, 300),
    "oci-h100": (8, 16, 25.0, 450),
}


def nvlink(t: Topology) -> dict[tuple[str, str], float]:
    rates: dict[tuple[str, str], float] = {}
    for link in t.links:
        if link.kind in ("nvlink", "xgmi"):
            for ends in link.directions():
                rates[ends] = rates.get(ends, 0) + link.bandwidth
    return rates


def allgather_bound(rates: dict[tuple[str, str], float], gpus: list[str]) -> Fraction:
    """Return the algbw that cuts between GPUs allow, links between GPUs only."""
    worst = Fraction(0)
    for size in range(1, len(gpus)):
        for cut in combinations(gpus, size):
            out = sum(r for (a, b), r in rates.items() if a in cut and b not in cut)
            worst = max(worst, Fraction(size) / Fraction(out))
    return len(gpus) / worst


def test_every_profile_has_a_sheet() -> None:
    assert set(SHEETS) == set(PROFILES)


@pytest.mark.parametrize("name", PROFILES)
def test_profile_is_its_data_sheet(name: str) -> None:
    t = load_profile(name)
    gpus, nics, port, rate = SHEETS[name]
    assert (t.name, t.ranks, len(t.nics_of("n0"))) == (name, gpus, nics)
    assert {t.node(nic).port_gbs for nic in t.nics_of("n0")} == {port}
    wires = nvlink(t)
    for number, gpu in enumerate(t.gpus):
        expected = rate[number % 2] if isinstance(rate, tuple) else rate
        assert sum(r for (a, _), r in wires.items() if a == gpu.id) == expected
        assert sum(r for (_, b), r in wires.items() if b == gpu.id) == expected
    assert all(link.source for link in t.links)
    assert len({gpu.model for gpu in t.gpus}) == 1
    assert len(all_paths(join(t, 2))) == 2 * gpus * (2 * gpus - 1)


@pytest.mark.parametrize("name", ["dgx-1v", "ndv2"])
def test_hybrid_cube_mesh(name: str) -> None:
    t = load_profile(name)
    wires = nvlink(t)
    ids = [gpu.id for gpu in t.gpus]
    # 8 x 150/7 GB/s: each GPU must take in the seven others' shards through its six links.
    assert allgather_bound(wires, ids) == Fraction(1200, 7)
    assert sorted(wires.values()) == [25.0] * 16 + [50.0] * 16
    inside = {tuple(sorted((a[3:], b[3:]))) for a, b in wires if (a < "gpu4") != (b < "gpu4")}
    assert inside == {("0", "4"), ("1", "5"), ("2", "6"), ("3", "7")}


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="dgx-1v"):
        load_profile("../secret")


def test_overlay_adds_what_the_cloud_leaves_out() -> None:
    bare, _ = read_nccl_xml(EXAMPLE)
    full = overlay(bare, "ndv2")
    added = [link for link in full.links if link not in bare.links]
    assert nvlink(full) == nvlink(load_profile("ndv2"))
    assert all(link.assumed and "profile ndv2" in link.source for link in added)
    assert [link for link in full.links if link.kind == "pcie"] == [
        link for link in bare.links if link.kind == "pcie"
    ]
    assert {gpu.model for gpu in full.gpus} == {"V100-SXM2-32GB"}
    assert full.node("nic0").port_gbs == 12.5
    assert overlay(full, "ndv2") == full


def test_overlay_adds_xgmi_too() -> None:
    known = load_profile("mi300x")
    bare = msgspec.structs.replace(known, links=tuple(x for x in known.links if x.kind != "xgmi"))
    assert nvlink(overlay(bare, "mi300x")) == nvlink(known)


def test_overlay_refuses_another_machine(machines: Path) -> None:
    bare, _ = read_nccl_xml(EXAMPLE)
    with pytest.raises(InputError, match="has 8 GPUs, profile dgx-2 has 16"):
        overlay(bare, "dgx-2")
    with pytest.raises(InputError, match=r"V100-SXM2-32GB, profile ndv4 has a A100"):
        overlay(load_profile("ndv2"), "ndv4")
    with pytest.raises(InputError, match="cluster"):
        overlay(join(bare, 2), "ndv2")


def test_overlay_keeps_nvlink_that_is_there(machines: Path) -> None:
    t, _ = read_nccl_xml(machines / "xgmi.xml")
    with pytest.raises(InputError, match="MI250X"):
        overlay(t, "v100x4")
    known = load_profile("v100x4")
    assert overlay(known, "v100x4") == known
