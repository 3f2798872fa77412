"""Training simulated on machines: rows, ties, pictures, and the survey's published cells."""

import csv
import json
from pathlib import Path

import pytest

from tuccl.cli.verbs.train import gain_of
from tuccl.errors import InputError
from tuccl.topology import join, load_profile
from tuccl.training import (
    GRADIENT_METHODS,
    Model,
    TrainingRow,
    load_model,
    reference_model,
    simulate_training,
    simulated_costs,
    timeline_svg,
    timeline_trace,
)
from tuccl.training.model import Parameter
from tuccl.training.model_files import encode_model
from tuccl.training.rows import row_of
from tuccl.training.simulation import best_run

CELLS = Path(__file__).parents[3] / "shared/data/training/ddl_benchmarks_fig4.tsv"
CLUSTER = join(load_profile("rtx2080tix4"), 2)


def test_a_row_says_what_was_simulated() -> None:
    costs = simulated_costs(CLUSTER)
    model = reference_model("BERT-Base")
    run = simulate_training(model, GRADIENT_METHODS["ddp"], 8, costs)
    row = run.row
    assert row.kind == "sim" and row.backend == "default" and len(row.label) == 6
    assert row.by_program == 0 and row.by_default == len(run.schedule.buckets)
    assert row.samples_per_s == pytest.approx(8 * 64 / row.step_us * 1e6)
    assert row.efficiency == row.speedup / 8 < 1
    assert row.exposed == pytest.approx(1 - model.step_us / row.step_us)
    bsp = simulate_training(model, GRADIENT_METHODS["bsp"], 8, costs).row
    assert bsp.speedup == pytest.approx(8 / (1 + bsp.c2c))


def test_ties_go_to_the_method_that_needs_least() -> None:
    costs = simulated_costs(CLUSTER)
    model = reference_model("ResNet-50")
    runs = [
        simulate_training(model, GRADIENT_METHODS[m], 8, costs)
        for m in ("bytescheduler", "ddp", "bsp")
    ]
    assert best_run(runs).method.name == "ddp"


def test_the_picture_and_the_trace_show_what_is_exposed() -> None:
    costs = simulated_costs(CLUSTER)
    run = simulate_training(reference_model("BERT-Large"), GRADIENT_METHODS["wfbp-ps"], 8, costs)
    svg = timeline_svg(run)
    assert "simulated" in svg and svg.count('class="pruned"') == len(run.timeline.exposed)
    trace = json.loads(timeline_trace(run))
    exposed = [e for e in trace["traceEvents"] if e["name"] == "exposed"]
    assert sum(e["dur"] for e in exposed) == pytest.approx(run.timeline.exposed_us)
    assert trace["otherData"]["times"] == "simulated"


def test_models_are_read_back_and_damaged_files_refused(tmp_path: Path) -> None:
    model = reference_model("ResNet-50")
    path = tmp_path / "model.json"
    path.write_bytes(encode_model(model))
    assert load_model(str(path)) == model
    assert load_model("bertbase", batch=8).batch == 8
    table = tmp_path / "layers.csv"
    table.write_text("name,elements,forward_us,backward_us\na,100,1.5,3\nb,8,1,2\n")
    assert [p.elements for p in load_model(str(table)).parameters] == [100, 8]
    table.write_text("name,elements,forward_us,backward_us\na,-1,1.5,3\n")
    with pytest.raises(InputError, match="line 2: elements -1"):
        load_model(str(table))
    control = "name,elements,forward_us,backward_us\na\x07,1,1,1\n"
    for damaged in ("", "name,elements\na,1\n", '{"format": "tuccl-model/1"}', control):
        table.write_text(damaged)
        with pytest.raises(InputError, match=r"layers.csv: .*expected"):
            load_model(str(table))


@pytest.mark.skipif(not CELLS.exists(), reason="needs the survey's cells in ../shared/data")
def test_bsp_cells_that_the_profile_was_fitted_to_are_within_7_percent() -> None:
    rows = csv.DictReader(CELLS.read_text().splitlines()[1:], delimiter="\t")
    cells = {
        (row["model"], int(row["gpus"])): float(row["mean"])
        for row in rows
        if row["method"] == "BSP-A2A" and row["network"] == "100gb-ib-rdma"
    }
    for hosts in (1, 2, 4, 8):
        costs = simulated_costs(join(load_profile("rtx2080tix4"), hosts), version="2.4")
        for name in ("ResNet-50", "BERT-Base", "BERT-Large"):
            run = simulate_training(
                reference_model(name), GRADIENT_METHODS["bsp"], 4 * hosts, costs
            )
            assert run.row.samples_per_s == pytest.approx(cells[name, 4 * hosts], rel=0.07)


def test_steps_of_a_disturbed_machine_are_not_comparable() -> None:
    model = Model(name="m", parameters=(Parameter("w", 1 << 20, 1000.0, 2000.0),))

    def row(steps_us: list[float], alone_us: float = 0.0) -> TrainingRow:
        return row_of(
            "train",
            model,
            GRADIENT_METHODS["bsp"],
            "gloo",
            2,
            steps_us,
            0.0,
            (0, 1),
            alone_us=alone_us,
        )

    assert row([4000.0, 4100.0, 4200.0]).comparable
    assert not row([4000.0, 4100.0, 9000.0]).comparable
    assert not row([4000.0, 4100.0, 4200.0], alone_us=8000.0).comparable  # efficiency of 195 %
    assert gain_of(row([4000.0, 4100.0, 9000.0])) == ("not comparable", "-")
    assert gain_of(row([4000.0])) == ("1.5", "75.0%")
