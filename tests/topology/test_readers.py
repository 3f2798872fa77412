"""One machine in several descriptions becomes one graph; damaged descriptions are refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.renderings import (
    classes,
    gpu_graph,
    hwloc_xml,
    nccl_xml,
    random_machine,
    smi_text,
    sysfs,
    without_nvlink,
)
from tuccl.errors import InputError
from tuccl.topology import (
    Topology,
    all_paths,
    load_profile,
    read_topology,
    smi_matrix,
)


def read(data: bytes, name: str = "machine.txt") -> Topology:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        topology, _ = read_topology(path)
    assert len(all_paths(topology)) == topology.ranks * (topology.ranks - 1)
    return topology


def packed(root: Path, mode: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as tar:  # type: ignore[call-overload]
        tar.add(root, "capture")
    return data.getvalue()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_one_machine_is_one_graph(seed: int) -> None:
    machine = random_machine(seed)
    expected = gpu_graph(machine)
    assert gpu_graph(read(nccl_xml(machine))) == expected
    assert gpu_graph(read(smi_text(machine))) == expected
    assert gpu_graph(read(hwloc_xml(machine, 2))) == expected
    assert gpu_graph(read(hwloc_xml(machine, 3))) == expected
    tree = gpu_graph(without_nvlink(machine))
    assert gpu_graph(read(hwloc_xml(machine, 1))) == tree
    with TemporaryDirectory() as folder:
        root = sysfs(machine, Path(folder) / "capture")
        assert gpu_graph(read_topology(root)[0]) == tree
        assert gpu_graph(read(packed(root, "w:bz2"))) == tree


@pytest.mark.parametrize("name", ["dgx-1v", "ndv2", "dgx-2", "dgx-a100", "dgx-h100", "v100x4"])
def test_profiles_survive_nvidia_smi(name: str) -> None:
    machine = load_profile(name)
    assert gpu_graph(read(smi_text(machine)))["classes"] == gpu_graph(machine)["classes"]
    # Without -mp the classes that NVLink hides come from NICs and affinities.
    assert classes(read(smi_matrix(machine).encode())) == classes(machine)


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_a_capture_is_read_packed_and_never_half(mode: str, tmp_path: Path) -> None:
    root = sysfs(random_machine(5), tmp_path / "capture")
    data = packed(root, mode)
    assert read(data).ranks == random_machine(5).ranks
    for part in (0.3, 0.6, 0.9):
        with pytest.raises(InputError, match="capture it again"):
            read(data[: int(len(data) * part)])


FORMS = {
    "nccl": nccl_xml(random_machine(3)),
    "hwloc": hwloc_xml(random_machine(3), 3),
    "nvidia-smi": smi_text(random_machine(3)),
    "rocm-smi": b"",
}
