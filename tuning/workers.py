"""Worker processes on this machine: each claims tasks of a tune until all are complete."""

from __future__ import annotations

import copyreg
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Self

from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.simulation import MachineClass, Network, ProtocolCosts, Resource, Route
from tuccl.tuning.studies.storages import storage_failures
from tuccl.tuning.studies.study import MARK, Studies
from tuccl.tuning.studies.task_queue import TaskQueue, in_work
from tuccl.tuning.work import Progress, Work, no_progress, report_states

_POLL_S = 0.1
_REPORT_S = 1.0
_MOST_RESTARTS = 20  # of workers that timed no candidate, in a row with no task completed between
_REFUSAL = 2  # exit code: the last line on standard error says why
_GRACE_S = 10.0


def search_in_processes(
    work: Work, queue: TaskQueue, studies: Studies, progress: Progress, deadline: float
) -> None:
    """Search the tasks of ``work`` in as many processes as its options say, to their end.

    A worker that dies is started again; its task goes on from the evaluations that are stored.
    One whose evaluation exceeds the limit is ended first.

    Raises:
        InputError: times are not simulated, or a worker refuses its work.
        Unavailable: workers die again and again.
    """
    if all(state.complete for state in queue.states().values()):
        return
    seconds = max(deadline - time.monotonic(), 1e-3) if work.options.seconds else None
    marks = studies.mark.path.parent
    message = pickled(work, seconds, marks)
    with _WorkerPool(message, work.options.workers) as pool:
        reported, deaths, complete = 0.0, 0, -1
        while True:
            if time.monotonic() - reported > _REPORT_S or pool.ended:
                reported, states = time.monotonic(), queue.states()
                report_states(states, progress)
                count = sum(state.complete for state in states.values())
                if count == len(states):
                    return
                deaths, complete = (0, count) if count > complete else (deaths, complete)
            deaths += pool.replace_the_dead(marks)
            if deaths > _MOST_RESTARTS:
                raise Unavailable(f"workers end again and again: {pool.last_line()}")
            pool.end_the_hung(marks, work.options.evaluation_limit)
            time.sleep(_POLL_S)


class _WorkerPool:
    """Worker processes that get one message each; they end with this process."""

    def __init__(self, message: bytes, count: int) -> None:
        self._message = message
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the exit
        self._workers = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tuccl.tuning.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        assert worker.stdin is not None
        with suppress(BrokenPipeError):
            worker.stdin.write(self._message)
            worker.stdin.flush()
        return worker

    @property
    def ended(self) -> bool:
        """True if every worker came to its end."""
        return all(worker.poll() == 0 for worker in self._workers)

    def replace_the_dead(self, marks: Path) -> int:
        """Start a worker for each that died, and return how many were timing no candidate."""
        unexplained = 0
        dead = [i for i, worker in enumerate(self._workers) if worker.poll() not in (None, 0)]
        for i in dead:
            if self._workers[i].poll() == _REFUSAL:
                raise InputError(self.last_line())
            unexplained += not in_work(_mark(marks, self._workers[i]))
            self._close(self._workers[i])
            self._workers[i] = self._start()
        return unexplained

    def end_the_hung(self, marks: Path, limit_s: float) -> None:
        """Kill the workers that have been timing one thing for over ``limit_s`` seconds."""
        for worker in self._workers:
            mark = _mark(marks, worker)
            with suppress(OSError):
                if in_work(mark) and time.time() - mark.stat().st_mtime > limit_s:
                    worker.kill()
                    worker.wait()

    def last_line(self) -> str:
        """Return the last line that a worker printed."""
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "nothing was printed"

    def _close(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdin is not None
        with suppress(BrokenPipeError):
            worker.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            self._close(worker)  # which ends it
        for worker in self._workers:
            try:
                worker.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._errors.close()


def _mark(marks: Path, worker: subprocess.Popen[bytes]) -> Path:
    return marks / f"{worker.pid}{MARK}"


def pickled(work: Work, seconds: float | None, marks: Path) -> bytes:
    """Return ``work`` for another process, which has ``seconds`` for it and shows what it times.

    Raises:
        InputError: its times are not simulated, or its executor cannot be sent.
    """
    if not work.executor.simulated:
        raise InputError(
            f"--workers: real runs ({work.executor.name}) would disturb each other; leave it out"
        )
    work = replace(work, options=replace(work.options, seconds=seconds))
    with _native_pickling():
        try:
            return pickle.dumps((work, marks))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InputError(f"--workers: this executor cannot be shared: {error}") from None


@contextmanager
def _native_pickling() -> Iterator[None]:
    """Let native values be pickled by their attributes, which their constructors take."""
    kinds = (MachineClass, ProtocolCosts, Network, Resource, Route)
    for kind in kinds:
        copyreg.pickle(kind, _reduced)
    try:
        yield
    finally:
        for kind in kinds:
            copyreg.dispatch_table.pop(kind, None)


def _reduced(value: object) -> tuple[partial[object], tuple[()]]:
    names = [name for name in dir(value) if not name.startswith("_")]
    fields = {name: getattr(value, name) for name in names}
    fields = {name: field for name, field in fields.items() if not callable(field)}
    return partial(type(value), **fields), ()


def _main() -> int:
    """Search tasks as one worker; the parent ends it by closing its standard input."""
    try:
        with os.fdopen(0, "rb", closefd=False) as parent:
            work, marks = pickle.load(parent)
        threading.Thread(target=end_with_parent, daemon=True).start()
        studies = Studies(work.out, url=work.options.storage, marks=marks)
        seconds = work.options.seconds
        deadline = time.monotonic() + seconds if seconds else float("inf")
        with storage_failures(studies.where):
            work.search(work.queue(studies), studies, no_progress, deadline)
        studies.close()
    except KeyboardInterrupt:
        return 130
    except TucclError as error:
        print(error, file=sys.stderr)
        return _REFUSAL
    return 0


def end_with_parent() -> None:
    """Wait for the end of standard input, then end this process."""
    # Not by sys.stdin: a solver's process, forked meanwhile, would wait for its lock for ever.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_main())
