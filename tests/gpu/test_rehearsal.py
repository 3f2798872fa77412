"""All that drives GPUs, with the CPU in a GPU's place (libtuccl-cuda-host.so), untimed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuccl import _native
from tuccl.cli import main
from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.execution import Call
from tuccl.program import Knobs, Program, parse_xml, replicate
from tuccl.runtime import Effort, Operands
from tuccl.runtime.executors import cuda_devices
from tuccl.runtime.executors.cuda import CudaExecutor
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile

LIBRARY = Path(_native.__file__).parent / "cuda" / "libtuccl-cuda-host.so"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def host_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(LIBRARY))


def allpairs(ranks: int) -> Program:
    host = keep_gpus(load_profile("dgx-2"), range(ranks))
    return lower(msccl_default(host, Collective("allreduce", ranks)))


def test_a_call_is_timed_and_checked_on_what_is_named() -> None:
    executor = CudaExecutor(3, Operands("bfloat16", "avg", check=True), Effort(warmup=1, runs=2))
    assert cuda_devices() == ("a CPU in a GPU's place",)
    assert "3 on a CPU in a GPU's place" in executor.label
    for protocol in ("Simple", "LL", "LL128"):
        timing = executor.time(allpairs(3), Knobs(protocol, 1, 64, 1 << 14), 10_007)
        assert timing.wrong == 0 and timing.us > 0 and timing.on == "cuda"


def test_a_grid_that_cannot_be_resident_is_refused() -> None:
    with pytest.raises(InputError, match="cannot run at once"):
        CudaExecutor(4).run(Call(replicate(allpairs(4), 16), Knobs("LL", 16, 512), 64, checked=1))


def test_absent_devices_and_libraries_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="GPU 1: expected 0 to 0"):
        CudaExecutor(2, devices=(0, 1))
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(Unavailable, match=r"TUCCL_CUDA_LIBRARY names it.*make cuda"):
        cuda_devices()
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", _native.__file__)
    with pytest.raises(Unavailable, match="is not tuccl's library"):
        cuda_devices()


def test_doctor_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def found() -> str | None:
        assert main(["doctor", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["checks"]
        [place] = [row["found"] for row in rows if row["name"] == "interpreter on GPUs"]
        return None if place is None else str(place)

    assert found() == f"{LIBRARY}, a CPU in a GPU's place"
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(tmp_path / "none.so"))
    assert found() is None


def test_who_waits_is_named() -> None:
    text = (ROOT / "tests" / "gpu" / "mutual.xml").read_text()
    named = r"rank (0|1) tb 0 step 0 \(r\) waits for data from rank (?!\1)[01]"  # both wait
    with pytest.raises(Stuck, match=named):
        CudaExecutor(2, timeout_s=0.5).run(Call(parse_xml(text), Knobs("LL"), 64, checked=1))


def test_the_short_runs_for_the_sanitizer_come_out_right() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tests" / "gpu" / "short_runs.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "12 runs, 0 wrong\n"


@pytest.mark.slow
def test_the_benchmark_runs_to_its_end() -> None:
    without_kernels = "import gpu; gpu.yardstick = lambda *call: 5.0; raise SystemExit(gpu.main())"
    ran = subprocess.run(
        [sys.executable, "-c", without_kernels, "--quick", "--ranks", "2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT / "benchmarks",
        env={**os.environ, "TUCCL_CUDA_LIBRARY": str(LIBRARY)},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    for table in ("two copies", "latency of 8 bytes", "varies", "speed-up", "NCCL's", "fitted"):
        assert table in ran.stdout


def test_the_benchmark_says_in_a_line_that_there_is_no_gpu() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TUCCL_CUDA_LIBRARY": "/nowhere/lib.so"},
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "make cuda" in ran.stderr
