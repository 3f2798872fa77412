"""Collectives of tensors on GPUs: by the communicator of tuccl/comm.h, on a stream of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tuccl.errors import TucclError, Unavailable
from tuccl.runtime import Communicator, communicator_id, load_table
from tuccl.runtime.executors.cuda import loaded_library
from tuccl.torch.agreement import vote
from tuccl.torch.calls import CollectiveCall

Tensors = Sequence[torch.Tensor]
_FUNCTIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
}
_REDUCING = ("allreduce", "reduce-scatter", "reduce")
_ROOTED = ("broadcast", "reduce")


class GpuCommunicator:
    """A rank's communicator, whose calls take tensors."""

    def __init__(self, table: str, unique_id: bytes, rank: int, size: int) -> None:
        """Join as ``rank`` of ``size`` on the present device; all ranks do so at the same time.

        Raises:
            Unavailable: there is no library.
            TucclError: the ranks cannot join, or not with this table.
        """
        self._rank, self._size = rank, size
        self._communicator = Communicator(unique_id, size, rank, table)
        self.close = self._communicator.close

    def run(self, call: CollectiveCall, stream: int) -> bool:
        """Start ``call`` behind what ``stream`` holds; False: the table has no program for it.

        Tensors with gaps, or lists that are not one after another, are copied.

        Raises:
            TucclError: a rank is gone, or the call cannot be.
        """
        key = call.key(self._rank, self._size)
        function = _FUNCTIONS.get(call.collective)
        if key is None or function is None or call.op is None:
            return False
        ready = call.with_usable_memory(key.in_place)
        given, made = _joined(ready.inputs), _joined(ready.outputs)
        options: dict[str, Any] = {"stream": stream}
        if call.collective in _REDUCING:
            options["op"] = call.op
        if call.collective in _ROOTED:
            options["root"] = call.root
        start = getattr(self._communicator, function)
        count = call.sample.numel()
        if not start(given.data_ptr(), made.data_ptr(), count, key.datatype, **options):
            return False
        _put_back(ready.outputs, made)
        for target, result in ready.back:
            target.copy_(result)
        return True


class GpuWork(dist.Work):  # type: ignore[misc]
    """A collective on a stream, which it is in order with: who waits makes a stream wait."""

    def __init__(self, results: Tensors, stream: torch.cuda.Stream) -> None:
        """Stand for what ``stream`` holds."""
        super().__init__()
        self._results = list(results)
        self._stream = stream
        self._end = stream.record_event()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Let the present stream wait for it; the host goes on."""
        torch.cuda.current_stream(self._stream.device).wait_event(self._end)
        return True

    def is_completed(self) -> bool:
        """Return whether the GPU is done with it."""
        return bool(self._end.query())

    def is_success(self) -> bool:
        """Return whether the GPU is done with it: what fails raises where it is started."""
        return self.is_completed()

    def synchronize(self) -> None:
        """Let the present stream wait for it."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that hold, or will hold, the result."""
        return self._results

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of the results, done in the stream's order."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(
            devices=[self._stream.device]
        )
        with torch.cuda.stream(self._stream):
            future.set_result(self._results)
        return future


class GpuCollectives:
    """The calls of a group on GPUs: by its communicator, made at the first, else by NCCL."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, tables: Sequence[str | Path], note: str = ""
    ) -> None:
        """Serve rank ``rank`` of ``size``; rank 0 chooses of ``tables``, and ``note`` says more."""
        self._store = store
        self._rank, self._size = rank, size
        self._tables, self._note = tables, note
        self._communicator: GpuCommunicator | None = None
        self._joined = False
        self._nccl: dist.ProcessGroup | None = None
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self.refusal = ""  # why all goes to NCCL

    def start(self, call: CollectiveCall) -> GpuWork | None:
        """Start ``call`` by a program beside what the caller does next; None: there is none.

        It runs on a stream of the group's own behind what the present stream holds, as NCCL's
        calls do: so DDP's reduction overlaps with the backward pass.

        Raises:
            TucclError: a rank is gone, or the call cannot be.
        """
        with torch.cuda.device(call.sample.device):
            present = torch.cuda.current_stream()
            own = self._stream_on(call.sample.device)
            own.wait_stream(present)
            with torch.cuda.stream(own):
                started = self.run(call, own.cuda_stream)
            if not started:
                present.wait_stream(own)  # a graph that is captured must hold no loose end
                return None
            for tensor in (*call.inputs, *call.outputs):
                tensor.record_stream(own)
            return GpuWork(call.outputs, own)

    def run(self, call: CollectiveCall, stream: int) -> bool:
        """Start ``call`` on ``stream`` by a program; False: there is none for it.

        Raises:
            TucclError: a rank is gone, or the call cannot be.
        """
        if not self._joined:
            self._joined = True
            self._communicator = self._join()
        return self._communicator is not None and self._communicator.run(call, stream)

    def other(self) -> dist.ProcessGroup:
        """Return the group that does what no program can: NCCL's.

        Raises:
            Unavailable: this PyTorch has none.
        """
        if self._nccl is None:
            if not dist.is_nccl_available():
                raise Unavailable(
                    "tensors on GPUs: the table has no program for this call, and this PyTorch has "
                    f"no NCCL to do it; {self.refusal or 'tune one'}"
                )
            store = dist.PrefixStore("nccl/", self._store)
            self._nccl = dist.ProcessGroupNCCL(store, self._rank, self._size)
        return self._nccl

    def close(self, *, at_once: bool = False) -> None:
        """End the communicator."""
        if self._communicator is not None:
            self._communicator.close(at_once=at_once)

    def _stream_on(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream()
        return self._streams[device]

    def _join(self) -> GpuCommunicator | None:
        """Return the communicator, or None on all ranks: one has no library, or none a table."""
        table, unique, message = "", b"", ""
        try:
            loaded_library()
            if self._rank == 0:
                table = self._table()
                unique = communicator_id()
        except TucclError as error:
            message = str(error)
        reason = vote(self._store, "gpus", self._rank, self._size, message or "ready", not message)
        if reason is not None:
            self.refusal = reason
            return None
        if self._rank == 0:
            self._store.set("communicator", os.fsencode(table) + b"\n" + unique)
        path, _, unique = self._store.get("communicator").partition(b"\n")
        return GpuCommunicator(os.fsdecode(path), unique, self._rank, self._size)

    def _table(self) -> str:
        for folder in map(Path, self._tables):
            if load_table(folder).lookup.ranks == self._size:
                return str(folder.resolve())
        why = self._note or "TUCCL_TABLE names tables"
        raise Unavailable(f"no table is for {self._size} ranks: {why}")


def _joined(pieces: Tensors) -> torch.Tensor:
    """Return memory that has the pieces one after another: their own, else a copy."""
    ends = [piece.data_ptr() + piece.nbytes for piece in pieces]
    follow = all(end == after.data_ptr() for end, after in zip(ends, pieces[1:], strict=False))
    if follow and all(piece.is_contiguous() for piece in pieces):
        return pieces[0]
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _put_back(pieces: Tensors, made: torch.Tensor) -> None:
    if made.data_ptr() == pieces[0].data_ptr():
        return
    for target, part in zip(pieces, made.split([p.numel() for p in pieces]), strict=True):
        target.copy_(part.view(target.shape))
