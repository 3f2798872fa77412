"""`tuccl.torch` on two GPUs: a table's programs on the tensors' own memory, the rest by NCCL."""

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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs and PyTorch with CUDA")
def test_two_gpus_do_as_with_nccl(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", 1, 2)
    done = subprocess.run(
        [*(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"), SCRIPT],
        env={**os.environ, "TUCCL_TABLE": str(table)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("all is right") == 2
