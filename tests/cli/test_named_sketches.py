"""Sketches by name and by file: `sketch --name`, `tune --sketch --method`, `explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.runtime import load_table
from tuccl.sketches import load_sketch


def test_a_named_sketch_is_drawn_tuned_and_explained(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    topology, call = work / "topology.json", ("-c", "allgather", "-s", "64K")
    made = tuccl("sketch", topology, *call, "--name", "one-free", "-o", tmp_path / "s", "--json")
    [row] = json.loads(made.out)["sketches"]
    assert row["name"] == "one-free"
    picture = tmp_path / "one.svg"
    assert tuccl("sketch", topology, *call, "--name", "one-free", "--picture", picture).code == 0
    assert picture.read_text().startswith("<svg")
    table = tmp_path / "table"
    tuned = tuccl(
        *("tune", topology, *call, "--budget", "24", "--workers", "2", "-o", table),
        *("--sketch", row["file"], "--method", "hierarchical2,ring"),
    )
    assert tuned.code == 0
    answer = json.loads(tuccl("explain", table, *call, "--json").out)
    used = {(c["method"], c["sketch"]) for c in answer["candidates"] if c["method"]}
    assert used <= {("hierarchical2", "one-free"), ("ring", "one-free")}
    lines = tuccl("explain", table, *call).out
    if answer["candidate"]["sketch"]:
        assert answer["sketch"]["pruned"] == row["pruned"]
        assert "# sketch one-free: 28 links; pruned grouping:16 transformation:12" in lines
        assert "#   grouping, like 0 to 6: n0/nic0 and n1/nic1 are in no group together" in lines


def test_a_table_holds_the_sketches_that_it_names(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    """A user's own goes before one that has its name by its parameters, and survives a copy."""
    topology, call = work / "topology.json", ("-c", "allgather", "-s", "64K")
    made = tuccl("sketch", topology, *call, "--name", "one-free", "-o", tmp_path / "s", "--json")
    own = Path(json.loads(made.out)["sketches"][0]["file"])
    own.write_text(own.read_text().replace('"name": "one-free"', '"name": "paired"'))
    table = tmp_path / "table"
    options = ("--budget", "24", "--sketch", own, "--method", "hierarchical2,ring")
    assert tuccl("tune", topology, *call, *options, "-o", table).code == 0
    answer = json.loads(tuccl("explain", table, *call, "--json").out)
    named = next(c["sketch"] for c in answer["candidates"] if c["method"])
    assert named == "paired"
    file = table / "sketches" / "paired.json"
    assert load_sketch(file) == load_sketch(own)
    copy = load_table(table).save(tmp_path / "copy")
    candidate = next(c for entry in copy.entries for c in entry.candidates if c.sketch)
    assert copy.sketch(candidate) == load_sketch(own)
    picture = tmp_path / "own.svg"
    drawn = tuccl("sketch", topology, *call, "--name", file, "--picture", picture, "--json")
    [row] = json.loads(drawn.out)["sketches"]
    assert row["links"] == len(load_sketch(own).links)
    assert picture.read_text().startswith("<svg")
    file.write_text("{}")
    damaged = tuccl("explain", table, *call)
    assert damaged.code == 2 or not answer["candidate"]["sketch"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--method", "rings,nope", "method 'nope': expected one of ring, "),
        ("--sketch", "none.json", "none.json"),
    ],
)
def test_bad_choices_are_refused(
    tuccl: Tuccl, work: Path, tmp_path: Path, option: str, value: str, message: str
) -> None:
    call = ("tune", work / "topology.json", "-c", "allgather", "-s", "64K", option, value)
    answer = tuccl(*call, "-o", tmp_path / "table")
    assert answer.code == 2
    assert message in answer.err
    assert not (tmp_path / "table").exists()


def test_a_bad_name_is_refused(tuccl: Tuccl, work: Path) -> None:
    answer = tuccl("sketch", work / "topology.json", "-c", "allgather", "-s", "1M", "--name", "two")
    assert answer.code == 2
    assert "expected a name like one, paired" in answer.err
