"""Workers of a Dask cluster, each searching one task at a time; the storage stays here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from tuccl.errors import Unavailable
from tuccl.tuning.searches.tpe import silence_optuna
from tuccl.tuning.studies.study import MARK, Mark, Studies
from tuccl.tuning.studies.task_queue import Claim, TaskQueue
from tuccl.tuning.work import Progress, Work, report_states
from tuccl.tuning.workers import end_with_parent, pickled

if TYPE_CHECKING:
    from distributed import Client, Future
    from optuna.trial import FrozenTrial

_CONNECT_S = 5.0
_POLL_S = 0.2
_REPORT_S = 1.0
_MOST_DEATHS = 20  # of workers that timed no candidate, in a row with no task completed between


@dataclass
class _Search:
    """A task on its way; ``suspects`` were being timed when workers died."""

    claim: Claim
    stack: ExitStack
    name: str = ""
    future: Future | None = None
    timing: str = ""
    suspects: tuple[str, ...] = ()


def search_on_dask(
    work: Work, queue: TaskQueue, studies: Studies, progress: Progress, deadline: float
) -> None:
    """Search the tasks of ``work`` on the workers of its options' scheduler, to their end.

    Every evaluation is sent here as it is made, and stored. The task of a worker that dies goes
    to another one, which goes on from them.

    Raises:
        InputError: times are not simulated.
        Unavailable: Dask is not installed, there is no scheduler, or its workers die again and
            again.
    """
    with ExitStack() as stack:
        client = stack.enter_context(_client(work.options.scheduler or ""))
        _Searches(work, queue, studies, client, deadline, stack).run(progress)


class _Searches:
    def __init__(
        self,
        work: Work,
        queue: TaskQueue,
        studies: Studies,
        client: Client,
        deadline: float,
        stack: ExitStack,
    ) -> None:
        from distributed import Queue

        self._work, self._queue, self._studies, self._client = work, queue, studies, client
        self._deadline, self._stack = deadline, stack
        self._messages = Queue(f"tuccl-{uuid.uuid4().hex}", client=client)
        self._searches: dict[str, _Search] = {}  # by the name of the attempt
        self._deaths = 0

    def run(self, progress: Progress) -> None:
        reported = 0.0
        while True:
            if time.monotonic() - reported > _REPORT_S:
                reported, states = time.monotonic(), self._queue.states()
                report_states(states, progress)
                if all(state.complete for state in states.values()):
                    return
            self._fill()
            ended = [s for s in self._searches.values() if s.future is not None and s.future.done()]
            self._receive()  # all that those sent
            for search in ended:
                self._end(search)

    def _fill(self) -> None:
        """Keep every worker of the cluster at a task."""
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        while len(self._searches) < workers and (claim := self._queue.claim()) is not None:
            stack = self._stack.enter_context(ExitStack())
            stack.enter_context(self._queue.working(claim, self._studies.mark.path))
            self._submit(_Search(claim, stack, suspects=claim.suspects))

    def _submit(self, search: _Search) -> None:
        search.name, search.timing = uuid.uuid4().hex, ""
        left = self._deadline - time.monotonic() if self._work.options.seconds else None
        message = pickled(
            replace(self._work, tasks=(search.claim.task,)), left, self._studies.mark.path.parent
        )
        searched = pickle.dumps((self._studies.trials(search.claim.task), search.suspects))
        limit_s, messages = self._work.options.evaluation_limit, self._messages.name
        search.future = self._client.submit(
            _search, message, searched, limit_s, messages, search.name, pure=False
        )
        self._searches[search.name] = search

    def _receive(self) -> None:
        """Store what the workers sent."""
        messages = self._messages.get(timeout=_POLL_S, batch=True) if self._messages.qsize() else ()
        if not messages:
            time.sleep(_POLL_S / 10)
        for packed in messages:
            name, kind, value = pickle.loads(packed)  # from our function on the cluster's workers
            if (search := self._searches.get(name)) is None:
                continue
            if kind == "evaluation":
                self._studies.add(*value)
                search.claim.evaluations += 1
                search.timing = ""
            elif kind == "timing":
                search.timing = value

    def _end(self, search: _Search) -> None:
        """Take the result of a search, or submit it again where its worker died."""
        assert search.future is not None
        del self._searches[search.name]
        result = None if search.future.status != "finished" else search.future.result()
        if result is None:
            error = search.future.exception() if search.future.status == "error" else None
            if error is not None and not _is_death(error):
                raise Unavailable(f"--dask: a worker fails ({_first_line(error)})")
            self._deaths += not search.timing
            if self._deaths > _MOST_DEATHS:
                raise Unavailable("--dask: workers die again and again; their logs say why")
            search.suspects += (search.timing,) if search.timing else ()
            self._submit(search)
            return
        self._deaths = 0
        search.stack.close()
        self._queue.complete(search.claim, result, search.claim.best_us)


def _is_death(error: BaseException) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:120]


@contextmanager
def _client(address: str) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError:
        raise Unavailable("--dask: Dask is not installed: pip install distributed") from None
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Unavailable(f"--dask {address[:80]}: {_first_line(error)}") from None
    with client:
        try:
            yield client
        except OSError as error:
            raise Unavailable(
                f"--dask {address[:80]}: lost ({_first_line(error)}); go on with --resume"
            ) from None


def _search(
    message: bytes, searched: bytes, limit_s: float, messages: str, name: str
) -> bytes | None:
    """Search a task in a process of its own on a worker of the cluster; None: one died of it.

    Not in the worker: its threads are no company for solvers, which fork, nor is a candidate
    that crashes or hangs.
    """
    from distributed import Event, Queue, get_worker

    begun = Event(f"tuccl-{name}")
    if begun.is_set():
        return None  # the scheduler runs it again, without the evaluations made since
    begun.set()
    queue, worker = Queue(messages), get_worker()
    task = worker.state.tasks[worker.get_current_task()]
    command = [sys.executable, "-m", "tuccl.tuning.dask_workers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(message + searched)
            process.stdin.flush()
            timing = False
            while True:
                limit = threading.Timer(limit_s, process.kill)
                if timing:
                    limit.start()
                try:
                    kind, value = pickle.load(process.stdout)  # from this module's `_main`
                finally:
                    limit.cancel()
                if task.state != "executing":  # the tune that submitted it has ended
                    return None
                if kind == "result":
                    return cast(bytes, value)
                timing = kind == "timing" and bool(value)
                if value:  # an evaluation reports the end of its timing, too
                    queue.put(pickle.dumps((name, kind, value)))
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        finally:
            process.kill()


def _main() -> None:
    """Search the task on the standard input, and write every evaluation and the result."""
    with os.fdopen(0, "rb", closefd=False) as parent, os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what else is printed is no message

        def send(kind: str, value: object) -> None:
            pickle.dump((kind, value), out)
            out.flush()

        work, _ = pickle.load(parent)
        trials, suspects = pickle.load(parent)
        threading.Thread(target=end_with_parent, daemon=True).start()
        (task,) = work.tasks
        seconds = work.options.seconds
        deadline = time.monotonic() + seconds if seconds else float("inf")
        tuner = work.tuner(task.collective, _RemoteStudies(trials, send))
        result = tuner.result(task, deadline=deadline, suspects=suspects)
        send("result", msgspec.json.encode(result))


class _RemoteStudies(Studies):
    """Studies in memory, which send what is stored and what is being timed."""

    def __init__(
        self,
        trials: dict[str, list[FrozenTrial]],
        send: Callable[[str, object], None],
    ) -> None:
        from optuna import create_study
        from optuna.storages import InMemoryStorage

        silence_optuna()

        class Sending(InMemoryStorage):
            def create_new_trial(
                self, study_id: int, template_trial: FrozenTrial | None = None
            ) -> int:
                if study_id not in loading:
                    send("evaluation", (self.get_study_name_from_id(study_id), template_trial))
                return super().create_new_trial(study_id, template_trial)

        loading: set[int] = set()
        self._storage = Sending()
        self._replay = True
        for name, stored in trials.items():
            study = create_study(storage=self._storage, study_name=name)
            loading.add(study._study_id)
            study.add_trials(stored)
        loading.clear()
        self._temporary = tempfile.TemporaryDirectory(prefix="tuccl-")
        self.mark = _SendingMark(send, Path(self._temporary.name, MARK))


class _SendingMark(Mark):
    """Sends what is being timed."""

    def __init__(self, send: Callable[[str, object], None], path: Path) -> None:
        self._send, self.path = send, path

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        self._send("timing", text)
        yield
        self._send("timing", "")


if __name__ == "__main__":
    _main()
