"""Run a job with a table: the variables that an unmodified runtime reads."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tuccl

cluster = tuccl.profile("v100x4", nodes=2)
options = tuccl.TuneOptions(budget=10)

with tempfile.TemporaryDirectory() as folder:
    table = tuccl.tune(cluster, "allgather", "4M", options=options, path=Path(folder, "table"))
    variables, notes = tuccl.run_environment(table, cache=Path(folder, "cache"))
    for note in notes:
        print(f"note: {note}")

    # Any launcher that hands on its environment will do: mpirun -x ..., srun, torchrun. Here the
    # job is a stand-in that prints what MSCCL would read. `tuccl run` does this and more: it gives
    # the job a place where its ranks agree on the table.
    job = "import os; print(*sorted(v for v in os.environ if 'MSCCL' in v or 'TUCCL' in v))"
    subprocess.run([sys.executable, "-c", job], env={**os.environ, **variables}, check=True)

# Under PyTorch, `import tuccl.torch` registers a backend that runs the table of TUCCL_TABLE:
#   TUCCL_TABLE=table torchrun --nproc-per-node 8 train.py    # init_process_group("tuccl")
