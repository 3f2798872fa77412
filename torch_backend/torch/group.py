"""The process group: each collective as a program of the table, else by Gloo or NCCL."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from tuccl.execution import BoundProgram, Group
from tuccl.torch.calls import CollectiveCall, op_name
from tuccl.torch.gpus import GpuCollectives
from tuccl.torch.programs import TablePrograms
from tuccl.torch.work import (
    AllWork,
    CollectiveQueue,
    EngineRequest,
    TucclWork,
    keep_in_children,
    settle_callbacks,
)
from tuccl.units import format_bytes

Tensors = Sequence[torch.Tensor]
ByGloo = Callable[[], dist.Work]


class _Limited(Protocol):
    """The options of any collective."""

    timeout: timedelta


class TucclGroup(dist.ProcessGroup):  # type: ignore[misc]
    """Ranks that run a table's programs; without ``programs`` all goes to Gloo.

    Send, receive and what is not named here go to Gloo as they are.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        limit: timedelta,
        gloo: dist.ProcessGroupGloo,
        programs: TablePrograms | None,
        native: Group | None,
        gpus: GpuCollectives | None = None,
    ) -> None:
        """Make rank ``rank`` of ``size``; a collective may take ``limit``."""
        super().__init__(rank, size)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._gloo = gloo
        self._programs = programs
        self._native = native
        self._gpus = gpus
        self._limit = limit
        self._queue = CollectiveQueue(native, f"rank {rank}")
        self._counts = {"program": 0, "gloo": 0}
        keep_in_children(self)
        self._report = weakref.finalize(self, _report_calls, size, self._counts, os.getpid())
        if rank != 0 or programs is None:
            self._report.detach()

    @property
    def counts(self) -> dict[str, int]:
        """Count the collectives run by a ``program``, by ``gloo``, and on GPUs by ``nccl``."""
        return dict(self._counts)

    def getBackendName(self) -> str:
        """Return "tuccl"."""
        return "tuccl"

    def name(self) -> str:
        """Return "tuccl"."""
        return "tuccl"

    def shutdown(self) -> None:
        """End the group: what is under way fails."""
        if self._programs is not None:
            self._programs.close()
        if self._native is not None:
            self._native.close("the group was shut down")
        if self._gpus is not None:
            self._gpus.close()
        settle_callbacks(self._gloo)
        self._gloo.shutdown()
        self._report()

    def abort(self) -> None:
        """End the group at once: what is under way fails."""
        if self._programs is not None:
            self._programs.close()
        if self._native is not None:
            self._native.close("the group was aborted")
        if self._gpus is not None:
            self._gpus.close(at_once=True)
        self._gloo.abort()
        settle_callbacks(self._gloo)
        self._report()

    def set_timeout(self, timeout: timedelta) -> None:
        """Let a collective take ``timeout`` from now on."""
        self._limit = timeout
        self._gloo._set_default_timeout(timeout)

    def allreduce(self, tensors: Tensors, opts: dist.AllreduceOptions | None = None) -> dist.Work:
        """Reduce ``tensors[0]`` over all ranks, on each of them."""
        opts = opts or dist.AllreduceOptions()
        call = CollectiveCall("allreduce", tensors[0], tensors, tensors, op_name(opts.reduceOp))
        return self._run(call, opts, lambda: self._beneath(tensors).allreduce(tensors, opts))

    def allreduce_coalesced(
        self, tensors: Tensors, opts: dist.AllreduceCoalescedOptions | None = None
    ) -> dist.Work:
        """Reduce each of ``tensors`` over all ranks."""
        plain = dist.AllreduceOptions()
        if opts is not None:
            plain.reduceOp, plain.timeout = opts.reduceOp, opts.timeout
        return _all("allreduce", [self.allreduce([t], plain) for t in tensors])

    def broadcast(self, tensors: Tensors, opts: dist.BroadcastOptions | None = None) -> dist.Work:
        """Copy the root's ``tensors[0]`` to all ranks."""
        opts = opts or dist.BroadcastOptions()
        call = CollectiveCall("broadcast", tensors[0], tensors, tensors, root=opts.rootRank)
        return self._run(call, opts, lambda: self._beneath(tensors).broadcast(tensors, opts))

    def reduce(self, tensors: Tensors, opts: dist.ReduceOptions | None = None) -> dist.Work:
        """Reduce ``tensors[0]`` over all ranks, on the root."""
        opts = opts or dist.ReduceOptions()
        call = CollectiveCall(
            "reduce", tensors[0], tensors, tensors, op_name(opts.reduceOp), root=opts.rootRank
        )
        return self._run(call, opts, lambda: self._beneath(tensors).reduce(tensors, opts))

    def allgather(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: dist.AllgatherOptions | None = None
    ) -> dist.Work:
        """Fill ``outputs[0]`` with every rank's ``inputs[0]``."""
        opts = opts or dist.AllgatherOptions()
        call = CollectiveCall("allgather", inputs[0], inputs, outputs[0])
        return self._run(call, opts, lambda: self._beneath(inputs).allgather(outputs, inputs, opts))

    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: dist.AllgatherOptions | None = None
    ) -> dist.Work:
        """Fill ``output`` with every rank's ``given``, one after another."""
        opts = opts or dist.AllgatherOptions()
        call = CollectiveCall("allgather", given, [given], self._shares(output))
        return self._run(
            call, opts, lambda: self._beneath([given])._allgather_base(output, given, opts)
        )

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: dist.AllgatherOptions | None = None
    ) -> dist.Work:
        """Do ``all_gather_single`` for each pair."""
        pairs = zip(outputs, inputs, strict=True)
        return _all("allgather", [self.all_gather_single(o, i, opts) for o, i in pairs])

    def reduce_scatter(
        self,
        outputs: Tensors,
        inputs: Sequence[Tensors],
        opts: dist.ReduceScatterOptions | None = None,
    ) -> dist.Work:
        """Reduce ``inputs[0][r]`` over all ranks into rank r's ``outputs[0]``."""
        opts = opts or dist.ReduceScatterOptions()
        call = CollectiveCall(
            "reduce-scatter", outputs[0], inputs[0], outputs[:1], op_name(opts.reduceOp)
        )
        return self._run(
            call, opts, lambda: self._beneath(outputs).reduce_scatter(outputs, inputs, opts)
        )

    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        opts: dist.ReduceScatterOptions | None = None,
    ) -> dist.Work:
        """Reduce ``given`` over all ranks, share r of it into rank r's ``output``."""
        opts = opts or dist.ReduceScatterOptions()
        op = op_name(opts.reduceOp)
        call = CollectiveCall("reduce-scatter", output, self._shares(given), [output], op)
        return self._run(
            call, opts, lambda: self._beneath([given])._reduce_scatter_base(output, given, opts)
        )

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: dist.ReduceScatterOptions | None = None
    ) -> dist.Work:
        """Do ``reduce_scatter_single`` for each pair."""
        pairs = zip(outputs, inputs, strict=True)
        return _all("reduce-scatter", [self.reduce_scatter_single(o, i, opts) for o, i in pairs])

    def alltoall(
        self, outputs: Tensors, inputs: Tensors, opts: dist.AllToAllOptions | None = None
    ) -> dist.Work:
        """Send ``inputs[r]`` to rank r, receive its part into ``outputs[r]``.

        Parts may differ in size, also on other ranks alone: so the ranks vote first where the table
        has a program for equal ones.
        """
        opts = opts or dist.AllToAllOptions()
        if _on_gpus(outputs):
            return self._by_nccl(lambda: self._beneath(outputs).alltoall(outputs, inputs, opts))
        if self._programs is None or not self._programs.has("alltoall"):
            uneven = _Concatenated(outputs, inputs)
            works = ("alltoall", outputs, [uneven.given, uneven.taken])
            return self._pass_on(*works, lambda: uneven.by(self._gloo, opts), uneven.put_back)
        return self._lists(CollectiveCall("alltoall", inputs[0], inputs, outputs), opts)

    def _lists(self, call: CollectiveCall, opts: dist.AllToAllOptions) -> dist.Work:
        """Vote on the size of a part, then run the program, or leave it to Gloo."""
        key = call.key(self.rank(), self.size())
        program = self._programs.ready(key) if self._programs else None
        each = call.sample.numel() if key else -1
        ballot = torch.tensor([each, -each])  # the most, and less the least
        most = dist.AllreduceOptions()
        most.reduceOp, most.timeout = dist.ReduceOp.MAX, opts.timeout
        after: list[Callable[[], None]] = []

        def finish() -> None:
            for put_back in after:
                put_back()

        work = TucclWork("alltoall", list(call.outputs), finish)
        work.keeps = [*call.inputs, *call.outputs]

        def decide() -> tuple[EngineRequest, None] | tuple[None, ByGloo]:
            high, low = int(ballot[0]), -int(ballot[1])
            if program is not None and high == low:
                self._counts["program"] += 1
                ready_call = call.with_usable_memory(program[1])
                work.keeps += [*ready_call.inputs, *ready_call.outputs]
                after.append(lambda: _put_back(ready_call))
                return self._request(program[0], ready_call, opts), None
            self._counts["gloo"] += 1
            uneven = _Concatenated(call.outputs, call.inputs)
            after.append(uneven.put_back)
            return None, lambda: uneven.by(self._gloo, opts)

        return self._queue.vote(work, lambda: self._gloo.allreduce([ballot], most), decide)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        opts: dist.AllToAllOptions | None = None,
    ) -> dist.Work:
        """Send share r of ``given`` to rank r: shares of a stated size by Gloo, others as tabled.

        Either every rank must state sizes or none.
        """
        opts = opts or dist.AllToAllOptions()
        splits = list(output_splits or []), list(input_splits or [])

        def by_gloo() -> dist.Work:
            return self._beneath([given]).alltoall_base(output, given, *splits, opts)

        if any(splits) and _on_gpus([given]):
            return self._by_nccl(by_gloo)
        if any(splits):
            return self._pass_on("alltoall", [output], [given], by_gloo)
        shares = self._shares(given)
        call = CollectiveCall("alltoall", shares[0], shares, self._shares(output))
        return self._run(call, opts, by_gloo)

    def gather(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: dist.GatherOptions | None = None
    ) -> dist.Work:
        """Fill the root's ``outputs[0]`` with every rank's ``inputs[0]``."""
        opts = opts or dist.GatherOptions()
        into = outputs[0] if outputs and self.rank() == opts.rootRank else []
        call = CollectiveCall("gather", inputs[0], inputs, into, root=opts.rootRank)
        return self._run(call, opts, lambda: self._beneath(inputs).gather(outputs, inputs, opts))

    def scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: dist.ScatterOptions | None = None
    ) -> dist.Work:
        """Copy the root's ``inputs[0][r]`` into rank r's ``outputs[0]``."""
        opts = opts or dist.ScatterOptions()
        given = inputs[0] if inputs and self.rank() == opts.rootRank else []
        call = CollectiveCall("scatter", outputs[0], given, outputs, root=opts.rootRank)
        return self._run(call, opts, lambda: self._beneath(outputs).scatter(outputs, inputs, opts))

    def barrier(self, opts: dist.BarrierOptions | None = None) -> dist.Work:
        """Wait for all ranks, and for this group's collectives so far."""
        opts = opts or dist.BarrierOptions()
        self._counts["gloo"] += 1
        work = TucclWork("barrier", [], None)
        return self._queue.pass_on(work, lambda: self._gloo.barrier(opts), alone=True)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait for all ranks; rank 0 says which did not come."""
        self._gloo.monitored_barrier(timeout or self._limit, wait_all_ranks)

    def send(self, tensors: Tensors, to: int, tag: int) -> dist.Work:
        """Send ``tensors[0]``, in no order with collectives."""
        return self._beneath(tensors).send(tensors, to, tag)

    def recv(self, tensors: Tensors, source: int, tag: int) -> dist.Work:
        """Receive into ``tensors[0]``, in no order with collectives."""
        return self._beneath(tensors).recv(tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> dist.Work:
        """Receive into ``tensors[0]`` from whoever sends first."""
        return self._beneath(tensors).recv_anysource(tensors, tag)

    # What these are called in PyTorch before 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _shares(self, whole: torch.Tensor) -> Tensors:
        """Return the ranks' parts of a tensor; where there are no equal ones, all of it."""
        if not whole.is_contiguous():
            raise ValueError("a tensor with gaps: expected a contiguous one")
        size = self.size()
        return whole.view(-1).chunk(size) if whole.numel() % size == 0 else [whole]

    def _run(self, call: CollectiveCall, opts: _Limited, by_gloo: ByGloo) -> dist.Work:
        if _on_gpus([call.sample]):
            return self._run_on_gpus(call, by_gloo)
        key = call.key(self.rank(), self.size()) if self._programs else None
        program = self._programs.ready(key) if self._programs else None
        if program is None or key is None:
            return self._pass_on(call.collective, call.outputs, call.inputs, by_gloo)
        self._counts["program"] += 1
        bound, in_place, timed = program
        ready_call = call.with_usable_memory(in_place)
        finish = (lambda: _put_back(ready_call)) if ready_call.back else None
        size = format_bytes(key.share_bytes)
        work = TucclWork(f"{call.collective} of {size}", list(call.outputs), finish)
        work.keeps = [*ready_call.inputs, *ready_call.outputs]
        return self._queue.run(work, self._request(bound, ready_call, opts, timed))

    def _run_on_gpus(self, call: CollectiveCall, by_nccl: ByGloo) -> dist.Work:
        """Start the call by a program or by NCCL."""
        work = self._gpus.start(call) if self._gpus is not None else None
        if work is None:
            return self._by_nccl(by_nccl)
        self._counts["program"] += 1
        return work

    def _by_nccl(self, call: ByGloo) -> dist.Work:
        work = call()
        self._counts["nccl"] = self._counts.get("nccl", 0) + 1
        return work

    def _beneath(self, tensors: Tensors) -> dist.ProcessGroup:
        """Return the group that does what no program can: Gloo's, or on GPUs NCCL's."""
        if self._gpus is not None and _on_gpus(tensors):
            return self._gpus.other()
        return self._gloo

    def _request(
        self, bound: BoundProgram, ready_call: CollectiveCall, opts: _Limited, timed: int = -1
    ) -> EngineRequest:
        limit = opts.timeout if opts.timeout > timedelta(0) else self._limit
        inputs, outputs = _pieces(ready_call.inputs), _pieces(ready_call.outputs)
        return bound, inputs, outputs, limit.total_seconds(), timed

    def _pass_on(
        self,
        what: str,
        results: Tensors,
        keeps: Tensors,
        by_gloo: ByGloo,
        finish: Callable[[], None] | None = None,
    ) -> dist.Work:
        self._counts["gloo"] += 1
        work = TucclWork(what, list(results), finish)
        work.keeps = list(keeps)
        return self._queue.pass_on(work, by_gloo)


