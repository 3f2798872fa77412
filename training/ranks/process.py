"""The process of a rank: it ends with its parent, and its last line says why it failed."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tuccl.errors import TucclError


def run_rank(work: Callable[[Path, int], None]) -> NoReturn:
    """Do ``work`` with the folder and the rank of the command line, and end this process."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        work(Path(sys.argv[1]), int(sys.argv[2]))
    except TucclError as error:
        print(error, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the last line says why
        traceback.print_exc()
    else:
        sys.exit(0)
    # Threads that wait for messages in native code would end the interpreter's end badly.
    sys.stderr.flush()
    os._exit(1)


def _end_with_input() -> None:
    """End this process when its input closes: the process that started it is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)
