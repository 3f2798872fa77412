"""A plan as the native floor reads it: ids resolved, sizes in elements, all in 32-bit numbers.

The order of the numbers is that of ``msccl_ext/src/mscclpp/device_plan.cpp``.
"""

from __future__ import annotations

from array import array
from collections import defaultdict

from tuccl._native import DevicePlan
from tuccl.mscclpp.checks import COLLECTIVES
from tuccl.mscclpp.plan import BufferRef, ExecutionPlan, Gpu, Operation, ThreadBlock
from tuccl.mscclpp.shapes import SHAPES
from tuccl.mscclpp.sizes import owners, packet_refs, whole_chunks

__all__ = ["device_plan"]

_SYNC, _BARRIER, _MOVE, _POST, _TAKE, _FLUSH, _PIPELINE = range(7)
_BUFFERS = "ios"
_MULTICAST = ("glres", "gstore", "gstorepkt")


def device_plan(plan: ExecutionPlan, root: int, units: dict[int, int]) -> DevicePlan:
    """Return the checked ``plan`` for the proof; ``units`` gives each unit_size in elements."""
    return _Numbers(plan, root, units).encode()


class _Numbers:
    def __init__(self, plan: ExecutionPlan, root: int, units: dict[int, int]) -> None:
        self._plan, self._root, self._units = plan, root, units
        self._counters: dict[tuple[object, ...], int] = {}
        self._initial: list[int] = []
        self._barriers: dict[tuple[int, int], int] = {}
        self._meeting: list[int] = []
        self._proxies: dict[tuple[int, int], int] = {}
        # Channel k of a rank by type: its peer, and which one towards that peer it is.
        self._ends = {
            (gpu.id, kind): _ends(gpu.peers(kind)) for gpu in plan.gpus for kind in _CHANNELS
        }

    def encode(self) -> DevicePlan:
        plan = self._plan
        body: list[int] = []
        for gpu in plan.gpus:
            body += [gpu.scratch_chunks * (1 + plan.packets), len(gpu.threadblocks)]
            for block in gpu.threadblocks:
                count, numbers = self._block(gpu, block)
                body += [count, *numbers]
        head = [len(plan.gpus), whole_chunks(plan), int(plan.inplace)]
        head += [int(plan.use_double_scratch_buffer), self._root]
        for numbers in (self._initial, self._meeting):
            head += [len(numbers), *numbers]
        head.append(len(self._proxies))
        return DevicePlan(COLLECTIVES[plan.collective], array("i", head + body).tobytes())

    def _block(self, gpu: Gpu, block: ThreadBlock) -> tuple[int, list[int]]:
        """Return how many operations the block becomes, and their numbers."""
        count, number, out = 0, 0, []
        for op in block.ops:
            inner = [self._operation(gpu, block, o, number + 1 + i) for i, o in enumerate(op.ops)]
            inner_count = sum(c for c, _ in inner)
            if op.name == "pipeline" and op.iter_context:
                context = op.iter_context
                unit = self._units[context.unit_size]
                out += [_PIPELINE, number, unit, context.num_chunks, inner_count]
                count += 1
            else:
                made, numbers = self._operation(gpu, block, op, number)
                count += made
                out += numbers
            count += inner_count
            for _, numbers in inner:
                out += numbers
            number += 1 + len(op.ops)
        return count, out

    def _operation(
        self, gpu: Gpu, block: ThreadBlock, op: Operation, number: int
    ) -> tuple[int, list[int]]:
        name = op.name
        if SHAPES[name].moves:
            moves = self._moves(gpu, block, op)
            out = [_MOVE, number, len(moves), *(word for move in moves for word in move)]
            if name not in ("pws", "pwsf"):
                return 1, out
            signal = self._signals(_POST, gpu, block, op, number)
            if name == "pws":
                return 2, out + signal
            return 3, out + signal + self._flush(gpu, block, op, number)
        if name in ("signal", "rlxsignal"):
            return 1, self._signals(_POST, gpu, block, op, number)
        if name in ("wait", "rlxwait"):
            return 1, self._signals(_TAKE, gpu, block, op, number)
        if name == "flush":
            return 1, self._flush(gpu, block, op, number)
        if name in ("sem_acquire", "sem_release"):
            kind = _TAKE if name == "sem_acquire" else _POST
            return 1, [kind, number, 0, len(op.semaphore_ids), *self._semaphores(gpu, op)]
        if name == "barrier":
            key = (gpu.id, op.barrier_id)
            if key not in self._barriers:
                self._barriers[key] = len(self._meeting)
                self._meeting.append(op.num_threadblocks)
            return 1, [_BARRIER, number, self._barriers[key]]
        return 1, [_SYNC, number]

    def _semaphores(self, gpu: Gpu, op: Operation) -> list[int]:
        out: list[int] = []
        for i in op.semaphore_ids:
            out += [self._counter(("semaphore", gpu.id, i), gpu.semaphores[i].init_value), -1]
        return out

    def _signals(
        self, kind: int, gpu: Gpu, block: ThreadBlock, op: Operation, number: int
    ) -> list[int]:
        """Counters belong to the rank that waits: channel k from a rank pairs with k back."""
        channels = block.channel_ids(op.channel_type)
        port = op.channel_type == "port"
        out: list[int] = []
        for i in op.channel_ids:
            peer, ordinal = self._ends[gpu.id, op.channel_type][channels[i]]
            ends = (gpu.id, peer) if kind == _POST else (peer, gpu.id)
            proxy = self._proxy(gpu, channels[i]) if port and kind == _POST else -1
            out += [self._counter((op.channel_type, *ends, ordinal), 0), proxy]
        relaxed = op.name.startswith("rlx") and not port
        return [kind, number, int(relaxed), len(op.channel_ids), *out]

    def _flush(self, gpu: Gpu, block: ThreadBlock, op: Operation, number: int) -> list[int]:
        channels = block.channel_ids("port")
        proxies = [self._proxy(gpu, channels[i]) for i in op.channel_ids]
        return [_FLUSH, number, len(proxies), *proxies]

    def _counter(self, key: tuple[object, ...], initial: int) -> int:
        if key not in self._counters:
            self._counters[key] = len(self._initial)
            self._initial.append(initial)
        return self._counters[key]

    def _proxy(self, gpu: Gpu, channel: int) -> int:
        return self._proxies.setdefault((gpu.id, channel), len(self._proxies))

    def _moves(self, gpu: Gpu, block: ThreadBlock, op: Operation) -> list[list[int]]:
        """Return an operation's moves: a put of several is as many, all else one."""
        refs = list(packet_refs(op))
        sources, targets = refs[: len(op.src_buff)], refs[len(op.src_buff) :]
        group = op.tbg_info
        part = [group.tb_id, group.tbg_size] if group else [0, 1]
        channels = block.channel_ids("port")
        pairs = [(sources, targets)]
        if op.name in ("put", "pws", "pwsf", "ppkt"):
            pairs = [([s], [t]) for s, t in zip(sources, targets, strict=True)]
        elif op.name == "rppkt":
            pairs = [(sources, [t]) for t in targets]
        out = []
        for lane, (read, written) in enumerate(pairs):
            port = op.channel_type == "port" and len(op.channel_ids) == len(pairs)
            proxy = self._proxy(gpu, channels[op.channel_ids[lane]]) if port else -1
            ranges = [self._ranges(gpu, block, op, refs) for refs in (read, written)]
            counts = [len(each) // 4 for each in ranges]
            head = [read[0][0].size, *part, proxy, lane, int(op.name in _MULTICAST), *counts]
            # The reader has the number of parts before the part.
            head[1:3] = reversed(part)
            out.append([*head, *ranges[0], *ranges[1]])
        return out

    def _ranges(
        self, gpu: Gpu, block: ThreadBlock, op: Operation, refs: list[tuple[BufferRef, bool]]
    ) -> list[int]:
        out: list[int] = []
        for ref, packets in refs:
            for rank, buffer in owners(gpu, block, op, ref):
                out += [rank, _BUFFERS.index(buffer), ref.index, int(packets)]
        return out


_CHANNELS = ("memory", "port")


def _ends(peers: list[int]) -> list[tuple[int, int]]:
    """Return each channel's peer, and how many towards that peer come before it."""
    seen: dict[int, int] = defaultdict(int)
    out = []
    for peer in peers:
        out.append((peer, seen[peer]))
        seen[peer] += 1
    return out
