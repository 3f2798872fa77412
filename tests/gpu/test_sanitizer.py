"""The kernels under compute-sanitizer, where it is on the PATH (`make gpu`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuccl.errors import Unavailable
from tuccl.runtime.executors import cuda_devices

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FAULT = 86


@pytest.fixture(autouse=True)
def gpus() -> None:
    try:
        cuda_devices()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("tool", TOOLS)
def test_short_runs_are_clean(tool: str) -> None:
    """All protocols, several passes, a count that no slot divides; cooperative launches too."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on the PATH: it comes with the CUDA toolkit")
    script = Path(__file__).with_name("short_runs.py")
    done = subprocess.run(
        [sanitizer, "--tool", tool, "--error-exitcode", str(FAULT), sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "12 runs, 0 wrong" in done.stdout
