"""``python -m tuccl.training.ranks FOLDER RANK``: one rank of the job that the folder describes."""

from pathlib import Path

import msgspec

from tuccl.training.job import JOB_FILE, Job
from tuccl.training.ranks.process import run_rank
from tuccl.training.ranks.rank import Rank


def _run(folder: Path, rank: int) -> None:
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=Job)
    Rank(job, rank, folder).run()


if __name__ == "__main__":
    run_rank(_run)
