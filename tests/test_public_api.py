"""The public functions take names, collectives, sizes as text, and one description of a machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import tuccl
from tuccl.errors import InputError
from tuccl.runtime import SimExecutor
from tuccl.tuning import TunedTable

DUMP = Path(__file__).parents[1] / "examples/machines/ndv2-topo.xml"
FEW = tuccl.TuneOptions(budget=4)


@pytest.fixture(scope="module")
def host() -> tuccl.Topology:
    return tuccl.profile("v100x4")


@pytest.fixture(scope="module")
def table(host: tuccl.Topology) -> TunedTable:
    return tuccl.tune(host, "allgather", ["64K", 1 << 22], options=FEW)


def test_a_profile_of_several_nodes_is_a_joined_cluster() -> None:
    assert tuccl.profile("ndv2").ranks == 8
    assert tuccl.profile("ndv2", nodes=3, fabric="clos").hosts == ("n0", "n1", "n2")
    with pytest.raises(InputError, match="not known"):
        tuccl.profile("dgx-9")


def test_files_of_hosts_are_read_and_joined(tmp_path: Path) -> None:
    with pytest.warns(UserWarning) as said:
        bare = tuccl.read_topology(DUMP)
    assert any("the GPU's NVLink; add it by --profile" in str(each.message) for each in said)
    host = tuccl.read_topology(DUMP, profile="ndv2")
    assert bare.ranks == host.ranks == 8
    assert len(host.links) > len(bare.links)
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        tuccl.save_topology(host, file)
    assert tuccl.read_topology(files).ranks == tuccl.read_topology(files[0], nodes=2).ranks == 16
    with pytest.raises(InputError, match="a file for each host"):
        tuccl.read_topology(files, nodes=2)
    with pytest.raises(InputError, match="0 files"):
        tuccl.read_topology([])


def test_a_collective_by_name_has_the_ranks_of_the_machine(host: tuccl.Topology) -> None:
    assert tuccl.bound(host, "broadcast") == tuccl.bound(host, tuccl.Collective("broadcast", 4))
    for call in (
        lambda: tuccl.bound(host, tuccl.Collective("broadcast", 8)),
        lambda: tuccl.synthesize(host, tuccl.Collective("broadcast", 8), "1M"),
        lambda: tuccl.tune(host, tuccl.Collective("broadcast", 8), "1M"),
    ):
        with pytest.raises(InputError, match="8 ranks on a topology of 4"):
            call()


@pytest.mark.parametrize("size", [0, -1, "0", "many"])
def test_sizes_that_are_none_are_refused(host: tuccl.Topology, size: int | str) -> None:
    with pytest.raises(InputError, match="size"):
        tuccl.candidate_sketches(host, "allgather", size)
    with pytest.raises(InputError, match="size"):
        tuccl.tune(host, "allgather", size)


def test_a_program_is_written_read_and_simulated_as_it_was_made(
    host: tuccl.Topology, tmp_path: Path
) -> None:
    found = tuccl.synthesize(host, "allreduce", "1M", method="ring", protocol="LL", channels=2)
    assert found.best.knobs.protocol == "LL" and found.best.program.nchannels >= 2
    path = tmp_path / "ring.xml"
    tuccl.write_program(found.best.program, path)
    program = tuccl.read_program(path)
    assert tuccl.verify(program).ok
    times = [
        tuccl.simulate(p, host, "1M", found.best.knobs).us for p in (program, found.best.program)
    ]
    assert times[0] == times[1] >= found.best.time_us  # which is without the launch
    assert tuccl.simulate(program, host, 1 << 20).us == tuccl.simulate(program, host, "1M").us


def test_a_program_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "p.xml"
    with pytest.raises(InputError, match=r"p\.xml: cannot be read"):
        tuccl.read_program(path)
    path.write_text("<algo")
    with pytest.raises(InputError, match=r"p\.xml:1"):
        tuccl.read_program(path)


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"threads": 100}, "multiple of 32"),
        ({"threads": 512, "dialect": "rccl"}, "RCCL always runs 256"),
        ({"protocol": "LL256"}, "LL256"),
        ({"method": "best"}, "expected one of"),
        ({"dialect": "nccl"}, "dialect"),
    ],
)
def test_knobs_that_cannot_be_are_refused(
    host: tuccl.Topology, knobs: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        tuccl.synthesize(host, "allgather", "1M", **knobs)  # type: ignore[arg-type]


def test_a_table_without_a_path_is_whole_and_can_be_kept(table: TunedTable, tmp_path: Path) -> None:
    assert {row.size for row in table.result.tuned} == {1 << 16, 1 << 22}
    kept = table.save(tmp_path / "table")
    read = tuccl.load_table(tmp_path / "table")
    assert kept.lookup == read.lookup == table.lookup
    assert read.programs.keys() == table.programs.keys()
    assert [e.candidates[0].name for e in read.entries] == [
        table.select("allgather", e.min_bytes).candidate.name for e in table.entries
    ]


def test_a_table_is_compared_and_exported_by_its_own_methods(
    host: tuccl.Topology, table: TunedTable, tmp_path: Path
) -> None:
    comparison = table.compare(sizes="64K", baselines=["nccl"])
    assert [(row.size, row.baseline) for row in comparison.rows] == [(1 << 16, "nccl")]
    assert comparison == tuccl.compare(table, sizes=[1 << 16], baselines=["nccl"])
    files = table.export("executor", tmp_path / "out").files
    assert files == tuccl.export(table.folder, "executor", tmp_path / "out").files
    ring = tuccl.synthesize(host, "allreduce", "1M", method="ring", protocol="Simple").best.program
    assert tuccl.export(ring, "mscclpp", tmp_path / "plans").files
    with pytest.raises(InputError, match="write_program"):
        tuccl.export(ring, "executor", tmp_path / "one")


def test_an_executor_is_named_or_made_of_the_topology(
    host: tuccl.Topology, table: TunedTable
) -> None:
    with pytest.raises(InputError, match="expected one of sim, mpi"):
        tuccl.tune(host, "allgather", "1M", on="gpu")
    with pytest.raises(InputError, match="expected the same machine"):
        table.compare(on=lambda _: SimExecutor(tuccl.profile("dgx-a100")))
    graph = table.compare(on=partial(SimExecutor, launch="graph"), sizes="64K", baselines=["nccl"])
    assert graph.rows[0].tuned_us < table.compare(sizes="64K", baselines=["nccl"]).rows[0].tuned_us


def test_roots_of_a_tune_agree(host: tuccl.Topology) -> None:
    roots = [tuccl.Collective(name, 4, root) for name, root in (("reduce", 1), ("broadcast", 2))]
    with pytest.raises(InputError, match="one root"):
        tuccl.tune(host, roots, "64K", options=FEW)
    tuned = tuccl.tune(host, roots[0], "64K", options=FEW)
    assert {entry.root for entry in tuned.entries} == {1}
    with pytest.raises(InputError, match="at least one"):
        tuccl.tune(host, [], "64K", options=FEW)


def test_files_stand_for_what_they_hold(tmp_path: Path) -> None:
    host = tuccl.profile("v100x4")
    tuccl.save_topology(host, tmp_path / "host.json")
    here = str(tmp_path / "host.json")
    assert tuccl.bound(here, "allgather") == tuccl.bound(host, "allgather")
    found = tuccl.synthesize(here, "allgather", "1M", method="ring").best
    tuccl.write_program(found.program, tmp_path / "ring.xml")
    assert tuccl.verify(tmp_path / "ring.xml").ok
    assert tuccl.simulate(found.program, here, "1M").on == "sim"
    assert tuccl.candidate_sketches(here, "allgather", "1M")
    with pytest.raises(tuccl.TucclError, match="nowhere"):
        tuccl.bound(tmp_path / "nowhere.json", "allgather")
