"""`tuccl probe`: what it reads, joins, shows and draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.topology.fabric_renderings import fat_tree, ibnetdiscover

Tuccl = Callable[..., Any]


def test_probe_says_what_it_read(tuccl: Tuccl, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    answer = tuccl(
        "probe", "--profile", "dgx-a100", "--gpus", "0-3", "--nodes", 2, "-o", out, "--json"
    )
    facts = json.loads(answer.out)
    assert answer.code == 0
    assert (facts["ranks"], facts["hosts"]) == (8, 2)
    assert (
        facts["signature"] == json.loads(tuccl("probe", "--show", out, "--json").out)["signature"]
    )
    assert {"name", "links", "warnings"} <= facts.keys()


def test_probe_joins_the_hosts_of_several_files(tuccl: Tuccl, tmp_path: Path) -> None:
    for name, profile in (("old", "ndv2"), ("new", "dgx-a100")):
        tuccl("probe", "--profile", profile, "-o", tmp_path / f"{name}.json")
    out = tmp_path / "t.json"
    files = ("--from", tmp_path / "old.json", "--from", tmp_path / "new.json", "-o", out)
    assert tuccl("probe", *files).code == 0
    nodes = json.loads(out.read_text())["nodes"]
    gpus = [node["id"] for node in nodes if node["kind"] == "gpu"]
    assert gpus[0] == "old/gpu0"
    assert gpus[-1] == "new/gpu7"
    tuccl("probe", *files, "--names", "a,b", "--fabric", "clos", "--up", "20")
    assert json.loads(out.read_text())["nodes"][0]["host"] == "a"
    tuccl("probe", *files, "--names", "n[01-02]")
    assert json.loads(out.read_text())["nodes"][0]["host"] == "n01"
    for extra in (("--nodes", "2"), ("--names", "a"), ("--names", "a,a"), ("--by-rack",)):
        assert tuccl("probe", *files, *extra).code == 2
    for nodes in ("-3", "0", "2000000000"):
        refused = tuccl("probe", "--profile", "ndv2", "--nodes", nodes, "--names", "a")
        assert "expected 1 to 1024 hosts" in refused.err


def test_probe_names_the_file_of_a_warning(tuccl: Tuccl, tmp_path: Path) -> None:
    pci = '<pci busid="0000:01:00.0" class="0x030200"/><pci busid="0000:02:00.0" class="0x0207"/>'
    files = [tmp_path / "a.xml", tmp_path / "b.xml"]
    for file in files:
        file.write_text(f'<system version="1"><cpu numaid="0">{pci}</cpu></system>')
    answer = tuccl("probe", "--from", *files, "-o", tmp_path / "t.json")
    assert all(f"warning: {file}: link speed unknown" in answer.err for file in files)
    tuccl("probe", "--profile", "v100x4", "--gpus", "0", "-o", tmp_path / "t.json")
    drift = tuccl("probe", "--from", files[0], "--drift", tmp_path / "t.json").out
    assert "unknown now" in drift
    # The place is refused before the file is read.
    refused = tuccl("probe", "--from", "nowhere.xml", "-o", tmp_path)
    assert (refused.code, "is a folder" in refused.err) == (2, True)


def test_probe_sums_up_a_fabric_file_and_joins_by_it(
    tuccl: Tuccl, tmp_path: Path, shared_data: Path
) -> None:
    file = shared_data / "topologies" / "fabric" / "ibnetdiscover_example.out"
    facts = json.loads(tuccl("probe", "--from", file, "--json").out)
    assert (facts["switches"], facts["adapters"], facts["parts"]) == (40, 582, 1)
    assert facts["tiers"] == [31, 9]
    assert tuccl("probe", "--from", file, "-o", tmp_path / "t.json").code == 2
    refused = tuccl("probe", "--profile", "ndv2", "--names", "n0,n1", "--fabric-file", file)
    assert refused.code == 2
    assert "host 'n0' has no place in it" in refused.err


def test_probe_joins_by_a_fabric_file_rack_after_rack(tuccl: Tuccl, tmp_path: Path) -> None:
    (tmp_path / "ib.out").write_text(ibnetdiscover(fat_tree(2, 1, 4, gbs=12.5)))
    out = tmp_path / "t.json"
    by_file = ("--profile", "ndv2", "--fabric-file", tmp_path / "ib.out", "-o", out)
    assert tuccl("probe", *by_file, "--names", "node04,node02,node01", "--by-rack").code == 0
    topology = json.loads(out.read_text())
    gpus = [node["host"] for node in topology["nodes"] if node["kind"] == "gpu"]
    assert list(dict.fromkeys(gpus)) == ["node01", "node02", "node04"]
    ends = {(x["src"], x["dst"]) for x in topology["links"] if x["kind"] == "network"}
    assert {("node02/nic0", "leaf0"), ("node04/nic0", "leaf1"), ("leaf1", "spine0")} <= ends
    for extra in (("--fabric", "clos"), ("--up", "9"), ("--fabric-file", tmp_path / "ib.out")):
        assert tuccl("probe", *by_file, "--names", "node01,node02", *extra).code == 2


def test_probe_show_prints_every_gpu(tuccl: Tuccl, work: Path) -> None:
    matrix = tuccl("probe", "--show", work / "topology.json").out
    assert matrix.startswith("n0, n1:\n\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\t")
    rates = tuccl("probe", "--show", work / "topology.json", "--rates").out
    assert all(f"GPU{rank}" in rates for rank in range(8))


def test_probe_check_shows_drift_by_its_exit_code(tuccl: Tuccl, work: Path) -> None:
    check = ("--drift", work / "topology.json", "--json")
    same = tuccl("probe", "--profile", "v100x4", "--nodes", 2, *check)
    other = tuccl("probe", "--profile", "v100x4", "--nodes", 2, "--gpus", "0-2", *check)
    assert (same.code, json.loads(same.out)["drift"]) == (0, [])
    assert other.code == 1
    assert "8 GPUs before, 6 now" in json.loads(other.out)["drift"]


def test_nics_are_merged_before_hosts_are_joined(tuccl: Tuccl, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    order = ("probe", "--profile", "oci-h100", "--nodes", 2, "-o", file, "--merge-nics")
    for level in ("port", "gpu"):
        assert tuccl(*order, level).code == 0
        nics = [n for n in json.loads(file.read_text())["nodes"] if n["kind"] == "nic"]
        assert [nic["port_gbs"] for nic in nics] == [50.0] * 16
    assert tuccl(*order, "host").code == 2


def test_a_part_of_a_host_without_gpus_is_named_by_the_picture(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    topology = json.loads((work / "topology.json").read_text())
    nic = next(node for node in topology["nodes"] if node["kind"] == "nic")
    nic["host"] = "elsewhere"
    file = tmp_path / "t.json"
    file.write_text(json.dumps(topology))
    answer = tuccl("probe", "--show", file, "--picture", tmp_path / "p.svg")
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1
    assert "host 'elsewhere' has no GPU" in answer.err


def test_machines_and_sketches_are_drawn(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    topology, picture = work / "topology.json", tmp_path / "p.svg"
    answer = tuccl("probe", "--show", topology, "--picture", picture)
    assert answer.code == 0
    assert f"{picture}: picture of 2x v100x4" in answer.err
    assert picture.read_text().startswith("<svg ")
    order = ("sketch", topology, "-c", "allgather", "-s", "1M", "--picture", picture)
    assert tuccl(*order).code == 0
    assert "before: 56 links" in picture.read_text()
    assert tuccl(*order[:-1], tmp_path).code == 2
    other = tuccl("probe", "--show", topology, "--picture", tmp_path / "p.png")
    assert other.code == 2 and "pictures are SVG; name it p.svg" in other.err
    assert not (tmp_path / "p.png").exists()


def test_a_picture_alone_prints_no_matrix(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    words = ("probe", "--profile", "v100x4", "--picture", tmp_path / "p.svg")
    assert tuccl(*words).out == ""
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert tuccl(*words[:-2], "--show", work / "topology.json", *words[-2:]).out


def test_what_a_file_lacks_is_answered_by_profiles_that_fit(tuccl: Tuccl, tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(tuccl("probe", "--profile", "dgx-a100").out)
    probe = ("probe", "--from", tmp_path / "smi.txt", "-o", tmp_path / "t.json")
    [hint] = [line for line in tuccl(*probe).err.splitlines() if "profiles that fit" in line]
    assert "dgx-a100" in hint and "v100x4" not in hint
    assert "profiles" not in tuccl(*probe, "--profile", "dgx-a100").err


def test_trays_joined_by_nics_name_the_rack(tuccl: Tuccl) -> None:
    assert "gb200-nvl72" in tuccl("probe", "--profile", "gb200", "--nodes", 18, "--json").err
    racks = tuccl("probe", "--profile", "gb200", "--nodes", 36, "--json").err
    assert "gb200-nvl72 is one NVLink domain of 18 of them, and --nodes joins several" in racks
    assert "nvl" not in tuccl("probe", "--profile", "gb200", "--json").err


def test_a_shown_topology_has_its_nics_merged(tuccl: Tuccl, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    assert tuccl("probe", "--profile", "oci-h100", "-o", file).code == 0
    whole, merged = (
        tuccl("probe", "--show", file, *more).out for more in ((), ("--merge-nics", "gpu"))
    )
    assert "NIC15" in whole
    assert "NIC7" in merged and "NIC8" not in merged
