"""`tuccl.torch` on GPUs, one or two: a table's programs on the tensors' own memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch_backend.conftest import write_table

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).with_name("torch_ranks.py")


@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU and PyTorch with CUDA")
@pytest.mark.parametrize("adapt", ["0", "1"])
def test_two_ranks_do_as_with_gloo(tmp_path: Path, adapt: str) -> None:
    table = write_table(tmp_path / "table", 1, 2)
    done = subprocess.run(
        [*(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"), SCRIPT],
        env={**os.environ, "TUCCL_TABLE": str(table), "TUCCL_ADAPT": adapt},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("all is right") == 2
