"""NVML, by a stand-in for pynvml that knows a machine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.topology.renderings import (
    devices,
    gpu_graph,
    random_machine,
    without_nvlink,
    write_sysfs,
)
from tuccl.topology import Topology, probe_local


class Nvml(ModuleType):
    """As much of pynvml as is asked, of a machine."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_NVLINK_MAX_LINKS = 18
    NVML_FEATURE_ENABLED = 1

    def __init__(self, machine: Topology) -> None:
        super().__init__("pynvml")
        self._gpus = [device for device in devices(machine) if device.node.kind == "gpu"]
        self.is_open = False

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000{self._gpus[handle].busid.upper()}")

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 7, 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, two: int) -> int:
        ways = [self._gpus[index].ports[1::2] for index in (one, two)]
        if self._gpus[one].numa != self._gpus[two].numa:
            return 50
        if not (ways[0] and ways[1]) or ways[0][0] != ways[1][0]:
            return 40
        return 10 if ways[0] == ways[1] else 20

    def _ends(self, handle: int) -> list[str | None]:
        return [peer for peer, count in self._gpus[handle].nvlinks for _ in range(count)]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 12:
            raise self.NVMLError("Not Supported")
        return int(link < len(self._ends(handle)))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        busid = self._ends(handle)[link]
        return SimpleNamespace(busId=f"0000{busid}" if busid else "FFFFFFFF:FFFF:FF.0")

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 0 if self._ends(handle)[link] else 2


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 7])
def test_nvml_shows_nvlinks(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = random_machine(seed)
    nvml = Nvml(machine)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    topology, warnings = probe_local(write_sysfs(machine, tmp_path))
    assert gpu_graph(topology) == gpu_graph(machine)
    assert not warnings
    assert not nvml.is_open


def test_a_sandbox_without_sys_has_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        machine = random_machine(seed)
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(machine))
        topology, warnings = probe_local(tmp_path)
        without_nics = [n for n in machine.nodes if n.kind != "nic"]
        links = [x for x in machine.links if not x.src.startswith("nic")]
        bare = Topology("bare", tuple(without_nics), tuple(links))
        assert gpu_graph(topology) == gpu_graph(bare)
        assert "NICs are not known" in warnings[0]


def test_without_nvml_the_remedy_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = random_machine(0)
    root = write_sysfs(machine, tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    topology, warnings = probe_local(root)
    assert gpu_graph(topology) == gpu_graph(without_nvlink(machine))
    assert any("pip install nvidia-ml-py" in text for text in warnings)
    nvml = Nvml(machine)

    def refuse() -> None:
        raise nvml.NVMLError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert "Driver Not Loaded" in probe_local(root)[1][0]
