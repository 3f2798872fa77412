"""One rank of another library, whichever it is, started by a launcher.

It speaks the worker's language: calls come in by the Unix socket, results and signs of life go
out. Of ours it imports nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Collectives", "Control", "serve"]

_HEARTBEAT_S = 0.2
_ORPHANED = 4  # exit code
_COMBINE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}

Buffer = TypeVar("Buffer")


class Collectives(Protocol[Buffer]):
    """A library on this rank; a buffer is an array of its own kind."""

    name: str
    rank: int
    ranks: int

    @property
    def progress(self) -> int:
        """Number of runs so far; read while it runs."""

    def algorithms(self, collective: str) -> str:
        """Return what it can do a collective by, its own choice first; "" where it lacks it."""

    def choose(self, call: Mapping[str, str]) -> None:
        """Take a call's collective, algorithm, datatype, op and root for the runs to come."""

    def buffer(self, values: NDArray[np.int64]) -> Buffer:
        """Return a buffer of the chosen datatype that holds ``values``."""

    def run(self, given: Buffer, output: Buffer, pause_us: int, runs: int) -> list[float]:
        """Run ``runs`` times, all ranks at once after a rest of all, and return the times in us.

        What the library does in place is in ``output`` before.
        """

    def finish(self) -> None:
        """End the library."""


class Control:
    """The line to our caller: frames of four bytes of length, a letter, text."""

    def __init__(self, path: str) -> None:
        """Connect, and give signs of life from now on; only our caller ends us."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._sending = threading.Lock()
        self.inside: Collectives[Any] | None = None  # while it runs a call
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, kind: str, text: str) -> None:
        """Send a frame."""
        frame = (kind + text).encode()
        with self._sending:
            self._socket.sendall(struct.pack("<I", len(frame)) + frame)

    def next_call(self) -> str | None:
        """Return the next call's text, None at the end."""
        (length,) = struct.unpack("<I", self._read(4))
        frame = self._read(length).decode()
        return frame[1:] if frame[:1] == "C" else None

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                os._exit(_ORPHANED)
            data += more
        return data

    def _beat(self) -> None:
        while True:
            time.sleep(_HEARTBEAT_S)
            if (library := self.inside) is not None:
                try:
                    self.send("P", f"{library.progress}\n\nis inside {library.name}")
                except OSError:
                    os._exit(_ORPHANED)


class Round:
    """Buffers of one call, what they hold before and must hold after."""

    def __init__(self, call: Mapping[str, str], library: Collectives[Any]) -> None:
        """Make the buffers that a ``call`` needs."""
        self._library, self._collective, self._op = library, call["own-run"], call["op"]
        self._root, self._pause_us = int(call["root"]), int(call["pause_us"])
        library.choose(call)
        width = library.buffer(np.zeros(1, dtype=np.int64)).itemsize
        self._part = -(-int(call["nbytes"]) // (width * library.ranks))
        parts = 1 if self._collective == "reduce-scatter" else library.ranks
        self._input = library.buffer(self._given(library.rank))
        self._output = library.buffer(np.zeros(self._part * parts, dtype=np.int64))

    def run(self, runs: int = 1) -> list[float]:
        """Do the collective ``runs`` times; return the times in us."""
        return self._library.run(self._input, self._output, self._pause_us, runs)

    def fill(self) -> None:
        """Set the output to what a checked run starts from; what is done in place, too."""
        sends_in_place = self._collective == "broadcast" and self._library.rank == self._root
        self._output[:] = 1
        if self._collective == "allreduce" or sends_in_place:
            self._output[:] = self._input

    def wrong(self) -> int:
        """Return how many elements of the output and the input are not what they must be."""
        given = self._library.buffer(self._given(self._library.rank))
        wanted = self._library.buffer(self._wanted())
        return int((self._output != wanted).sum()) + int((self._input != given).sum())

    def _given(self, rank: int) -> NDArray[np.int64]:
        """Return the input of ``rank``: small integers, of which no sum is rounded."""
        share = self._part * (
            1 if self._collective in ("allgather", "gather") else self._library.ranks
        )
        at = np.arange(share, dtype=np.int64)
        values: NDArray[np.int64] = (at * 7 + at // 5 + rank * 3) % 11
        return values

    def _wanted(self) -> NDArray[np.int64]:
        every = [self._given(rank) for rank in range(self._library.ranks)]
        share = slice(self._library.rank * self._part, (self._library.rank + 1) * self._part)
        match self._collective:
            case "allgather":
                return np.concatenate(every)
            case "gather":
                whole = np.concatenate(every)
                return whole if self._library.rank == self._root else np.ones_like(whole)
            case "alltoall":
                return np.concatenate([given[share] for given in every])
            case "broadcast":
                return every[self._root]
            case "allreduce":
                return self._reduced(every)
            case _:
                return self._reduced([given[share] for given in every])

    def _reduced(self, parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        total: NDArray[np.int64] = _COMBINE[self._op].reduce(np.stack(parts))
        return total


def answer(call: Mapping[str, str], library: Collectives[Any]) -> str:
    """Return this rank's result of a call, as the worker writes it."""
    if "own-algorithms" in call:
        return library.algorithms(call["own-algorithms"])
    call_round = Round(call, library)
    wrong = 0
    for _ in range(int(call["checked"])):
        call_round.fill()
        call_round.run()
        wrong += call_round.wrong()
    call_round.fill()
    warmup = int(call["warmup"])
    times = call_round.run(warmup + int(call["timed"]))[warmup:]
    times_text = "".join(f"{us:.3f} " for us in times)
    first = f"elements differ from what {library.name} was given" if wrong else ""
    return f"wrong {wrong}\nsent 0\ntimes {times_text}\nfirst {first}\n"


def serve(control: Control, library: Collectives[Any], version: str) -> None:
    """Answer calls until the caller says that there are no more."""
    control.send("H", f"{library.rank} {library.ranks} {version}")
    while (text := control.next_call()) is not None:
        call = dict(line.split(" ", 1) for line in text.splitlines())
        control.inside = library
        try:
            result = ("R", answer(call, library))
        except (KeyError, RuntimeError, ValueError) as error:
            what = f"{call.get('own-run')} by {call.get('algorithm')}"
            result = ("E", f"{library.name}: {what}: {' '.join(str(error).split())[:200]}")
        control.inside = None
        control.send(*result)
    library.finish()
