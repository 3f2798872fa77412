"""Parameter servers by Gloo's messages: parts are pushed, summed where they belong, pulled."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.model import ELEMENT_BYTES
from tuccl.training.ranks.calls import CallLog, call_name
from tuccl.training.timeline import Span

_ANSWERS = 2  # parts whose answers are under way at once
_PUSH, _PULL = 0, 1


class _Messages:
    """Parts between two processes, each with its tag.

    Where the order in which parts come is not known before, a message with its number goes ahead.
    """

    def __init__(self, schedule: BucketSchedule, group: Any) -> None:  # noqa: ANN401
        self.schedule, self._group = schedule, group
        self._announced = schedule.order == "priority"

    def send(self, way: int, number: int, tensor: torch.Tensor, peer: int) -> list[Any]:
        """Begin to send a part; return the works to wait for."""
        works = []
        if self._announced:
            ahead = torch.tensor([number])
            works.append(dist.isend(ahead, peer, self._group, tag=self._ahead(way)))
        return [*works, dist.isend(tensor, peer, self._group, tag=2 * number + way)]

    def received(
        self, way: int, parts: Sequence[int], place: Callable[[int], torch.Tensor], peer: int
    ) -> Iterator[int]:
        """Yield the numbers of a step's ``parts`` as each has come from ``peer`` to its place."""
        works = {n: dist.irecv(place(n), peer, self._group, tag=2 * n + way) for n in parts}
        for number in self._arrivals(way, parts, peer):
            works[number].wait()
            yield number

    def _arrivals(self, way: int, parts: Sequence[int], peer: int) -> Iterator[int]:
        """Yield a step's parts in the order in which ``peer`` sends them."""
        if not self._announced:
            yield from parts
            return
        ahead = [torch.zeros(1, dtype=torch.int64) for _ in parts]
        works = [dist.irecv(each, peer, self._group, tag=self._ahead(way)) for each in ahead]
        for work, number in zip(works, ahead, strict=True):
            work.wait()
            yield int(number)

    def _ahead(self, way: int) -> int:
        return 2 * len(self.schedule.buckets) + way


