"""Reading /sys, on trees made for the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuccl.errors import Unavailable
from tuccl.topology import all_paths, path, probe_local


def device(root: Path, place: str, **fields: str) -> Path:
    real = root / "sys/devices" / place
    real.mkdir(parents=True, exist_ok=True)
    for name, text in fields.items():
        (real / {"kind": "class"}.get(name, name)).write_text(text + "\n")
    listing = root / "sys/bus/pci/devices"
    listing.mkdir(parents=True, exist_ok=True)
    link = listing / real.name
    if not link.exists():
        link.symlink_to(real)
    return real


GEN4 = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}


def machine(root: Path) -> None:
    bridge = {"kind": "0x060400", "numa_node": "0", **GEN4}
    device(root, "pci0000:40/0000:40:01.1", **bridge)
    gpu = {"kind": "0x030200", "vendor": "0x10de", "device": "0x20b2", **GEN4}
    for number in (0, 1):
        device(root, f"pci0000:40/0000:40:01.1/0000:41:0{number}.0", numa_node="0", **gpu)
    device(root, "pci0000:80/0000:81:00.0", numa_node="1", **gpu)
    nic = device(
        root, "pci0000:40/0000:40:01.1/0000:41:02.0", kind="0x020700", numa_node="0", **GEN4
    )
    port = nic / "infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    onboard = device(root, "pci0000:00/0000:00:1f.0", kind="0x020000", numa_node="0", **GEN4)
    (onboard / "net/eno1").mkdir(parents=True)
    (onboard / "net/eno1/speed").write_text("1000\n")
    device(root, "pci0000:00/0000:00:02.0", kind="0x030000", vendor="0x1a03", numa_node="0")


def test_gpus_and_rdma_adapters_in_their_tree(tmp_path: Path) -> None:
    machine(tmp_path)
    t, _ = probe_local(tmp_path)
    assert t.ranks == 3
    assert {gpu.model for gpu in t.gpus} == {"A100-SXM4-80GB"}
    assert [t.node(nic).port_gbs for nic in t.nics_of("n0")] == [25.0]
    assert len(path(t, 0, 1).hops) == 2
    assert path(t, 0, 1).bandwidth == 31.52
    assert [hop.kind for hop in path(t, 0, 2).hops] == ["pcie", "pcie", "cpu", "pcie"]
    assert len(all_paths(t)) == 6


def test_without_rdma_interfaces_count(tmp_path: Path) -> None:
    machine(tmp_path)
    rate = next(tmp_path.glob("sys/devices/**/ports/1/rate"))
    rate.unlink()
    t, _ = probe_local(tmp_path)
    assert [t.node(nic).port_gbs for nic in t.nics_of("n0")] == [0.125]


def test_no_gpu_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="--profile"):
        probe_local(tmp_path)
    device(tmp_path, "pci0000:00/0000:00:02.0", kind="0x030000", vendor="0x1a03")
    with pytest.raises(Unavailable, match="among the 1 PCI devices"):
        probe_local(tmp_path)
