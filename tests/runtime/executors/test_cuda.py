"""The executor on GPUs, where there is none: refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuccl.cli import main
from tuccl.errors import Unavailable
from tuccl.runtime.executors import cuda_devices
from tuccl.runtime.executors.cuda import CudaExecutor


def test_a_library_that_is_not_there_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(Unavailable, match="make cuda"):
        CudaExecutor(2)


def test_a_file_that_is_no_library_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text.so"
    path.write_text("no library")
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(path))
    with pytest.raises(Unavailable, match="cannot be loaded"):
        cuda_devices()


@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_verbs_refuse_it_in_one_line(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(tmp_path / "none.so"))
    topology = tmp_path / "t.json"
    assert main(["probe", "--profile", "ndv4", "-o", str(topology)]) == 0
    capsys.readouterr()
    what = {
        "bench": ["--baseline", "msccl-default", "-c", "allreduce", str(topology), "-s", "1M"],
        "tune": [str(topology), "-c", "allreduce", "-s", "1M", "-o", str(tmp_path / "table")],
    }[verb]
    assert main([verb, *what, "--on", "cuda"]) == 2
    error = capsys.readouterr().err
    assert "make cuda" in error and error.count("\n") == 1
