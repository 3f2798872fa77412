"""Hosts that go and come back: the table of the present shape, a derived one, or a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.torch_backend.conftest import machine, write_table
from tuccl.errors import InputError
from tuccl.runtime import load_table, save_table
from tuccl.runtime.jobs import changed_shape
from tuccl.runtime.jobs.changed_shape import present_topology, table_for
from tuccl.runtime.jobs.child_tree import Finished
from tuccl.topology import (
    Topology,
    differences,
    save_topology,
    signature,
)

FOUR = ["n0", "n1", "n2", "n3"]
THREE = ["n0", "n1", "n3"]
CALLS = ("allreduce", "allgather")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with one table: of four hosts of one GPU."""
    write_table(tmp_path / "tables" / "four", 4, 1, largest=1 << 20, collectives=CALLS)
    return tmp_path / "tables"


def slower_host() -> Topology:
    """Four hosts of one GPU, one of them with a NIC of half the rate."""
    whole = machine(4, 1)
    nic = next(node.id for node in whole.nodes if node.kind == "nic" and node.host == "n3")
    links = tuple(
        replace(x, bandwidth=x.bandwidth / 2) if nic in (x.src, x.dst) else x for x in whole.links
    )
    return replace(whole, links=links, routes=())


def as_of(tables: Path, topology: Topology) -> None:
    """Save the table of four hosts as one of ``topology``."""
    stored = load_table(tables / "four")
    lookup = replace(stored.lookup, signature=signature(topology))
    save_table(lookup, tables / "other", topology, stored.files)


def test_hosts_by_name_are_the_part_that_they_are() -> None:
    whole = machine(4, 2)
    part = present_topology(whole, ["n3.cluster", "n1", "n3.cluster"])
    assert part is not None and set(part.hosts) == {"n1", "n3"}
    assert [part.host_of(rank) for rank in range(3)] == ["n3", "n1", "n3"]
    assert present_topology(whole, FOUR[:1] * 3) is None  # more ranks than it has GPUs
    assert present_topology(whole, [*FOUR, "n4"]) is None


def test_hosts_of_other_names_are_a_part_only_where_all_are_alike() -> None:
    whole = machine(4, 2)
    part = present_topology(whole, ["a", "a", "b", "b"])
    assert part is not None and not differences(machine(2, 2), part)
    assert present_topology(whole, ["a", "a", "b"]) is None
    assert present_topology(slower_host(), ["a", "b", "c"]) is None
    assert present_topology(slower_host(), ["n0", "n1", "n2"]) is not None
    assert present_topology(machine(20, 1), ["a", "b", "c"]) is None  # too many choices to try


def test_a_table_that_is_there_is_taken_and_no_other(tables: Path) -> None:
    assert table_for(tables, FOUR)[0].folder == tables / "four"
    assert table_for(tables)[0].folder == tables / "four"
    with pytest.raises(InputError, match="no table is for 3 ranks on 3 hosts"):
        table_for(tables, THREE)
    write_table(tables / "three", 3, 1, collectives=CALLS)
    assert table_for(tables, THREE)[0].folder == tables / "three"
    assert table_for(tables, ["x", "y", "z"])[0].folder == tables / "three"
    with pytest.raises(InputError, match="may be parts of several machines"):
        table_for(tables)


def test_a_shape_without_a_table_gets_one_for_good(tables: Path) -> None:
    found, note = table_for(tables, THREE, seconds=100)
    assert "derived in" in note and "simulated" in note
    assert found.folder.parent == tables
    stored = load_table(found.folder)
    assert stored.lookup.signature == signature(machine(3, 1)) and stored.lookup.hosts == 3
    assert {entry.collective for entry in stored.entries} <= {*CALLS} and stored.entries
    assert all(candidate.on == "sim" for candidate in stored.lookup.candidates)
    again, note = table_for(tables, ["n2", "n1", "n0"])
    assert again.folder == found.folder and not note
    assert table_for(tables, FOUR, seconds=100)[0].folder == tables / "four"  # one came back
    assert table_for(tables)[0].folder == tables / "four"


def test_out_of_time_leaves_nothing_behind(tables: Path) -> None:
    with pytest.raises(InputError, match=r"none could be derived: not done after 0\.05 s"):
        table_for(tables, THREE, seconds=0.05)
    assert [path.name for path in tables.iterdir()] == ["four"]


def test_a_derived_table_of_another_machine_is_refused(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(command: list[str], *_: object) -> Finished:
        write_table(Path(command[-2]), 1, 3, collectives=CALLS)
        return Finished(0, "", "")

    monkeypatch.setattr(changed_shape, "run_to_end", other)
    with pytest.raises(InputError, match="it is of another machine"):
        table_for(tables, THREE, seconds=10)
    assert [path.name for path in tables.iterdir()] == ["four"]


def test_two_machines_under_the_same_names_are_not_mixed_up(tables: Path) -> None:
    """Unless it is said which it is: a probe that stands there, or the caller."""
    as_of(tables, slower_host())
    assert present_topology(slower_host(), THREE) is not None
    with pytest.raises(InputError, match="may be parts of several machines"):
        table_for(tables, THREE)
    write_table(tables / "three", 3, 1, collectives=CALLS)
    assert table_for(tables, THREE, whole=machine(4, 1))[0].folder == tables / "three"
    save_topology(machine(4, 1), tables / "topology.json")
    assert table_for(tables, THREE)[0].folder == tables / "three"
    assert table_for(tables)[0].folder == tables / "four"


def test_a_damaged_table_is_passed_by(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables / "four", tables / "bad")
    (tables / "bad" / "table.txt").write_text("none")
    assert table_for(tables, FOUR)[0].folder == tables / "four"
    shutil.rmtree(tables / "four")
    with pytest.raises(InputError, match=r"table\.txt: damaged"):
        table_for(tables, FOUR)


def test_a_lost_link_or_another_rate_is_another_machine(tables: Path) -> None:
    whole = load_table(tables / "four").topology
    first = next(link for link in whole.links if link.kind == "network")
    lost = replace(whole, links=tuple(link for link in whole.links if link is not first))
    for now in (lost, slower_host()):
        with pytest.raises(InputError, match="no table is for 4 ranks on 4 hosts"):
            table_for(tables, whole=now)
    found, note = table_for(tables, whole=slower_host(), seconds=100)
    assert "derived in" in note
    assert table_for(tables, whole=slower_host())[0].folder == found.folder


def test_measured_rates_that_drifted_warn_and_keep_the_table(tables: Path) -> None:
    whole = load_table(tables / "four").topology
    before, now = (
        replace(whole, links=tuple(replace(x, measured=rate) for x in whole.links))
        for rate in (0.3, 0.15)
    )
    as_of(tables, before)
    shutil.rmtree(tables / "four")
    found, note = table_for(tables, whole=now)
    assert found.folder == tables / "other" and "measured before" in note
    assert not table_for(tables, whole=before)[1]


def test_tables_that_the_job_cannot_load_do_not_count(tables: Path) -> None:
    with pytest.raises(InputError, match="holds no table that this job can load"):
        table_for(tables, FOUR, without={"executor"})
