"""A set of worker processes, one a rank: starts them, sends them calls, watches and ends them.

Each worker has a Unix socket of its own to this process: calls and results, and while a call runs
a sign of life five times a second that says how far the rank is and what it waits for. So a rank
that dies or hangs is known by name, whatever state MPI is in. A worker whose socket closes ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.execution import Call, RankResult, read_result
from tuccl.runtime.executors.mpi_launch import Launch

_END_S = 5.0
_LOOK_S = 0.1
_LEAST_SILENCE_S = 5.0  # 25 signs of life that were missed: a busy machine delays some
_SETTLE_S = 1.0  # after a death, for what the others still say
_MOST_NAMED = 4


@dataclass
class _Worker:
    """One rank's line: what came in, and the last that is known of it."""

    line: socket.socket
    pid: int
    rank: int = -1
    received: bytearray = field(default_factory=bytearray)
    progress: int = -1
    last_step: str = ""
    location: str = ""
    heard: float = 0.0
    answer: tuple[str, str] | None = None
    gone: bool = False

    def frames(self) -> Iterator[tuple[str, str]]:
        """Yield the whole frames received: a letter and a text."""
        while len(self.received) >= 4:
            (length,) = struct.unpack_from("<I", self.received)
            if len(self.received) < 4 + length:
                return
            frame = bytes(self.received[4 : 4 + length]).decode(errors="replace")
            del self.received[: 4 + length]
            yield frame[:1], frame[1:]

    @property
    def name(self) -> str:
        return f"rank {self.rank} (process {self.pid})"

    @property
    def trace(self) -> str:
        """Its last step, for messages."""
        return f", last seen after {self.last_step}" if self.last_step else ""

    @property
    def waits_for(self) -> str:
        """The rank's words for what it waits for; empty where it waits for nothing."""
        if self.answer is None:
            return self.location
        return self.answer[1] if self.answer[0] == "F" else ""

    def send(self, kind: str, text: str = "", within_s: float = _LEAST_SILENCE_S) -> None:
        """Send it a frame; raises OSError where it is gone, TimeoutError where it is stopped."""
        frame = (kind + text).encode()
        self.line.settimeout(within_s)  # a stopped rank takes in what the socket holds, no more
        self.line.sendall(struct.pack("<I", len(frame)) + frame)
        self.line.setblocking(False)


