"""Groups of a mesh on the tables of a job: each kind its own, chosen by its members."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_backend.conftest import machine
from tests.torch_backend.test_backend import Job, Table, all_well
from tuccl.groups.job import TABLES_NAME, JobEntry, JobTables, load_job, save_job
from tuccl.groups.layout import mesh_groups
from tuccl.runtime import load_table

HOSTS = "a,a,b,b"


@pytest.fixture
def job_tables(tmp_path: Path, table: Table) -> Path:
    """Return a job's tables for dp=2,tp=2: dp's up to 20,000 bytes."""
    folder = tmp_path / "job"
    (folder / TABLES_NAME).mkdir(parents=True)
    entries = []
    for kind, source in (("dp", table(2, 1, largest=20_000)), ("tp", table(1, 2))):
        (folder / TABLES_NAME / kind).symlink_to(source)
        checksum = load_table(source).lookup.checksum
        entries.append(
            JobEntry(kind=kind, groups=(0, 1), key="0" * 16, table=kind, checksum=checksum)
        )
    groups = mesh_groups("dp=2,tp=2", 4)
    save_job(JobTables(folder, groups, machine(2, 2), tuple(entries)))
    return folder


def test_kinds_of_equal_size_run_their_own_tables_and_train_as_with_gloo(
    job: Job, job_tables: Path
) -> None:
    outcomes = job("groups_of_a_mesh,training_on_a_mesh", 4, job_tables, HOSTS=HOSTS)
    all_well(outcomes)
    assert all("goes to Gloo" not in text for _, text in outcomes)


def test_a_table_of_other_groups_is_refused_by_all_ranks(
    job: Job, job_tables: Path, table: Table
) -> None:
    """The index names the table's checksum: what stands there now was made for others."""
    stored = load_job(job_tables)
    place = stored.place(stored.entries[0])
    place.unlink()
    place.symlink_to(table(2, 1, "LL"))
    outcomes = job("no_table_of_dp", 4, job_tables, HOSTS=HOSTS)
    all_well(outcomes)
    assert "not the table of job.json" in outcomes[0][1]


def test_tables_of_a_job_of_other_ranks_are_not_used(job: Job, job_tables: Path) -> None:
    outcomes = job("no_table", 2, job_tables, HOSTS="a,a")
    assert "of a job of 4 ranks; this one has 2" in outcomes[0][1]
