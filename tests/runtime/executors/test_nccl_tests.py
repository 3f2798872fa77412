"""nccl-tests as an executor: what reaches it, what is read, and what is refused. No GPU is here:
a fake prints recorded lines, and obeys the environment as NCCL and MSCCL would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_nccl_tests import Fakes, make_fakes
from tuccl.errors import InputError, Stuck, TucclError, Unavailable
from tuccl.program import Knobs, Program, parse_xml
from tuccl.runtime import NcclTestsExecutor, baselines_on, time_baseline
from tuccl.runtime.jobs import job_launcher
from tuccl.runtime.jobs.child_tree import descendants, lives
from tuccl.runtime.nccl_tests import NcclTests, find_nccl_tests
from tuccl.runtime.nccl_tests.output import read_json, read_text
from tuccl.sketches import candidate_sketches
from tuccl.synth import Collective, Problem, lower, make_schedule

KNOBS = Knobs("Simple", 1, 512, 1 << 20)
NBYTES = 1 << 20


def executor(
    fakes: Fakes, folder: Path, launcher: str = "mpirun", **more: object
) -> NcclTestsExecutor:
    start = job_launcher(f"{fakes.launcher(launcher)} -np 4", 4)
    tests = NcclTests(fakes.tests, start, folder / "shared folder", **more)  # type: ignore[arg-type]
    return NcclTestsExecutor(tests, 4, "a mesh")


def ring(hand: SimpleNamespace, dialect: str) -> Program:
    topology = hand.mesh()
    sketch = candidate_sketches(topology, "allgather", NBYTES)[0]
    schedule = make_schedule(
        Problem(Collective("allgather", topology.ranks), sketch, 1, NBYTES), "ring"
    )
    return lower(schedule, dialect=dialect)


@pytest.fixture(scope="module")
def program(hand: SimpleNamespace) -> Program:
    return ring(hand, "executor")


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "srun"])
def test_a_program_is_loaded_alone_at_exactly_its_size(
    tmp_path: Path, program: Program, launcher: str
) -> None:
    fakes = make_fakes(tmp_path)
    with executor(fakes, tmp_path, launcher) as runs:
        timing = runs.time(program, KNOBS, NBYTES, repeats=3)
    [seen] = (json.loads(line) for line in fakes.seen.read_text().splitlines())
    env, argv = seen["env"], seen["argv"]
    assert argv[argv.index("-b") + 1] == argv[argv.index("-e") + 1] == str(NBYTES)
    assert (env["MSCCL_SCHEDULER"], env["NCCL_BUFFSIZE"]) == ("none", str(1 << 20))
    assert len(timing.samples_us) == 3 and timing.on == "nccl-tests" and timing.wrong == 0
    assert not (tmp_path / "shared folder").exists() or not any(
        (tmp_path / "shared folder").iterdir()
    )


@pytest.mark.parametrize("dialect", ["executor", "rccl", "fork"])
def test_the_file_answers_for_one_size_only(
    tmp_path: Path, hand: SimpleNamespace, dialect: str
) -> None:
    runs = executor(make_fakes(tmp_path), tmp_path)
    runs.dialect = dialect
    folder = tmp_path / "programs"
    folder.mkdir()
    variables = runs._loaded(ring(hand, dialect), KNOBS, NBYTES, folder)
    for file in folder.iterdir():
        read = parse_xml(file.read_bytes(), str(file))
        assert read.min_bytes == NBYTES
        assert read.max_bytes == NBYTES + (dialect == "fork")
    named = variables.get("MSCCL_ALGO_DIR") or variables["MSCCL_XML_FILES"]
    assert str(folder) in named


def test_nccls_own_choice_runs_without_msccl_and_without_a_table(
    tmp_path: Path, hand: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_TABLE", "/left/over")
    monkeypatch.setenv("MSCCL_ALGO_DIR", "/left/over")
    fakes = make_fakes(tmp_path)
    with executor(fakes, tmp_path) as runs:
        own = time_baseline(runs, hand.mesh(), "nccl", "allgather", NBYTES)
    env = json.loads(fakes.seen.read_text())["env"]
    assert (
        env["NCCL_MSCCL_ENABLE"] == "0" and "MSCCL_ALGO_DIR" not in env and "TUCCL_TABLE" not in env
    )
    assert own.timing.us > 0


def test_symmetric_windows_are_a_baseline_of_their_own(
    tmp_path: Path, hand: SimpleNamespace
) -> None:
    fakes = make_fakes(tmp_path)
    with executor(fakes, tmp_path) as runs:
        assert "nccl-symmetric" in baselines_on(runs)
        plain = time_baseline(runs, hand.mesh(), "nccl", "allgather", NBYTES)
        windows = time_baseline(runs, hand.mesh(), "nccl-symmetric", "allgather", NBYTES)
    argv = [json.loads(line)["argv"] for line in fakes.seen.read_text().splitlines()]
    assert ["-R" in words for words in argv] == [False, True]
    assert argv[1][argv[1].index("-R") + 1] == "2"
    assert windows.timing.us != plain.timing.us
    assert "symmetric" in windows.name


def test_an_nccl_without_windows_is_not_timed_as_if_it_had_them(
    tmp_path: Path, hand: SimpleNamespace
) -> None:
    with (
        executor(make_fakes(tmp_path, fault="no-windows"), tmp_path) as runs,
        pytest.raises(Unavailable, match=r"2\.27"),
    ):
        time_baseline(runs, hand.mesh(), "nccl-symmetric", "allgather", NBYTES)


def test_one_run_sweeps_all_sizes(tmp_path: Path) -> None:
    fakes = make_fakes(tmp_path)
    with executor(fakes, tmp_path) as runs:
        timings = runs.sweep("allreduce", [1024, 4096, 16384], cycles=2)
        apart = runs.sweep("allreduce", [1024, 5000, 16384])
    assert [len(t.samples_us) for t in timings] == [2, 2, 2]
    assert len(fakes.seen.read_text().splitlines()) == 1 + 3
    assert timings[0].us < timings[1].us < timings[2].us and apart[0].us == timings[0].us


def test_json_has_more_digits_than_text(tmp_path: Path) -> None:
    with executor(make_fakes(tmp_path), tmp_path) as text:
        [coarse] = text.sweep("allreduce", [NBYTES])
    with executor(make_fakes(tmp_path / "j"), tmp_path, json=True) as exact:
        [fine] = exact.sweep("allreduce", [NBYTES])
    assert coarse.us != fine.us == pytest.approx(coarse.us, abs=0.01)


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        ("crash", InputError, "ended with 3 and 0 of 1 results; .*unhandled cuda error"),
        ("ranks", Unavailable, "ran on 3 GPUs, the topology has 4"),
        ("hang", Stuck, "not done after 1 s"),
    ],
)
def test_failed_runs_are_reported_in_a_line(
    tmp_path: Path, fault: str, kind: type[TucclError], why: str
) -> None:
    fakes = make_fakes(tmp_path, fault=fault)
    limit_s = 1.0 if fault == "hang" else 60.0
    others = descendants(os.getpid())
    runs = executor(fakes, tmp_path, limit_s=limit_s)
    with runs, pytest.raises(kind, match=why) as caught:
        runs.sweep("allreduce", [NBYTES])
    assert "\n" not in str(caught.value)
    assert descendants(os.getpid()).keys() <= others.keys()


def test_wrong_results_are_counted_and_not_timed_away(tmp_path: Path, program: Program) -> None:
    with executor(make_fakes(tmp_path, fault="wrong"), tmp_path) as runs:
        timing = runs.time(program, KNOBS, NBYTES)
    assert timing.wrong == 6


def test_a_runtime_without_msccl_is_found_out(tmp_path: Path, program: Program) -> None:
    """Else plain NCCL's time would stand in the table as the program's."""
    runs = executor(make_fakes(tmp_path, msccl=False), tmp_path)
    with runs, pytest.raises(Unavailable, match="says nothing of MSCCL"):
        runs.time(program, KNOBS, NBYTES)


@pytest.mark.parametrize("fault", ["unused", "unloaded"])
def test_a_program_that_msccl_did_not_run_is_found_out(
    tmp_path: Path, program: Program, fault: str
) -> None:
    runs = executor(make_fakes(tmp_path, fault=fault), tmp_path)
    with runs, pytest.raises(InputError, match="did not run the program"):
        runs.time(program, KNOBS, NBYTES)


@pytest.mark.parametrize(
    ("knobs", "nbytes", "why"),
    [
        (Knobs("Simple", 1, 256, 1 << 20), NBYTES, "use --threads 512"),
        (KNOBS, NBYTES + 4, "divide the elements"),
    ],
)
def test_what_msccl_would_leave_to_nccl_is_refused(
    tmp_path: Path, program: Program, knobs: Knobs, nbytes: int, why: str
) -> None:
    fakes = make_fakes(tmp_path)
    with executor(fakes, tmp_path) as runs, pytest.raises(InputError, match=why):
        runs.time(program, knobs, nbytes)
    assert not fakes.seen.exists()


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpiexec.mpich"])
def test_real_launchers_hand_everything_on(tmp_path: Path, program: Program, launcher: str) -> None:
    if shutil.which(launcher) is None:
        pytest.skip(f"no {launcher}")
    more = "--allow-run-as-root --oversubscribe" if "openmpi" in launcher else ""
    fakes = make_fakes(tmp_path)
    start = job_launcher(f"{launcher} {more} -n 4", 4)
    with NcclTestsExecutor(NcclTests(fakes.tests, start, tmp_path / "s"), 4, "mesh") as runs:
        fast = runs.time(program, KNOBS, NBYTES)
        [own] = runs.sweep("allgather", [NBYTES])
    seen = [json.loads(line) for line in fakes.seen.read_text().splitlines()]
    assert sorted(s["rank"] for s in seen) == sorted(list(range(4)) * 2)
    assert fast.us < own.us
    assert sum("MSCCL_ALGO_DIR" in s["env"] for s in seen) == 4


def test_processes_without_mpi_are_found_out(tmp_path: Path) -> None:
    launcher = "mpirun.openmpi"
    if shutil.which(launcher) is None:
        pytest.skip(f"no {launcher}")
    fakes = make_fakes(tmp_path, fault="no-mpi")
    start = job_launcher(f"{launcher} --allow-run-as-root --oversubscribe -n 4", 4)
    runs = NcclTestsExecutor(NcclTests(fakes.tests, start, tmp_path / "s"), 4, "mesh")
    with runs, pytest.raises(Unavailable, match="build nccl-tests with MPI=1"):
        runs.sweep("allreduce", [NBYTES])


def test_an_interrupt_ends_the_whole_tree(tmp_path: Path) -> None:
    fakes = make_fakes(tmp_path, fault="hang")
    code = (
        "from pathlib import Path; import sys\n"
        "from tuccl.runtime.jobs import job_launcher\n"
        "from tuccl.runtime.nccl_tests import NcclTests, NcclTestsExecutor\n"
        f"start = job_launcher({fakes.launcher('mpirun')!r} + ' -np 4', 4)\n"
        f"tests = NcclTests(Path({str(fakes.tests)!r}), start, Path({str(tmp_path / 's')!r}))\n"
        "with NcclTestsExecutor(tests, 4, 'mesh') as runs: runs.sweep('allreduce', [1024])\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    until = time.monotonic() + 20
    while not fakes.seen.exists() and time.monotonic() < until:
        time.sleep(0.05)
    tree = descendants(caller.pid)
    assert len(tree) >= 2
    caller.send_signal(signal.SIGINT)
    caller.communicate(timeout=20)
    assert not any(lives(pid, began) for pid, began in tree.items())
    assert not any((tmp_path / "s").iterdir())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a command"),
        ("mpirun 'a", "No closing quotation"),
        ("ssh a", "Open MPI's or MPICH's mpirun, or srun"),
        ("/no/such/mpirun -np 4", "not found"),
    ],
)
def test_launchers_that_cannot_be_are_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        job_launcher(text, 4)


def test_srun_must_export_all(tmp_path: Path) -> None:
    fakes = make_fakes(tmp_path)
    start = job_launcher(f"{fakes.launcher('srun')} --export=PATH -n 4", 4)
    with pytest.raises(InputError, match="expected ALL"):
        start.command(["a.out"], {"A": "1"})
    fine = job_launcher(f"{fakes.launcher('srun')} --export=ALL,B=2", 4)
    assert fine.command(["a.out"], {"A": "1"})[-1] == "a.out"


def test_the_folder_is_named_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_TESTS", raising=False)
    with pytest.raises(Unavailable, match="NCCL_TESTS"):
        find_nccl_tests(None)
    with pytest.raises(InputError, match="no all_gather_perf"):
        find_nccl_tests(str(tmp_path))
    fakes = make_fakes(tmp_path)
    monkeypatch.setenv("NCCL_TESTS", str(fakes.tests))
    assert find_nccl_tests(None) == fakes.tests


RECORDED = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)
#
# Using devices
#  Rank  0 Group  0 Pid   6899 on host-a device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6900 on host-a device  1 [0000:05:00] NVIDIA H100 80GB HBM3
host-a:6899:6899 [0] NCCL INFO Bootstrap : Using enp0s12:10.0.0.2<0>
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)
0 0 float sum -1 0.10 0.00 0.00 0 0.11 0.00 0.00 0
1024 256 float sum -1 36.07 0.03 0.05 0 35.77 0.03 0.05 N/A
8589934592 2147483648 float sum -1 93146 92.22 172.91 2 9.3e+4 92.22 172.91 0
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 17.3
"""


def test_recorded_text_is_read_whole() -> None:
    read = read_text(RECORDED, "a run")
    assert (read.ranks, read.tables, read.out_of_bounds) == (2, 1, True)
    assert [r.nbytes for r in read.rows] == [0, 1024, 8589934592]
    assert [r.time_us for r in read.rows] == [0.10, 36.07, 93146.0]
    assert [(r.wrong, r.wrong_ip) for r in read.rows] == [(0, 0), (0, None), (2, 0)]
    assert read.rows[2].time_us_ip == 93000.0


def test_recorded_json_is_read_whole() -> None:
    row = {
        "size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": {"cpu_time": 36.071234, "alg_bw": 0.03, "bus_bw": 0.05, "nwrong": None},
        "in_place": {"time": "nan", "nwrong": 0.0},
    }  # fmt: skip
    document = {"version": 2, "config": {"devices": [{"rank": 0}, {"rank": 1}]}, "results": [row]}
    with pytest.raises(InputError, match="neither below zero"):
        read_json(json.dumps(document), "f")
    document["results"] = [{**row, "in_place": None}]
    read = read_json(json.dumps(document), "f")
    assert (read.ranks, read.rows[0].time_us, read.rows[0].wrong) == (2, 36.071234, None)