class _Concatenated:
    """Lists of parts of any sizes, as Gloo takes them: one after another in two tensors."""

    def __init__(self, outputs: Tensors, inputs: Tensors) -> None:
        self._outputs = outputs
        self._splits = [[t.numel() for t in side] for side in (outputs, inputs)]
        self.given = torch.cat([t.reshape(-1) for t in inputs])
        self.taken = torch.empty(sum(self._splits[0]), dtype=self.given.dtype)

    def by(self, gloo: dist.ProcessGroupGloo, opts: dist.AllToAllOptions) -> dist.Work:
        return gloo.alltoall_base(self.taken, self.given, *self._splits, opts)

    def put_back(self) -> None:
        for target, made in zip(self._outputs, self.taken.split(self._splits[0]), strict=True):
            target.copy_(made.view(target.shape))


def _all(what: str, works: list[dist.Work]) -> dist.Work:
    return works[0] if len(works) == 1 else AllWork(what, works)


def _report_calls(ranks: int, counts: dict[str, int], process: int) -> None:
    """Say where a group's calls went, which ``tuccl doctor --log`` reads, as NCCL_DEBUG requests.

    Without it only a group none of whose calls ran by a program says so.
    """
    level = os.environ.get("NCCL_DEBUG", "").upper()
    idle = counts["program"] == 0 and any(counts.values())
    if process != os.getpid() or not (idle or level in ("INFO", "TRACE")):
        return
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    advice = "; no call ran by a program: tune the collectives and sizes that the job calls"
    print(f"tuccl: torch: {ranks} ranks: {each}{advice * idle}", file=sys.stderr, flush=True)


def _on_gpus(tensors: Tensors) -> bool:
    return bool(tensors) and tensors[0].device.type == "cuda"


def _pieces(tensors: Tensors) -> list[tuple[int, int]]:
    return [(t.data_ptr(), t.numel() * t.itemsize) for t in tensors]


def _put_back(call: CollectiveCall) -> None:
    for target, made in call.back:
        target.copy_(made)
