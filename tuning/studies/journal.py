"""The journal file of a study, safe against a kill at any moment."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from tuccl.errors import InputError
from tuccl.tuning.studies.study import cut_unfinished_line

_SYNC_S = 1.0


class _KernelLock(JournalFileOpenLock):
    """Exclusive use of the journal while it is appended to; the kernel frees a dead owner's.

    Optuna's own locks are files, which outlive a process that is killed while it writes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._file: BinaryIO | None = None

    def acquire(self) -> bool:
        self._file = self._path.open("ab+")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":  # another process was killed while it wrote
                cut_unfinished_line(self._path)
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()  # which unlocks it
            self._file = None


class _Backend(JournalFileBackend):
    """Optuna's journal, synchronized with the disk once a second at most instead of at each line.

    What a process has written outlives a kill of it; only a machine that loses its power loses
    the last second.
    """

    def __init__(self, path: Path) -> None:
        self._kernel_lock = _KernelLock(path)
        super().__init__(str(path), lock_obj=self._kernel_lock)
        self._synchronized = 0.0

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append a line for each of ``logs``, in one write."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        self._kernel_lock.acquire()
        try:
            with Path(self._file_path).open("ab") as file:
                file.write(lines.encode())
                file.flush()
                if time.monotonic() - self._synchronized > _SYNC_S:
                    os.fsync(file.fileno())
                    self._synchronized = time.monotonic()
        finally:
            self._kernel_lock.release()


def open_journal(path: Path) -> BaseStorage:
    """Return the storage of the journal at ``path``, which is made if it is missing.

    Raises:
        InputError: the file is no journal.
    """
    lock = _KernelLock(path)
    try:
        lock.acquire()
        lock.release()
        return JournalStorage(_Backend(path))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no journal of a study ({str(error)[:80]}); remove it") from None
