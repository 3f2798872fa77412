"""One machine in several descriptions becomes one graph; damaged descriptions are refused."""

from __future__ import annotations

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
    pack_sysfs,
    random_machine,
    rocm_text,
    smi_text,
    without_nvlink,
    write_sysfs,
)
from tuccl.errors import InputError
from tuccl.topology import Topology, all_paths, load_profile, read_cluster
from tuccl.topology.readers.registry import HOST_READERS
from tuccl.topology.smi import smi_matrix


def read(data: bytes, name: str = "machine.txt") -> Topology:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        topology, _ = read_cluster(path)
    assert len(all_paths(topology)) == topology.ranks * (topology.ranks - 1)
    return topology


@settings(max_examples=40, deadline=None)
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
    assert gpu_graph(read(pack_sysfs(machine))) == tree


def test_a_folder_is_read_as_its_tar_file(tmp_path: Path) -> None:
    machine = random_machine(4)
    root = write_sysfs(machine, tmp_path / "capture")
    expected = gpu_graph(without_nvlink(machine))
    assert gpu_graph(read_cluster(root)[0]) == expected
    assert gpu_graph(read_cluster(tmp_path)[0]) == expected
    assert gpu_graph(read_cluster(root, format="sysfs")[0]) == expected


@pytest.mark.parametrize("name", ["dgx-1v", "ndv2", "dgx-2", "dgx-a100", "dgx-h100", "v100x4"])
def test_profiles_survive_nvidia_smi(name: str) -> None:
    machine = load_profile(name)
    assert gpu_graph(read(smi_text(machine)))["classes"] == gpu_graph(machine)["classes"]
    # Without -mp the classes that NVLink hides come from NICs and affinities.
    assert classes(read(smi_matrix(machine).encode())) == classes(machine)


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_a_capture_is_read_packed_and_never_half(mode: str) -> None:
    data = pack_sysfs(random_machine(5), mode)
    assert read(data).ranks == random_machine(5).ranks
    for part in (0.3, 0.6, 0.9):
        with pytest.raises(InputError, match="capture it again"):
            read(data[: int(len(data) * part)])


FORMS = {
    "nccl": nccl_xml(random_machine(3)),
    "hwloc": hwloc_xml(random_machine(3), 3),
    "nvidia-smi": smi_text(random_machine(3)),
    "rocm-smi": rocm_text(6),
    "sysfs": pack_sysfs(random_machine(3)),
}
# What is said where a table is whole and the rest is cut: the legend, `topo -mp` after `topo -m`.
SAYS_SO = {"nvidia-smi": ("may be cut", "NVLink hides"), "rocm-smi": ("may be cut",)}


def decode(form: str, data: bytes) -> tuple[Topology, tuple[str, ...]] | None:
    """What a file of a form is read as; None where it is refused in a line that names the file."""
    reader = next(reader for reader in HOST_READERS if reader.name == form)
    try:
        topology, warnings = reader.decode(data, "x.txt", "x")
    except InputError as error:
        assert str(error).startswith("x.txt")
        assert len(str(error).splitlines()) == 1
        return None
    assert len(all_paths(topology)) == topology.ranks * (topology.ranks - 1)
    return topology, warnings


@pytest.mark.parametrize("form", FORMS)
def test_the_content_shows_the_format(form: str) -> None:
    assert [reader.name for reader in HOST_READERS if reader.matches(FORMS[form])] == [form]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_anywhere_is_refused_or_warned_about(form: str) -> None:
    data = FORMS[form]
    expected = gpu_graph(read(data))
    step = max(1, len(data) // 400)
    for end in (*range(0, len(data) - 1, step), *range(max(0, len(data) - 40), len(data) - 1)):
        result = decode(form, data[:end])
        if result is not None and gpu_graph(result[0]) != expected:
            texts = " ".join(result[1])
            assert any(text in texts for text in SAYS_SO.get(form, ())), end


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.floats(0, 1),
    st.binary(max_size=6),
    st.integers(0, 200),
    st.floats(0, 1),
)
def test_damage_is_read_or_refused(
    form: str, place: float, put: bytes, cut: int, other: float
) -> None:
    data = FORMS[form]
    at, to = int(place * len(data)), int(other * len(data))
    decode(form, data[:at] + put + data[at + cut :])
    decode(form, data[:to] + data[at : at + cut] + data[to:])
    lines = data.split(b"\n")
    one, two = int(place * len(lines)) % len(lines), int(other * len(lines)) % len(lines)
    lines[one], lines[two] = lines[two], lines[one]
    decode(form, b"\n".join(lines))
    decode(form, b"\n".join((*lines[:one], *lines[one + 1 :])))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.binary(max_size=300))
def test_noise_is_refused(form: str, noise: bytes) -> None:
    assert decode(form, noise) is None
