"""One rank of the peer Gloo: ``gloo_rank.py SOCKET``, started by a launcher that sets ranks.

It speaks the worker's language: calls come in by the Unix socket, results and signs
of life go out. It is a program of its own and imports nothing of ours.
"""

from __future__ import annotations

import datetime
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist

_HEARTBEAT_S = 0.2
_LIMIT_S = 300
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_TYPES = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "bfloat16": torch.bfloat16,
}
_COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "broadcast", "alltoall")
_OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


class Control:
    """The line to our caller: frames of four bytes of length, a letter, text."""

    def __init__(self, path: str) -> None:
        """Connect, and give signs of life from now on."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._sending = threading.Lock()
        self.progress = 0
        self.busy = False
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, kind: str, text: str) -> None:
        """Send a frame."""
        frame = (kind + text).encode()
        with self._sending:
            self._socket.sendall(struct.pack("<I", len(frame)) + frame)

    def next_call(self) -> str | None:
        """Return the next call's text, None at the end."""
        head = self._read(4)
        frame = self._read(struct.unpack("<I", head)[0]).decode() if head else ""
        return frame[1:] if frame[:1] == "C" else None

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data

    def _beat(self) -> None:
        while True:
            time.sleep(_HEARTBEAT_S)
            if self.busy:
                try:
                    self.send("P", f"{self.progress}\n\nis inside Gloo")
                except OSError:
                    os._exit(4)


class Round:
    """Buffers of one call, what they hold before and must hold after."""

    def __init__(self, fields: Mapping[str, str], rank: int, ranks: int) -> None:
        """Make the buffers that a call's ``fields`` need."""
        self.collective = fields["own-run"]
        self._rank, self._ranks, self._root = rank, ranks, int(fields["root"])
        self._type, self._op = _TYPES[fields["datatype"]], _OPS[fields["op"]]
        width = torch.empty(0, dtype=self._type).element_size()
        self._part = -(-int(fields["nbytes"]) // (width * ranks))
        self._input = self._given(rank)
        output = self._part if self.collective == "reduce-scatter" else self._part * ranks
        self._output = torch.zeros(output, dtype=self._type)

    def run(self) -> None:
        """Do the collective once."""
        match self.collective:
            case "allreduce":
                dist.all_reduce(self._output, self._op)
            case "allgather":
                dist.all_gather_into_tensor(self._output, self._input)
            case "reduce-scatter":
                dist.reduce_scatter_tensor(self._output, self._input, self._op)
            case "alltoall":
                dist.all_to_all_single(self._output, self._input)
            case _:
                dist.broadcast(self._output, self._root)

    def fill(self) -> None:
        """Set the buffers to what a checked run starts from; what it does in place, too."""
        self._output.fill_(1)
        if self.collective == "allreduce" or self._sends_in_place:
            self._output.copy_(self._input)

    def wrong(self) -> int:
        """Return how many elements of the output are not what they must be."""
        return int((self._output != self._wanted()).sum())

    @property
    def _sends_in_place(self) -> bool:
        return self.collective == "broadcast" and self._rank == self._root

    def _given(self, rank: int) -> torch.Tensor:
        """Return the input of ``rank``: small integers, of which no sum is rounded."""
        share = self._part if self.collective == "allgather" else self._part * self._ranks
        at = torch.arange(share, dtype=torch.int64)
        return ((at * 7 + at // 5 + rank * 3) % 11).to(self._type)

    def _wanted(self) -> torch.Tensor:
        ranks = range(self._ranks)
        share = slice(self._rank * self._part, (self._rank + 1) * self._part)
        match self.collective:
            case "allgather":
                return torch.cat([self._given(rank) for rank in ranks])
            case "alltoall":
                return torch.cat([self._given(rank)[share] for rank in ranks])
            case "broadcast":
                return self._given(self._root)
            case "allreduce":
                return self._reduced(slice(None))
            case _:
                return self._reduced(share)

    def _reduced(self, part: slice) -> torch.Tensor:
        combine = {
            dist.ReduceOp.SUM: torch.add,
            dist.ReduceOp.PRODUCT: torch.mul,
            dist.ReduceOp.MIN: torch.minimum,
            dist.ReduceOp.MAX: torch.maximum,
        }[self._op]
        total = self._given(0)[part]
        for rank in range(1, self._ranks):
            total = combine(total, self._given(rank)[part])
        return total


def answer(text: str, rank: int, ranks: int, moved: Callable[[], None]) -> str:
    """Return a rank's result of the call ``text``, as the worker writes it."""
    fields = dict(line.split(" ", 1) for line in text.splitlines())
    if "own-algorithms" in fields:
        return "auto" if fields["own-algorithms"] in _COLLECTIVES else ""
    call_round = Round(fields, rank, ranks)
    wrong = 0
    for _ in range(int(fields["checked"])):
        call_round.fill()
        dist.barrier()
        call_round.run()
        wrong += call_round.wrong()
        moved()
    call_round.fill()
    times = []
    for turn in range(int(fields["warmup"]) + int(fields["timed"])):
        start_together(int(fields["pause_us"]) * 1e-6)
        begin = time.perf_counter()
        call_round.run()
        if turn >= int(fields["warmup"]):
            times.append((time.perf_counter() - begin) * 1e6)
        moved()
    dist.barrier()
    times_text = "".join(f"{us:.3f} " for us in times)
    first = "elements differ from what Gloo was given" if wrong else ""
    return f"wrong {wrong}\nsent 0\ntimes {times_text}\nfirst {first}\n"


def start_together(pause_s: float) -> None:
    """Return on all ranks at once, after all rested for ``pause_s``."""
    dist.barrier()
    if pause_s:
        time.sleep(pause_s)
        dist.barrier()


def serve(path: str) -> None:
    """Join the others, then answer calls until the line closes."""
    rank, ranks = (
        int(next(os.environ[n] for n in names if n in os.environ)) for names in (_RANK, _RANKS)
    )
    torch.set_num_threads(1)
    control = Control(path)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{Path(path).with_name('gloo')}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=_LIMIT_S),
    )
    control.send("H", f"{rank} {ranks} Gloo of PyTorch {torch.__version__}")

    def moved() -> None:
        control.progress += 1

    while (call := control.next_call()) is not None:
        control.busy = True
        try:
            result = ("R", answer(call, rank, ranks, moved))
        except (KeyError, RuntimeError, ValueError) as error:
            result = ("E", f"Gloo: {' '.join(str(error).split())[:200]}")
        control.busy = False
        control.send(*result)
    os._exit(0)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    serve(sys.argv[1])
