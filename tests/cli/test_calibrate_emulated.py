"""From a few runs of ``bench --json`` on an emulated cluster to a class that predicts others."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.conftest import Tuccl
from tuccl.emulation.sim_executor import EmulatedSimExecutor
from tuccl.program import Knobs, Program, to_xml
from tuccl.topology import (
    Constant,
    MachineFile,
    join,
    keep_gpus,
    load_profile,
    machine_class,
    read_machine,
    save_topology,
)

SCALE = 0.002


def other(file: MachineFile) -> MachineFile:
    """Return a class with slower cores and slower messages than the one that ships."""
    slower = {
        "cpu_efficiency": Constant(0.05, "made up"),
        "net_message_us": Constant(300.0, "made up"),  # Simple takes three
    }
    return msgspec.structs.replace(
        file, constants=msgspec.structs.replace(file.constants, **slower)
    )


@pytest.fixture
def programs(handmade: ModuleType) -> dict[str, Program]:
    return {"ring": handmade.ring_allreduce(4), "alltoall": handmade.direct_alltoall(4)}


def test_a_class_fitted_to_some_runs_predicts_the_others(
    tuccl: Tuccl, tmp_path: Path, programs: dict[str, Program]
) -> None:
    t = join(keep_gpus(load_profile("ndv2"), [0, 1]), 2)
    save_topology(t, tmp_path / "t.json")
    truth = EmulatedSimExecutor(t, SCALE, machine=machine_class(other(read_machine("emulated"))))
    sizes = [1 << 18, 1 << 20, 1 << 22]
    runs = []
    for name, program in programs.items():
        (tmp_path / f"{name}.xml").write_text(to_xml(program, "executor"))
        rows = [{"size": n, "time_us": truth.time(program, Knobs(), n).us} for n in sizes]
        told = {"on": "mpi", "label": "measured", "rows": rows}
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
        run = {"table": f"{name}.json", "collective": program.collective, "topology": "t.json"}
        runs.append({**run, "emulate": SCALE, "launch": "mpi", "programs": [f"{name}.xml"]})
    runs_file, mine = tmp_path / "runs.json", tmp_path / "mine.json"
    runs_file.write_text(json.dumps({"format": "tuccl-calibration/1", "runs": runs[:1]}))
    start = ["--machine", "emulated"]
    answer = tuccl("calibrate", runs_file, *start, "-o", mine, "--json")
    assert answer.code == 0, answer.err
    both = tmp_path / "both.json"
    both.write_text(json.dumps({"format": "tuccl-calibration/1", "runs": runs}))
    before = json.loads(tuccl("calibrate", both, *start, "--no-fit", "--json").out)["errors"]
    after = json.loads(tuccl("calibrate", both, "--machine", mine, "--no-fit", "--json").out)[
        "errors"
    ]
    assert all(b["large"] < 0.5 * a["large"] for a, b in zip(before, after, strict=True))

    emulated = ["--on", "sim", "--emulate", "--scale", SCALE, "--machine", mine]
    line = ["bench", tmp_path / "alltoall.xml", tmp_path / "t.json", "-s", "4M", *emulated]
    predicted = json.loads(tuccl(*line, "--json").out)["rows"][0]["time_us"]
    assert predicted == pytest.approx(
        truth.time(programs["alltoall"], Knobs(), 4 << 20).us, rel=0.1
    )


def test_simulated_rows_are_no_measurements(
    tuccl: Tuccl, tmp_path: Path, programs: dict[str, Program]
) -> None:
    t = join(keep_gpus(load_profile("ndv2"), [0, 1]), 2)
    save_topology(t, tmp_path / "t.json")
    (tmp_path / "p.xml").write_text(to_xml(programs["ring"], "executor"))
    rows = {"on": "sim", "label": "simulated", "rows": [{"size": 1024, "time_us": 5.0}]}
    (tmp_path / "p.json").write_text(json.dumps(rows))
    line = ["calibrate", tmp_path / "p.json", tmp_path / "t.json", "-c", "allreduce", "--no-fit"]
    answer = tuccl(*line)
    assert answer.code == 2 and "simulated" in answer.err
