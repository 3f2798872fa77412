"""Work in progress as PyTorch sees it, and the order in which a group does its collectives."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from tuccl.execution import BoundProgram, Group, ProgressThread, Request

_BLINK_S = 0.5  # how often a waiting thread looks whether it was interrupted
_Piece = tuple[int, int]
# A program made ready, its input's and output's pieces, the longest that it may take in seconds,
# and the candidate that its time counts for, or -1.
EngineRequest = tuple[BoundProgram, list[_Piece], list[_Piece], float, int]


class TucclWork(dist.Work):  # type: ignore[misc]
    """One collective: under way, done or failed."""

    def __init__(
        self, name: str, results: list[torch.Tensor], finish: Callable[[], None] | None
    ) -> None:
        """Stand for the collective ``name``, after which ``finish`` puts ``results`` right."""
        super().__init__()
        self.name = name
        self._results = results
        self._finish = finish
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._end_future: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[Any] | None = None
        self.request: Request | None = None  # once the engine has it
        self.keeps: list[torch.Tensor] = []  # whose memory must stay until the end

    def end(self, error: Exception | None) -> None:
        """Take note that it has ended. Called once, by the thread that saw it."""
        if error is None and self._finish is not None:
            try:
                # Raw memory is put right, as Gloo does: no autograd, whatever modes the caller had.
                with torch.inference_mode():
                    self._finish()
            except Exception as failed:  # noqa: BLE001 - whoever waits gets it
                error = failed
        with self._lock:
            self._error = error
            self._ended.set()
            future = self._end_future
        if future is not None:
            # Callbacks may wait for other collectives: not on the thread that ends those. The
            # interpreter waits for theirs, whichever thread starts it.
            threading.Thread(
                target=future.set_result, args=(None,), name="tuccl callback", daemon=False
            ).start()

    def _outcome(self, _: torch.futures.Future[None]) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._results

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True once it is done, without a limit where ``timeout`` is 0.

        Raises:
            RuntimeError: it failed, or was not done in time; says on which rank, at which step.
        """
        seconds = timeout.total_seconds()
        deadline = time.monotonic() + seconds if seconds > 0 else float("inf")
        while not self._rest(min(_BLINK_S, max(deadline - time.monotonic(), 0.0))):
            if time.monotonic() >= deadline:
                raise dist.DistBackendError(f"{self.name}: not done after {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def _rest(self, seconds: float) -> bool:
        # The engine wakes this thread itself; what has to be put right comes after it.
        if self.request is not None and self._finish is None:
            if not self.request.wait(seconds):
                return False
            if not self.request.error:
                return True
        return self._ended.wait(seconds)

    def is_completed(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._rest(0.0)

    def is_success(self) -> bool:
        """Return whether it has ended well."""
        return self._rest(0.0) and self._error is None

    def exception(self) -> Exception | None:
        """Return why it failed, or None."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that hold, or will hold, the result."""
        return self._results

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the results."""
        with self._lock:
            if self._future is None:
                self._end_future = torch.futures.Future()
                # DDP's reducer, in C++, does not see an error that `set_exception` sets.
                self._future = self._end_future.then(self._outcome)
                if self._ended.is_set():
                    self._end_future.set_result(None)
            return self._future


class AllWork(TucclWork):
    """Several collectives as one."""

    def __init__(self, name: str, works: list[TucclWork]) -> None:
        """Stand for all of ``works``, of which the last ends last."""
        super().__init__(name, [t for work in works for t in work.result()], None)
        works[-1].get_future().add_done_callback(lambda _: self.end(works[-1].exception()))


class CollectiveQueue:
    """The collectives of one group, in order: by the engine or by Gloo, as each requires.

    The engine's stand in its own queue. Gloo's run beside these and beside each other, as Gloo
    does by itself, but what shares memory with an earlier one waits for its end.
    """

    def __init__(self, group: Group | None, where: str) -> None:
        """Run engine's orders on ``group``; ``where`` names the rank in messages."""
        self._group = group
        self._where = where
        self._lock = threading.RLock()
        self._waiting: deque[tuple[TucclWork, Callable[[], None], _Place]] = deque()
        self._under_way: dict[TucclWork, _Place] = {}

    def run(self, work: TucclWork, request: EngineRequest) -> TucclWork:
        """Let the engine do ``work`` when its turn comes."""
        return self._add(work, lambda: self._by_engine_now(work, request), by_engine=True)

    def pass_on(
        self, work: TucclWork, call: Callable[[], dist.Work], *, alone: bool = False
    ) -> TucclWork:
        """Let Gloo do ``work`` by ``call`` in its turn, with nothing beside where ``alone``."""
        return self._add(work, lambda: self._by_gloo_now(work, call), alone=alone)

    def vote(
        self,
        work: TucclWork,
        vote: Callable[[], dist.Work],
        decide: Callable[[], tuple[EngineRequest, None] | tuple[None, Callable[[], dist.Work]]],
    ) -> TucclWork:
        """Let Gloo hold a ``vote`` when the turn of ``work`` comes; then do what was decided.

        That is a request for the engine, or Gloo's call. Nothing else of the group is under way
        meanwhile.
        """

        def decided(future: torch.futures.Future[Any]) -> None:
            if (error := self._gloo(work, future)) is not None:
                return self._end(work, error)
            try:
                request, call = decide()
                if request is not None:
                    self._by_engine_now(work, request)
                elif call is not None:
                    self._by_gloo_now(work, call)
            except Exception as failed:  # noqa: BLE001 - a waiting caller must get it
                self._end(work, failed)

        return self._add(work, lambda: self._by_gloo_now(work, vote, decided), alone=True)

    def _by_engine_now(self, work: TucclWork, request: EngineRequest) -> None:
        assert self._group is not None
        name = f"{self._where}: {work.name}"
        bound, inputs, outputs, limit_s, timed = request

        def ended() -> None:
            self._end(work, _failure(work.request))

        work.request = progress_thread().submit(
            self._group, (bound, inputs, outputs, name, limit_s, timed), ended
        )

    def _by_gloo_now(
        self,
        work: TucclWork,
        call: Callable[[], dist.Work],
        then: Callable[[torch.futures.Future[Any]], None] | None = None,
    ) -> None:
        def ended(future: torch.futures.Future[Any]) -> None:
            self._end(work, self._gloo(work, future))

        _future(call()).add_done_callback(_Callback(then or ended))

    def _gloo(self, work: TucclWork, future: torch.futures.Future[Any]) -> Exception | None:
        try:
            future.value()
        except RuntimeError as error:
            failed: Exception = dist.DistBackendError(
                f"{self._where}: {work.name} by Gloo: {error}"
            )
            return failed
        return None

    def _add(
        self,
        work: TucclWork,
        start: Callable[[], None],
        *,
        by_engine: bool = False,
        alone: bool = False,
    ) -> TucclWork:
        memory = [_extent(tensor) for tensor in (*work.result(), *work.keeps)]
        with self._lock:
            self._waiting.append((work, start, _Place(by_engine, alone, memory)))
            self._start_next()
        return work

    def _start_next(self) -> None:
        """Start what may start, under the lock."""
        while self._waiting:
            work, start, place = self._waiting[0]
            if any(place.follows(other) for other in self._under_way.values()):
                return
            self._waiting.popleft()
            self._under_way[work] = place
            try:
                start()
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                self._end(work, error)

    def _end(self, work: TucclWork, error: Exception | None) -> None:
        work.end(error)
        with self._lock:
            del self._under_way[work]
            self._start_next()


@dataclass(frozen=True)
class _Place:
    """Attributes that decide whether a collective may be under way beside others."""

    by_engine: bool
    alone: bool
    memory: list[tuple[int, int]]

    def follows(self, other: _Place) -> bool:
        """Return whether it must wait for the end of ``other``."""
        if self.alone or other.alone:
            return True
        if self.by_engine and other.by_engine:
            return False
        return any(a < d and c < b for a, b in self.memory for c, d in other.memory)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses between which a tensor's elements lie."""
    begin, gaps = tensor.data_ptr(), zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((size - 1) * stride for size, stride in gaps) if tensor.numel() else 0
    return begin, begin + elements * tensor.itemsize


def _future(gloo: dist.Work) -> torch.futures.Future[Any]:
    """Gloo's future of a call; some of its calls (reduce-scatter to one tensor) only let wait."""
    try:
        future: torch.futures.Future[Any] = gloo.get_future()
    except RuntimeError:
        future = torch.futures.Future()

        def wait() -> None:
            try:
                gloo.wait()
                future.set_result(None)
            except RuntimeError as error:
                future.set_exception(error)

        threading.Thread(
            target=_Callback(lambda _: wait()), args=(None,), name="tuccl-gloo", daemon=True
        ).start()
    return future


def _failure(request: Request | None) -> Exception | None:
    if request is None or not request.error:
        return None
    failure: Exception = dist.DistBackendError(request.error)
    return failure


class _Callback:
    """A function for one of Gloo's threads to call once, which it has let go of when it is done.

    Neither may the last reference to Gloo's group end on a thread of that group, which would wait
    for itself, nor a thread come back to Python after the interpreter's end: so groups and the
    interpreter end once callbacks have. They do not wait for callbacks that take too long: then a
    group stays until the process ends.
    """

    _LIMIT_S = 2.0
    _alive: ClassVar[set[weakref.ref[_Callback]]] = set()
    _changed: ClassVar[threading.Condition] = threading.Condition(threading.RLock())

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._functions = [function]
        with self._changed:
            self._alive.add(weakref.ref(self, self._drop))

    def __call__(self, future: Any) -> None:  # noqa: ANN401 - what PyTorch hands over
        self._functions.pop()(future)

    @classmethod
    def _drop(cls, reference: weakref.ref[_Callback]) -> None:
        with cls._changed:
            cls._alive.discard(reference)
            cls._changed.notify_all()

    @classmethod
    def settle(cls, gloo: object | None = None) -> None:
        with cls._changed:
            settled = cls._changed.wait_for(lambda: not cls._alive, cls._LIMIT_S)
        if not settled and gloo is not None:
            _keep(gloo)


settle_callbacks = _Callback.settle
atexit.register(settle_callbacks)


class _Progress:
    """The native progress thread, and the thread that reports to Python what has ended."""

    def __init__(self) -> None:
        self.native = ProgressThread()
        self._lock = threading.Lock()
        self._ended: dict[int, Callable[[], None]] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="tuccl", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def submit(
        self,
        group: Group,
        request: tuple[BoundProgram, list[_Piece], list[_Piece], str, float, int],
        ended: Callable[[], None],
    ) -> Request:
        with self._lock:
            submitted = group.submit(*request)
            self._ended[submitted.number] = ended
        return submitted

    def _serve(self) -> None:
        while not self._stopped:
            for number in self.native.take_ended(60.0):
                with self._lock:
                    ended = self._ended.pop(number)
                try:
                    ended()
                except Exception:  # noqa: BLE001 - the thread serves all groups
                    sys.excepthook(*sys.exc_info())

    def _stop(self) -> None:
        # A thread that comes back from native code after the interpreter's end would end it badly.
        self._stopped = True
        self.native.release()
        self._thread.join()


_progress: _Progress | None = None


_threaded: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_in_children(group: object) -> None:
    """Let no forked child end ``group``: it has none of the threads that ending waits for."""
    _threaded.add(group)


def _in_child() -> None:
    atexit.unregister(settle_callbacks)
    if _progress is not None:
        atexit.unregister(_progress._stop)
    for held in (_progress, *_threaded):
        _keep(held)


def _keep(held: object) -> None:
    """Let ``held`` never end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


os.register_at_fork(after_in_child=_in_child)


def progress_thread() -> _Progress:
    """Return this process's progress thread, started on first use."""
    global _progress
    if _progress is None:
        _progress = _Progress()
    return _progress
