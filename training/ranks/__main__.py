"""``python -m tuccl.training.ranks FOLDER RANK``: one rank of the job that the folder describes."""

import os
import sys
import threading
import traceback
from pathlib import Path

import msgspec

from tuccl.errors import TucclError
from tuccl.training.job import JOB_FILE, Job
from tuccl.training.ranks.rank import Rank


def _end_with_input() -> None:
    """End this process when its input closes: the process that started it is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=Job)
    try:
        Rank(job, number, folder).run()
    except TucclError as error:
        print(error, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the last line says why
        traceback.print_exc()
    else:
        sys.exit(0)
    # Threads that wait for messages in native code would end the interpreter's end badly.
    sys.stderr.flush()
    os._exit(1)
