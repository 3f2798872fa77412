"""Fitting machine classes: what a class is fitted to comes back, and errors are counted whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.eval import (
    CalibrationRun,
    Trial,
    cross_validate,
    errors_of,
    fit,
    read_calibration_set,
    trial_of,
)
from tuccl.eval.calibrate import predict, unfitted
from tuccl.topology import (
    Constant,
    MachineFile,
    encode_machine,
    load_machine,
    load_profile,
    machine_class,
    read_machine,
    save_topology,
)

SIZES = tuple(1 << power for power in range(10, 27, 2))
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CalibrationRun:
    """An allreduce on 4 V100, the times still to be filled in."""
    folder = tmp_path_factory.mktemp("run")
    save_topology(load_profile("v100x4"), folder / "t.json")
    table = folder / "table.csv"
    table.write_text("size_bytes,time_us\n" + "".join(f"{n},1\n" for n in SIZES))
    return CalibrationRun(
        table=str(table), topology=str(folder / "t.json"), collective="allreduce", launch="mpi"
    )


@pytest.fixture(scope="module")
def trial(run: CalibrationRun) -> Trial:
    """Its times as a machine takes them whose constants are others than the class says."""
    blank = trial_of(run)
    truth = predict(blank, machine_class(another(read_machine("v100"))))
    cases = zip(blank.cases, truth, strict=True)
    return dataclasses.replace(
        blank, cases=tuple(dataclasses.replace(case, us=us) for case, us in cases)
    )


def another(machine: MachineFile) -> MachineFile:
    """Return a machine with slower launches, slower Simple hops and wider links."""
    constants = msgspec.structs.replace(
        machine.constants,
        host_gpu_us=Constant(9.0, "test"),
        start_us=Constant(12.0, "test"),
        nvlink_efficiency=Constant(0.98, "test"),
    )
    simple = msgspec.structs.replace(machine.protocols.Simple, hop_us=Constant(4.0, "test"))
    protocols = msgspec.structs.replace(machine.protocols, Simple=simple)
    return msgspec.structs.replace(machine, constants=constants, protocols=protocols)


def test_a_fit_explains_what_it_is_fitted_to(trial: Trial) -> None:
    start = read_machine("v100")
    before = errors_of(trial, machine_class(start))
    result = fit([trial], start)
    [after] = result.errors
    assert before.large is not None and after.large is not None and after.small is not None
    assert after.large < min(0.03, before.large / 2)
    assert after.small < 0.03
    assert after == errors_of(trial, machine_class(result.machine))


def test_fitted_constants_say_so_and_others_keep_their_source(trial: Trial) -> None:
    start = unfitted(read_machine("v100"))
    fitted = fit([trial], start).machine
    assert fitted.constants.start_us.source.startswith(f"fit of {trial.name}")
    assert fitted.constants.start_us.prior == start.constants.start_us.value
    for untold in ("net_message_us", "nvls_us", "network_efficiency", "sm_count"):
        assert getattr(fitted.constants, untold) == getattr(start.constants, untold)
    assert unfitted(fitted) == start


def test_the_file_of_a_fit_is_read_back(trial: Trial, tmp_path: Path) -> None:
    fitted = fit([trial], read_machine("v100")).machine
    (tmp_path / "mine.json").write_bytes(encode_machine(fitted))
    assert read_machine(tmp_path / "mine.json") == fitted
    assert predict(trial, load_machine(tmp_path / "mine.json")) == predict(
        trial, machine_class(fitted)
    )


def test_left_out_sizes_are_predicted(trial: Trial) -> None:
    [errors] = cross_validate([trial], read_machine("v100"))
    assert errors.large is not None and errors.large < 0.05


def test_left_out_tables_are_predicted_by_the_others(trial: Trial) -> None:
    halves = [dataclasses.replace(trial, name=f"half {n}", cases=trial.cases[n::2]) for n in (0, 1)]
    first, second = cross_validate(halves, read_machine("v100"))
    assert (first.name, second.name) == ("half 0", "half 1")
    assert first.large is not None and first.large < 0.05


def test_sizes_that_cannot_be_modelled_count_as_wrong(trial: Trial) -> None:
    machine = machine_class(read_machine("v100"))
    plain = errors_of(trial, machine)
    refused = errors_of(dataclasses.replace(trial, refused=(1 << 30,) * len(SIZES)), machine)
    assert plain.large is not None and refused.large is not None
    assert refused.large > 0.5 + plain.large / 4
    assert (refused.worst, refused.worst_bytes) == (-1.0, 1 << 30)


def test_nothing_to_fit_to_is_refused(trial: Trial) -> None:
    with pytest.raises(InputError, match="no measured sizes"):
        fit([dataclasses.replace(trial, cases=())], read_machine("v100"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"profile": "v100x4"}, "one of the two"),
        ({"topology": None}, "one of the two"),
        ({"from_bytes": 1 << 40}, "no size from"),
        ({"algorithm": "Star"}, "Star for allreduce"),
        ({"nccl": "9.9"}, "9.9"),
        ({"gpus": (9,)}, "9"),
    ],
)
def test_runs_that_contradict_themselves_are_refused(
    run: CalibrationRun, change: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        trial_of(msgspec.structs.replace(run, **change))


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": "tuccl-calibration/1", "runs": []}', '{"format": "x", "runs": []}'],
)
def test_what_is_no_set_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "set.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"set\.json: "):
        read_calibration_set(path)


def test_every_public_table_is_modelled_at_every_size(shared_data: Path) -> None:
    """And the classes that ship are within the marks on the whole of each table."""
    runs = read_calibration_set(BENCHMARKS / "measurements.json")
    classes = {"ndv4": "a100", "dgx-a100": "a100", "ndv5": "h100", "dgx-1v": "v100"}
    held = 0
    for one in runs:
        trial = trial_of(one)
        assert trial.refused == ()
        name = classes.get(one.profile or "")
        if name is None:
            continue
        small_enough = [c for c in trial.cases if c.nbytes <= 64 << 20]
        errors = errors_of(
            dataclasses.replace(trial, cases=tuple(small_enough)),
            machine_class(read_machine(name)),
        )
        assert errors.large is not None and errors.large < 0.2, one.table
        held += 1
    assert held >= 6
