"""MSCCL++'s executor_test.py as an executor. No GPU is here: a stand-in takes its documented
arguments, runs each plan on this CPU's interpreter and prints its lines."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.fake_mscclpp import make_executor_test
from tests.fake_nccl_tests import make_fakes
from tuccl.cli import main
from tuccl.errors import InputError, Stuck, TucclError, Unavailable
from tuccl.program import Knobs, Program, to_xml
from tuccl.runtime import MscclppExecutor, load_table
from tuccl.runtime.jobs import job_launcher
from tuccl.runtime.mscclpp import ExecutorTest, find_executor_test
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.topology import keep_gpus, load_profile, save_topology

HOST = keep_gpus(load_profile("ndv4"), range(4))
SIMPLE, PACKETS = Knobs("Simple", 1, 512, 8 << 20), Knobs("LL", 2, 256)
NBYTES = 1 << 14


@pytest.fixture(autouse=True)
def _python_with_tuccl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin_folder / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.delenv("MSCCLPP_SOURCE", raising=False)


def executor(tmp_path: Path, fault: str = "", **more: object) -> tuple[MscclppExecutor, Path]:
    source, seen = make_executor_test(tmp_path, fault)
    launcher = make_fakes(tmp_path / "fakes").launcher("mpirun")
    test = ExecutorTest(
        find_executor_test(str(source)),
        job_launcher(f"{launcher} -np 4", 4),
        tmp_path / "shared folder",
        **more,  # type: ignore[arg-type]
    )
    return MscclppExecutor(test, 4, 1, "four GPUs"), seen


def program(collective: str, method: str = "allpairs") -> Program:
    call = Collective(collective, 4)
    return lower(make_schedule(Problem(call, full_mesh(HOST), 1, NBYTES, HOST), method))


def test_a_program_runs_as_a_plan_in_each_placement(tmp_path: Path) -> None:
    real, seen = executor(tmp_path)
    with real:
        timing = real.time(program("allreduce"), PACKETS, NBYTES, repeats=2)
    slowest = 4 + 3 + NBYTES / 2e4
    assert (timing.time_us, timing.time_us_ip) == (slowest, slowest)
    assert (timing.wrong, timing.on, len(timing.samples_us)) == (0, "mscclpp", 2)
    calls = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [call["argv"].count("--in_place") for call in calls] == [0, 0, 1, 1]
    assert {call["protocol"] for call in calls} == {"LL"}
    assert calls[0]["argv"][2:6] == ["--size", str(NBYTES), "--dtype", "float32"]
    assert not list((tmp_path / "shared folder").iterdir())


def test_a_reduce_scatter_is_out_of_place_and_counts_the_whole_array(tmp_path: Path) -> None:
    real, seen = executor(tmp_path)
    with real:
        timing = real.time(program("reduce-scatter"), SIMPLE, NBYTES)
    assert timing.time_us_ip is None
    assert "--in_place" not in json.loads(seen.read_text())["argv"]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("crash", InputError, "illegal memory access"),
        ("wrong", InputError, "data were wrong"),
        ("ranks", Unavailable, "3 ranks printed times, expected 4"),
        ("size", Unavailable, "8192 bytes of float32, not 16384"),
        ("nan", Unavailable, "as a time"),
        ("hang", Stuck, "not done after"),
    ],
)
def test_what_goes_wrong_is_said(
    fault: str, error: type[TucclError], message: str, tmp_path: Path
) -> None:
    real, _ = executor(tmp_path, fault, limit_s=2.0 if fault == "hang" else 60.0)
    with real, pytest.raises(error, match=message):
        real.time(program("allgather"), SIMPLE, NBYTES)


def test_calls_that_the_script_cannot_check_are_refused(tmp_path: Path) -> None:
    real, seen = executor(tmp_path)
    with real, pytest.raises(InputError, match="checks allgather, allreduce, alltoall"):
        real.time(program("broadcast", "ring"), SIMPLE, NBYTES)
    with real, pytest.raises(InputError, match="multiples of 64"):
        real.time(program("allgather"), SIMPLE, NBYTES - 2)
    assert not seen.exists()
    with pytest.raises(InputError, match=r"datatype 'fp8': executor_test\.py has half"):
        executor(tmp_path / "other", datatype="fp8")


def test_the_script_is_found_in_its_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = make_executor_test(tmp_path)
    script = (source / "python" / "test" / "executor_test.py").resolve()
    for folder in (source, script.parent, script):
        assert find_executor_test(str(folder)) == script
    with pytest.raises(Unavailable, match="MSCCLPP_SOURCE"):
        find_executor_test(None)
    monkeypatch.setenv("MSCCLPP_SOURCE", str(source))
    assert find_executor_test(None) == script
    with pytest.raises(InputError, match="no executor_test"):
        find_executor_test(str(tmp_path))


def test_tune_bench_and_doctor_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, seen = make_executor_test(tmp_path, "packets crash")
    launcher = make_fakes(tmp_path / "fakes").launcher("mpirun")
    machine, table, plans = tmp_path / "t.json", tmp_path / "table", tmp_path / "plans"
    save_topology(HOST, machine)
    job = ["--on", "mscclpp", "--mscclpp", str(source), "--launcher", f"{launcher} -np 4"]
    job += ["--shared", str(tmp_path / "shared")]
    words = ["tune", str(machine), "-c", "alltoall", "-s", "16K", "--budget", "1"]
    assert main([*words, *job, "-o", str(table)]) == 0
    stored = load_table(table).lookup
    assert stored.dialect == "mscclpp"
    assert "measured by MSCCL++'s executor" in stored.tuned_on
    chosen = {c.knobs.protocol for e in stored.entries for c in e.candidates if c.knobs}
    assert chosen <= {"Simple"}  # those with packets crash, and cost themselves alone
    assert {json.loads(line)["protocol"] for line in seen.read_text().splitlines()} >= {"Simple"}

    assert main(["export", str(table), "--dialect", "mscclpp", "-o", str(plans)]) == 0
    capsys.readouterr()
    plan = next(iter(sorted(plans.glob("*-out-simple.json"))), None)
    if plan is not None:
        assert main(["bench", str(plan), str(machine), "-s", "16K", *job, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["label"].startswith("measured by MSCCL++'s executor")

    monkeypatch.setenv("MSCCLPP_SOURCE", str(source))
    main(["doctor"])
    assert "executor_test.py" in capsys.readouterr().out


def test_a_plan_is_simulated_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, plans = tmp_path / "t.json", tmp_path / "plans"
    save_topology(HOST, machine)
    (tmp_path / "p.xml").write_text(to_xml(program("allgather")))
    assert main(["export", str(tmp_path / "p.xml"), "--dialect", "mscclpp", "-o", str(plans)]) == 0
    plan = str(next(iter(sorted(plans.glob("*-out-*.json")))))
    capsys.readouterr()
    assert main(["bench", plan, str(machine), "-s", "16K", "--json"]) == 0
    assert "simulated MSCCL++" in json.loads(capsys.readouterr().out)["label"]
    assert main(["bench", plan, str(machine), "-s", "16K", "--on", "mpi"]) == 2
    assert main(["bench", plan, str(machine), "-s", "16K", "--threads", "64"]) == 2
    assert "a plan has its own knobs" in capsys.readouterr().err