class Workers:
    """A running set of ``ranks`` workers; ends with ``close``, with this object, or with us."""

    def __init__(
        self, launch: Launch, worker: Sequence[str], ranks: int, start_s: float = 60.0
    ) -> None:
        """Start the workers and wait until all have joined.

        Raises:
            Unavailable: they did not start; says what the launcher said.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="tuccl-"))
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self.library = ""
        path = self._folder / "control"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(ranks)
        command = launch.command(ranks, [*worker, str(path)])
        try:
            with (self._folder / "said").open("wb") as said:
                # A group of its own: a terminal's interrupt reaches us alone, and we end them.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
        except OSError as error:
            self._listener.close()
            self._selector.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise Unavailable(f"{command[0]} cannot be started: {error}") from None
        self._process = process
        self._end = weakref.finalize(self, _end, process, self._workers, self._folder)
        try:
            self._join(ranks, time.monotonic() + start_s)
        except BaseException:
            self.close()
            raise

    def run(
        self, call: Call, timeout_s: float = 30.0, limit_s: float | None = None
    ) -> list[RankResult]:
        """Return each rank's result of ``call``; as `ask`."""
        return [read_result(text) for text in self.ask(call.text, timeout_s, limit_s)]

    def ask(self, text: str, timeout_s: float = 30.0, limit_s: float | None = None) -> list[str]:
        """Return each rank's answer to the call ``text``.

        Args:
            text: What to run.
            timeout_s: Longest time in which no rank gets on; half of it without a sign of life is a
                rank's end.
            limit_s: Longest time in all; None for none.

        Raises:
            InputError: the ranks cannot run the call; they stay ready for others.
            Stuck: a rank died, does not answer, or all wait for each other. The set has ended.
        """
        if not self.alive:
            raise Stuck("the workers have ended")
        try:
            now = time.monotonic()
            for worker in self._workers:
                worker.answer, worker.progress = None, -1
                worker.heard = now
                worker.last_step = worker.location = ""
                self._call(worker, text)
            self._wait(timeout_s, limit_s)
        except BaseException:
            self.close()
            raise
        refusals = [why for kind, why in self._answers() if kind == "E"]
        if len(refusals) == len(self._workers):
            raise InputError(refusals[0])
        if refusals:
            self.close()
            raise Stuck(f"some ranks refused the call: {refusals[0]}")
        return [answer for _, answer in self._answers()]

    @property
    def alive(self) -> bool:
        """Return whether calls can be run."""
        return self._end.alive

    @property
    def pids(self) -> list[int]:
        """Return the workers' process ids, by rank."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End all workers; does nothing if they have ended."""
        self._selector.close()
        self._listener.close()
        self._end()

    def _call(self, worker: _Worker, text: str) -> None:
        try:
            worker.send("C", text)
        except TimeoutError:
            worker.gone = True
            raise Stuck(f"{worker.name} does not answer: it takes no call") from None
        except OSError as error:
            worker.gone = True
            raise Stuck(f"{worker.name} died before the call: {error}") from None

    def _answers(self) -> list[tuple[str, str]]:
        return [worker.answer for worker in self._workers if worker.answer is not None]

    def _join(self, ranks: int, deadline: float) -> None:
        """Take in the workers' lines until each has said which rank it is."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while sum(worker.rank >= 0 for worker in self._workers) < ranks:
            for key, _ in self._selector.select(_LOOK_S):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._greet(key.data, ranks)
            dead = self._process.poll() is not None or any(w.gone for w in self._workers)
            if dead or time.monotonic() > deadline:
                what = "ended before they joined" if dead else "did not join in time"
                raise Unavailable(f"the {ranks} workers {what}; {self._launcher_output()}")
        self._selector.unregister(self._listener)
        self._workers.sort(key=lambda worker: worker.rank)

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        line.setblocking(False)
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, _, _ = struct.unpack("3i", credentials)
        worker = _Worker(line, pid)
        self._workers.append(worker)
        self._selector.register(line, selectors.EVENT_READ, worker)

    def _greet(self, worker: _Worker, ranks: int) -> None:
        for kind, text in self._read(worker):
            if kind != "H":
                raise Unavailable(f"a worker could not start: {text[:200]}")
            rank, size, self.library = text.split(" ", 2)
            worker.rank = int(rank)
            if int(size) != ranks:
                raise Unavailable(
                    f"the workers found {size} ranks, not {ranks}: this launcher and the MPI that "
                    f"they were compiled for do not belong together"
                )

    def _read(self, worker: _Worker) -> list[tuple[str, str]]:
        """Return the frames that have come in; notes the end of the line."""
        try:
            data = worker.line.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            worker.gone = True
            self._selector.unregister(worker.line)
        worker.received += data
        return list(worker.frames())

    def _wait(self, timeout_s: float, limit_s: float | None) -> None:
        """Return when all ranks have answered; raise Stuck when they cannot."""
        begin = moved = time.monotonic()
        while any(worker.answer is None for worker in self._workers):
            if self._take_in():
                moved = time.monotonic()
            now = time.monotonic()
            failure = self._failure(now, max(timeout_s / 2, _LEAST_SILENCE_S))
            if failure is None and now - moved > timeout_s:
                failure = f"no rank got on for {now - moved:.0f} s"
            if failure is None and limit_s is not None and now - begin > limit_s:
                failure = f"not done after {limit_s:g} s"
            if failure is not None:
                raise Stuck(f"{failure}{self._locations()}")

    def _take_in(self, wait_s: float = _LOOK_S) -> bool:
        """Take in what the workers say for a moment; whether any of them got on."""
        moved = False
        for key, _ in self._selector.select(wait_s):
            worker = key.data
            for kind, text in self._read(worker):
                worker.heard = time.monotonic()
                if kind == "P":
                    progress, worker.last_step, worker.location = text.split("\n")
                    moved |= int(progress) != worker.progress
                    worker.progress = int(progress)
                else:
                    worker.answer = (kind, text)
                    moved = True
        return moved

    def _failure(self, now: float, silence_s: float) -> str | None:
        """Return which rank has died, broken off or fallen silent, if one has."""
        if gone := [w for w in self._workers if w.gone and w.answer is None]:
            self._take_in(0)  # an end that lay behind words not yet read
            gone = [w for w in self._workers if w.gone and w.answer is None]
            self._settle()
            return self._deaths(gone)
        broken = next(
            (w for w in self._workers if w.answer is not None and w.answer[0] == "F"), None
        )
        if broken is not None:
            self._settle()
            return f"rank {broken.rank} broke off"
        for worker in self._workers:
            if worker.answer is None and now - worker.heard > silence_s:
                return f"{worker.name} does not answer{worker.trace}"
        return None

    def _deaths(self, gone: Sequence[_Worker]) -> str:
        """Return who died, the first to fall silent in front: MPI ends ranks for others' deaths."""
        ordered = sorted(gone, key=lambda w: w.heard)
        named = "; ".join(f"{w.name} died{w.trace}" for w in ordered[:_MOST_NAMED])
        more = len(gone) - _MOST_NAMED
        return f"{named}; and {more} ranks more" if more > 0 else named

    def _settle(self) -> None:
        """After a loss, wait until the others have said what they miss."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until and not all(w.gone or w.waits_for for w in self._workers):
            self._take_in()

    def _locations(self) -> str:
        """Return where the ranks were last seen, those that wait or broke off."""
        waiting = [w for w in self._workers if w.waits_for]
        locations = [f"; rank {w.rank} {w.waits_for}" for w in waiting[:_MOST_NAMED]]
        more = len(waiting) - len(locations)
        return "".join(locations) + (f"; and {more} ranks more" if more else "")

    def _launcher_output(self) -> str:
        text = (self._folder / "said").read_text(errors="replace")
        lines = [line.strip(" -=|*") for line in text.splitlines()]
        output = " ".join(line for line in lines if line)
        return f"the launcher said: {output[:400]}" if output else "the launcher said nothing"


def _end(process: subprocess.Popen[bytes], workers: list[_Worker], folder: Path) -> None:
    """End the launcher and its workers: by a word, by their group, then by their ids."""
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.send("Q", within_s=_LOOK_S)
    idle = all(worker.answer is not None or worker.progress < 0 for worker in workers)
    try:
        process.wait(_END_S if idle and not any(w.gone for w in workers) else 0)
    except subprocess.TimeoutExpired:
        _kill(process, workers, str(folder))
    for worker in workers:
        worker.line.close()
    shutil.rmtree(folder, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes], workers: list[_Worker], mark: str) -> None:
    """Kill the workers by their ids; the launcher ends for want of them, or is killed too."""
    for worker in workers:
        worker.line.close()  # a worker without its line ends, also one on another machine
        if _is_ours(worker.pid, mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(worker.pid, signal.SIGKILL)
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S / 4)
            return


def _is_ours(pid: int, mark: str) -> bool:
    """Return whether process ``pid`` is still the worker and not another with its number."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
