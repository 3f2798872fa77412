"""Figures of papers: listed, rebuilt with what the paper reports, equal on a second run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tuccl.cli import main
from tuccl.eval.papers import FIGURES, figure_of
from tuccl.eval.papers.tuccl_training import Calls, step_us
from tuccl.training.model import Model, Parameter

QUICK = "tuccl-table3-fig2"


def test_the_list_says_of_every_figure_what_its_rows_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["paper"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FIGURES) + 1
    for line, figure in zip(lines[1:], FIGURES.values(), strict=True):
        assert line.split()[:2] == [figure.name, figure.kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A figure rebuilt by the command."""
    folder = tmp_path_factory.mktemp("papers")
    assert main(["paper", QUICK, "-o", str(folder / "new")]) == 0
    return folder / "new"


def test_a_figure_has_rows_as_csv_and_json_and_a_page(folder: Path) -> None:
    content = json.loads((folder / f"{QUICK}.json").read_text())
    with (folder / f"{QUICK}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["time us"] for row in rows] == [str(row["time us"]) for row in content["rows"]]
    assert content["kind"] == "simulated"
    for collective in ("allgather", "allreduce"):
        us = {r["configuration"]: r["time us"] for r in content["rows"] if collective in r.values()}
        assert us["bound"] < us["C4"] < us["C0"]
        assert us["C0"] / us["C1"] < us["C0"] / us["C4"]
    page = (folder / f"{QUICK}.md").read_text()
    assert all(value in page for value in content["reported"].values())
    assert content["why"] in page
    assert (folder / f"{QUICK}.svg").exists()


def test_a_second_run_has_equal_rows(folder: Path) -> None:
    content = json.loads((folder / f"{QUICK}.json").read_text())
    data = figure_of(QUICK).rebuild(lambda what: None)
    for row, again in zip(content["rows"], data.rows, strict=True):
        for name, value in zip(data.columns, again, strict=True):
            same = pytest.approx(value, rel=0.01) if isinstance(value, float) else value
            assert row[name] == same


def test_an_unknown_figure_is_refused_by_naming_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["paper", "tuccl-tabel2", "-o", "/nonexistent"]) == 2
    assert "the nearest is tuccl-table2" in capsys.readouterr().err


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_what_the_paper_has_and_why_they_differ(name: str) -> None:
    figure = FIGURES[name]
    assert figure.reported
    assert len(figure.why) > 40


@pytest.mark.parametrize("name", [f.name for f in FIGURES.values() if f.kind == "recorded"])
def test_recorded_figures_read_the_pages_that_benchmarks_wrote(name: str) -> None:
    data = figure_of(name).rebuild(lambda what: None)
    assert len(data.rows) > 30
    assert {len(row) for row in data.rows} == {len(data.columns)}
    assert "Commit" in data.notes[0]


@pytest.mark.parametrize(
    "name", [f.name for f in FIGURES.values() if f.rows.startswith("flexible.")]
)
def test_formulas_are_near_the_published_times(name: str) -> None:
    data = figure_of(name).rebuild(lambda what: None)
    assert data.rows
    if "error %" in data.columns:
        assert max(abs(float(str(error))) for error in data.column("error %")) < 11


def test_computing_is_slower_while_calls_take_its_multiprocessors() -> None:
    layers = tuple(Parameter(f"l{n}", 1 << 20, 100.0, 200.0) for n in range(4))
    model = Model(name="m", parameters=layers)
    assert step_us(model, Calls(lambda nbytes: 0.0, 0.5))[0] == pytest.approx(model.step_us)
    free, half = (step_us(model, Calls(lambda nbytes: 150.0, part))[0] for part in (0.0, 0.5))
    # The first of two buckets moves while the next layers compute: 150 us at half the rate.
    assert free == pytest.approx(model.step_us + 150)
    assert half == pytest.approx(model.step_us + 75 + 150)