class _Threads:
    """Threads of a run; the first error of any is kept and reported."""

    def __init__(self, on_error: Callable[[], None]) -> None:
        self._threads: list[threading.Thread] = []
        self._on_error = on_error
        self.error: BaseException | None = None

    def start(self, target: Callable[..., None], *args: object) -> None:
        def guarded() -> None:
            try:
                target(*args)
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                self.error = self.error or error
                self._on_error()

        self._threads.append(threading.Thread(target=guarded, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error


class Server:
    """One server: it adds up what all workers push of its parts, and answers each with the sum.

    Sums are in the workers' order. Of parts that all have pushed it takes the one that was first
    complete, or by the schedule's ``server_order`` that of least priority. It moves nothing of its
    own, so its steps take no time.
    """

    def __init__(
        self,
        schedule: BucketSchedule,
        group: Any,  # noqa: ANN401
        rank: int,
        servers: Sequence[int],
        workers: Sequence[int],
    ) -> None:
        """Prepare the parts of rank ``rank``, one of ``servers``, for what ``workers`` push."""
        self._messages, self._workers, self._rank = _Messages(schedule, group), workers, rank
        self._schedule = schedule
        self._parts = [
            n for n, server in enumerate(servers_of(schedule, servers)) if server == rank
        ]
        self._places = {
            (n, worker): torch.zeros(schedule.buckets[n].nbytes // ELEMENT_BYTES)
            for n in self._parts
            for worker in workers
        }
        self._changed = threading.Condition()
        self.answer_here: Callable[[int, torch.Tensor], None] = lambda _, __: None

    def run(self, count: int) -> list[float]:
        """Serve ``count`` steps; return 0 us for each."""
        self.begin(count)
        self.end()
        return [0.0] * count

    def spans(self) -> list[Span]:
        """Return nothing: spans are of workers."""
        return []

    def begin(self, steps: int) -> None:
        """Begin to serve so many steps, by threads."""
        self._complete: list[tuple[float, int]] = []
        self._arrived = Counter[int]()
        self._order = itertools.count()
        self._threads = _Threads(self._tell)
        if not self._parts:
            return
        for worker in self._workers:
            if worker != self._rank:
                self._threads.start(self._receive, steps, worker)
        self._threads.start(self._serve, steps)

    def end(self) -> None:
        """Wait until all is served."""
        self._threads.join()

    @property
    def error(self) -> BaseException | None:
        """Why serving has failed, if it has."""
        return self._threads.error

    def push_here(self, number: int, tensor: torch.Tensor) -> None:
        """Take a part that the worker in this process pushes."""
        self._places[number, self._rank] = tensor
        self._arrive(number)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _receive(self, steps: int, worker: int) -> None:
        for _ in range(steps):
            numbers = self._messages.received(
                _PUSH, self._parts, lambda n: self._places[n, worker], worker
            )
            for number in numbers:
                self._arrive(number)

    def _arrive(self, number: int) -> None:
        with self._changed:
            self._arrived[number] += 1
            if self._arrived[number] == len(self._workers):
                self._arrived[number] = 0
                ordered = self._schedule.server_order
                key = self._schedule.buckets[number].priority if ordered else next(self._order)
                heapq.heappush(self._complete, (key, number))
                self._changed.notify_all()

    def _serve(self, steps: int) -> None:
        answers: deque[list[Any]] = deque()
        for _ in range(steps * len(self._parts)):
            with self._changed:
                self._changed.wait_for(lambda: self._complete or self.error)
                if self.error:
                    return
                _, number = heapq.heappop(self._complete)
            first, *others = (self._places[number, worker] for worker in self._workers)
            total = first.clone()
            for other in others:
                total += other
            works = []
            for worker in self._workers:
                if worker == self._rank:
                    self.answer_here(number, total)
                else:
                    works += self._messages.send(_PULL, number, total, worker)
            answers.append(works)
            while len(answers) == _ANSWERS:
                for work in answers.popleft():
                    work.wait()
        for work in itertools.chain(*answers):
            work.wait()


class ServerCalls:
    """The calls of a worker: each part goes to its server when it is ready, and comes back summed.

    A part's server may be this process too. By priority parts go while credit lasts, as
    ByteScheduler has it. A part has its credit until it is pushed: were it until it is pulled,
    workers that push in unlike orders would wait for each other.
    """

    def __init__(
        self,
        schedule: BucketSchedule,
        group: Any,  # noqa: ANN401
        rank: int,
        servers: Sequence[int],
        workers: Sequence[int],
    ) -> None:
        """Prepare the parts of the worker ``rank``; ``group`` has all servers and workers."""
        self._schedule, self._messages, self._rank = schedule, _Messages(schedule, group), rank
        self.buffers = [torch.zeros(bucket.nbytes // ELEMENT_BYTES) for bucket in schedule.buckets]
        self._server_of = servers_of(schedule, servers)
        self._server: Server | None = None
        if rank in servers:
            self._server = Server(schedule, group, rank, servers, workers)
            self._server.answer_here = self._answered_here
        self.log = CallLog()
        self._changed = threading.Condition()

    def begin(self, steps: int) -> None:
        """Begin a run of so many steps."""
        self.log.clear()
        self._waiting: list[tuple[int, int]] = []
        self._credit = float(self._schedule.credit_bytes or "inf")
        self._pulled = Counter[int]()
        self._sent: dict[int, float] = {}
        self._pushes: SimpleQueue[tuple[int, float, list[Any]] | None] = SimpleQueue()
        self._threads = _Threads(self._tell)
        self._threads.start(self._note_pushes)
        for server in set(self._server_of) - {self._rank}:
            self._threads.start(self._pull, steps, server)
        if self._server:
            self._server.begin(steps)

    def end(self) -> None:
        """End the run."""
        self._pushes.put(None)
        self._threads.join()
        if self._server:
            self._server.end()

    def ready(self, step: int, number: int) -> None:
        """Say that the buffer of part ``number`` is ready."""
        with self._changed:
            heapq.heappush(self._waiting, (self._schedule.buckets[number].priority, number))
            self._spend()

    def graded(self, step: int) -> None:
        """Say that all are."""

    def wait(self, step: int, numbers: Iterable[int]) -> None:
        """Wait until the parts ``numbers`` of ``step`` are summed."""
        wanted = list(numbers)

        def error() -> BaseException | None:
            return self._threads.error or (self._server.error if self._server else None)

        def here() -> bool:
            return all(self._pulled[number] > step for number in wanted)

        with self._changed:
            while not here() and not error():
                self._changed.wait(0.1)  # a server's failure in this process notifies nobody
        if (failed := error()) is not None:
            raise failed

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _spend(self) -> None:
        """Push what is ready, under the lock."""
        while self._waiting and self._credit > 0:
            _, number = heapq.heappop(self._waiting)
            posted, server = time.perf_counter(), self._server_of[number]
            if self._server and server == self._rank:
                self._server.push_here(number, self.buffers[number])
            else:
                self._credit -= self._schedule.buckets[number].nbytes
                works = self._messages.send(_PUSH, number, self.buffers[number], server)
                self._pushes.put((number, posted, works))

    def _note_pushes(self) -> None:
        while (push := self._pushes.get()) is not None:
            number, posted, works = push
            for work in works:
                work.wait()
            self._sent[number] = time.perf_counter()
            self.log.add("to servers", call_name("push", self._schedule.buckets[number]), posted)
            with self._changed:
                self._credit += self._schedule.buckets[number].nbytes
                self._spend()

    def _pull(self, steps: int, server: int) -> None:
        parts = [n for n, other in enumerate(self._server_of) if other == server]
        for _ in range(steps):
            for number in self._messages.received(_PULL, parts, self.buffers.__getitem__, server):
                name, now = call_name("pull", self._schedule.buckets[number]), time.perf_counter()
                self.log.add("from servers", name, min(self._sent.pop(number, now), now), now)
                self._answered(number)

    def _answered_here(self, number: int, total: torch.Tensor) -> None:
        self.buffers[number].copy_(total)
        self._answered(number)

    def _answered(self, number: int) -> None:
        with self._changed:
            self._pulled[number] += 1
            self._changed.notify_all()


def servers_of(schedule: BucketSchedule, servers: Sequence[int]) -> list[int]:
    """Return the server of each part: the one that has the fewest bytes of the parts before."""
    loads = [(0, place) for place in range(len(servers))]
    chosen = []
    for bucket in schedule.buckets:
        load, place = heapq.heappop(loads)
        heapq.heappush(loads, (load + bucket.nbytes, place))
        chosen.append(servers[place])
    return chosen
