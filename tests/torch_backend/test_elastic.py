"""A job that starts again on other hosts: results as Gloo's, by a table of its shape or Gloo."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torch_backend.conftest import write_table
from tests.torch_backend.test_backend import Outcome, all_well, reported
from tuccl.runtime import load_table

Job = Callable[..., list[Outcome]]
CALLS = ("allreduce", "allgather")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with one table: of four hosts of one rank."""
    write_table(tmp_path / "tables" / "four", 4, 1, largest=1 << 20, collectives=CALLS)
    return tmp_path / "tables"


def by_programs(outcomes: list[Outcome]) -> int:
    """The calls that ran by programs, as many on each rank."""
    all_well(outcomes)
    (calls,) = {text.splitlines()[-1] for _, text in outcomes}  # logs of jobs follow each other
    return int(calls.removeprefix("TOLD "))


def test_a_job_goes_on_with_fewer_hosts_and_again_with_all(job: Job, tables: Path) -> None:
    everyone, fewer = "n0,n1,n2,n3", "n0,n2,n1"
    outcomes = job("a_host_goes", 4, tables, HOSTS=everyone)
    assert [code for code, _ in outcomes] == [0, 0, 0, -9], outcomes
    assert all(re.search(r"rank 3|left|closed", reported(text)) for _, text in outcomes[:3])

    outcomes = job("on_the_hosts_there", 3, tables, HOSTS=fewer, TUCCL_ELASTIC="60")
    assert by_programs(outcomes) > 0
    assert outcomes[0][1].count("derived in") == 1 and "derived in" not in outcomes[1][1]
    (derived,) = tables.glob("derived-*")
    assert load_table(derived).lookup.ranks == 3

    outcomes = job("on_the_hosts_there", 3, tables, HOSTS="n3,n1,n0", TUCCL_ELASTIC="60")
    assert by_programs(outcomes) > 0
    outcomes = job("on_the_hosts_there", 4, tables, HOSTS=everyone, TUCCL_ELASTIC="60")
    assert by_programs(outcomes) > 0
    assert outcomes[0][1].count("derived in") == 1  # the log goes on
    assert {path.name for path in tables.iterdir()} == {"four", derived.name}
    assert "UserWarning" not in outcomes[0][1]  # of the pair, which no table is for


@pytest.mark.parametrize("killed", [0, 3])
def test_a_rank_killed_while_programs_may_change_is_named(
    job: Job, tables: Path, killed: int
) -> None:
    """Also rank 0, which leads the rounds."""
    settings = {"HOSTS": "n0,n1,n2,n3", "TUCCL_ADAPT": "1", "TUCCL_EPOCH": "0.002"}
    outcomes = job("a_host_goes", 4, tables, KILLED=str(killed), **settings)
    assert [code for code, _ in outcomes] == [-9 if rank == killed else 0 for rank in range(4)]
    others = [reported(text) for rank, (_, text) in enumerate(outcomes) if rank != killed]
    assert all(re.search(rf"rank {killed} (closed|has left)", told) for told in others), others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "seconds", "why"),
    [
        ("n0,n1,n2", "0", "no table is for 3 ranks on 3 hosts"),
        ("n0,n1,n2", "0.1", "none could be derived: not done after 0.1 s"),
        ("n0,n0,n1", "60", "are no part of a machine"),
    ],
)
def test_without_a_table_of_its_shape_all_goes_to_gloo(
    job: Job, tables: Path, hosts: str, seconds: str, why: str
) -> None:
    """Nobody hangs, and rank 0 says why once."""
    outcomes = job("on_the_hosts_there", 3, tables, HOSTS=hosts, TUCCL_ELASTIC=seconds)
    assert by_programs(outcomes) == 0
    assert outcomes[0][1].count("UserWarning") == 1 and why in outcomes[0][1]
    assert [path.name for path in tables.iterdir()] == ["four"]


@pytest.mark.slow
def test_a_damaged_table_beside_others_does_no_harm(job: Job, tables: Path) -> None:
    shutil.copytree(tables / "four", tables / "bad")
    (tables / "bad" / "table.txt").write_text("none")
    outcomes = job("on_the_hosts_there", 4, tables, HOSTS="n0,n1,n2,n3")
    assert by_programs(outcomes) > 0
