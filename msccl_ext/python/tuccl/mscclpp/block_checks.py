"""Faults that a thread block shows by itself: its lists, and the shapes of its operations."""

from __future__ import annotations

from tuccl.mscclpp.findings import Findings
from tuccl.mscclpp.plan import BufferRef, ExecutionPlan, Gpu, Operation, ThreadBlock
from tuccl.mscclpp.shapes import SHAPES, Shape

__all__ = ["check_block"]

# What the executor's arrays hold (src/core/include/execution_common.hpp).
OPERATIONS = 64
BLOCK_CHANNELS = 16
CHANNELS = 8
BUFFERS = 10
BARRIERS = 16
SEMAPHORES = 16


def check_block(plan: ExecutionPlan, gpu: Gpu, block: ThreadBlock, findings: Findings) -> None:
    """Hold a block of a GPU whose connections are sound against what the executor takes."""
    _Block(plan, gpu, block, findings).check()


class _Block:
    """The checks of one thread block."""

    def __init__(
        self, plan: ExecutionPlan, gpu: Gpu, block: ThreadBlock, findings: Findings
    ) -> None:
        self._plan, self._gpu, self._block, self._findings = plan, gpu, block, findings
        self._channels = {t: block.channel_ids(t) for t in ("memory", "port", "switch", "none")}
        self._buffers = {
            t: block.remote_buffer_ids(t) for t in ("memory", "port", "switch", "none")
        }
        self._switches = gpu.switches()

    def check(self) -> None:
        """Hold its lists and its operations against the executor's."""
        if not self._check_lists():
            return
        count = sum(1 + len(op.ops) for op in self._block.ops)
        if count > OPERATIONS:
            self._error(
                "limit", f"{count} operations with those of pipelines; at most {OPERATIONS}: split"
            )
        number = 0
        for op in self._block.ops:
            self._check_operation(op, number, inner=False)
            for place, each in enumerate(op.ops, number + 1):
                self._check_operation(each, place, inner=True)
            number += 1 + len(op.ops)

    def _error(self, code: str, text: str, op: int = -1) -> None:
        self._findings.add(code, text, self._gpu.id, self._block.id, op)

    def _check_lists(self) -> bool:
        sound = True
        available = {t: len(self._gpu.peers(t)) for t in ("memory", "port")}
        available |= {"switch": len(self._switches), "none": 0}
        for kind, ids in self._channels.items():
            if len(ids) > BLOCK_CHANNELS or any(i >= available[kind] for i in ids):
                self._error("limit", f"{kind} channels {ids[:20]}, the GPU has {available[kind]}")
                sound = False
        for kind, ids in self._buffers.items():
            remote = self._gpu.remote_buffers
            if len(ids) > BLOCK_CHANNELS or any(
                i >= len(remote) or kind not in remote[i].access_channel_types for i in ids
            ):
                self._error("limit", f"remote buffers {ids[:20]} through {kind} channels")
                sound = False
        return sound

    def _check_operation(self, op: Operation, number: int, inner: bool) -> None:
        shape = SHAPES.get(op.name)
        if shape is None:
            self._error("get", "get swaps the offsets of source and target: use put", number)
            return
        before = self._findings.count
        self._check_fields(op, number, inner)
        if max(len(op.src_buff), len(op.dst_buff)) > BUFFERS or len(op.channel_ids) > CHANNELS:
            self._error(
                "limit",
                f"{op.name} of {len(op.src_buff)} sources, {len(op.dst_buff)} targets and "
                f"{len(op.channel_ids)} channels; at most {BUFFERS}, {BUFFERS} and {CHANNELS}",
                number,
            )
        letters = [self._letter(op, ref, number) for ref in (*op.src_buff, *op.dst_buff)]
        if self._findings.count > before:
            return
        sources = "".join(letters[: len(op.src_buff)])
        targets = "".join(letters[len(op.src_buff) :])
        self._check_shape(op, shape, sources, targets, number)
        self._check_channels(op, shape, number)
        self._check_traps(op, shape, sources, targets, number)

    def _check_fields(self, op: Operation, number: int, inner: bool) -> None:
        """The loader keeps fields of several operations in one place: others' must not be there."""
        present = {
            "barrier_id": op.barrier_id >= 0 or op.num_threadblocks > 0,
            "semaphore_ids": bool(op.semaphore_ids),
            "iter_context": bool(op.iter_context) or bool(op.ops),
        }
        owners = {
            "barrier_id": ("barrier",),
            "semaphore_ids": ("sem_acquire", "sem_release"),
            "iter_context": ("pipeline",),
        }
        for field, there in present.items():
            if there != (op.name in owners[field]):
                self._error("field", f"{op.name} {'with' if there else 'without'} {field}", number)
        if inner and op.name == "pipeline":
            self._error("pipeline", "a pipeline in a pipeline", number)
        if op.name == "barrier" and not (0 <= op.barrier_id < BARRIERS and op.num_threadblocks):
            self._error(
                "limit",
                f"barrier {op.barrier_id} of {op.num_threadblocks} blocks: ids end at "
                f"{BARRIERS - 1}",
                number,
            )
        available = len(self._gpu.semaphores)
        if len(op.semaphore_ids) > SEMAPHORES or any(i >= available for i in op.semaphore_ids):
            self._error("limit", f"semaphores {op.semaphore_ids[:20]} of {available}", number)
        if len(op.semaphore_ids) > self._plan.num_threads_per_block:
            self._error("threads", f"{len(op.semaphore_ids)} semaphores need a thread each", number)

    def _letter(self, op: Operation, ref: BufferRef, number: int) -> str:
        """Return the buffer's letter of a shape; "?" with an error where it names none."""
        names = [bool(ref.type), ref.buffer_id >= 0, ref.switch_channel_id >= 0]
        if sum(names) == 1:
            if ref.type:
                return ref.type
            if names[1] and ref.buffer_id < len(self._buffers[op.channel_type]):
                number_there = self._buffers[op.channel_type][ref.buffer_id]
                return self._gpu.remote_buffers[number_there].type.upper()
            if names[2] and ref.switch_channel_id < len(self._channels["switch"]):
                return "W"
        self._error(
            "buffer",
            f"{op.name} through a {op.channel_type} channel names no buffer of its block: type "
            f"{ref.type!r}, buffer_id {ref.buffer_id}, switch_channel_id {ref.switch_channel_id}",
            number,
        )
        return "?"

    def _check_shape(
        self, op: Operation, shape: Shape, sources: str, targets: str, number: int
    ) -> None:
        if not shape.sources.fullmatch(sources) or not shape.targets.fullmatch(targets):
            self._error(
                "shape",
                f"{op.name} has the buffers {sources} > {targets}, not {shape.form}",
                number,
            )
            return
        sizes = [ref.size for ref in (*op.src_buff, *op.dst_buff)]
        if op.name in ("put", "pws", "pwsf", "ppkt"):
            pairs = list(zip(op.src_buff, op.dst_buff, strict=False))
            if len(sources) != len(targets) or any(a.size != b.size for a, b in pairs):
                self._error("size", f"{op.name} needs a source as large for each target", number)
        elif op.name != "flush" and len(set(sizes)) > 1:
            self._error("size", f"{op.name} has buffers of {sizes} chunks", number)
        if op.name != "flush" and not all(sizes):
            self._error("size", f"{op.name} of no chunk", number)
        group = op.tbg_info
        if group:
            if not shape.moves:
                self._error("field", f"{op.name} with tbg_info", number)
            elif not group.tb_id < group.tbg_size <= 1024:
                self._error("group", f"part {group.tb_id} of {group.tbg_size}", number)

    def _check_channels(self, op: Operation, shape: Shape, number: int) -> None:
        kinds = self._channels[op.channel_type]
        if shape.channels and op.channel_type not in shape.channels:
            self._error(
                "channel",
                f"{op.name} on a {op.channel_type} channel; it works on {shape.channels}",
                number,
            )
            return
        ids = op.channel_ids
        if any(i >= len(kinds) for i in ids):
            self._error("channel", f"{op.name} on channels {list(ids)} of {len(kinds)}", number)
            return
        if len(ids) > self._plan.num_threads_per_block:
            self._error("threads", f"{len(ids)} channels need a thread each", number)
        if shape.ids == "some" and not ids:
            self._error("channel", f"{op.name} on no channel", number)
        # A port channel belongs to a connection, so each target needs the one to its rank.
        by_target = shape.ids == "target" or (shape.channels and op.channel_type == "port")
        if by_target and shape.ids != "some":
            if len(ids) != len(op.dst_buff) or not ids:
                text = f"{op.name} of {len(op.dst_buff)} dst_buff on {len(ids)} channels"
                nothing = "; it does nothing without one for each" if op.name == "flush" else ""
                self._error("flush" if nothing else "channel", text + nothing, number)
            elif op.name != "flush":
                peers = self._gpu.peers("port")
                for i, ref in zip(ids, op.dst_buff, strict=True):
                    buffer = self._gpu.remote_buffers[self._buffers["port"][ref.buffer_id]]
                    if peers[kinds[i]] != buffer.rank:
                        self._error(
                            "channel",
                            f"{op.name} to gpu {buffer.rank} on a channel to {peers[kinds[i]]}",
                            number,
                        )

    def _check_traps(
        self, op: Operation, shape: Shape, sources: str, targets: str, number: int
    ) -> None:
        """Refuse what the handlers take and compute wrong (docs/howto/mscclpp.md)."""
        plan = self._plan
        if op.channel_type == "port" and not shape.packets and sources.strip("s"):
            self._error(
                "port-source",
                "a port put reads buffers i and o at the allocation's base, not at the tensor: "
                "copy to scratch first",
                number,
            )
        if shape.packets and not plan.packets:
            self._error("packets", f"{op.name} with Simple: scratch has no room for flags", number)
        if plan.use_double_scratch_buffer and not shape.packets and shape.moves:
            remote = "S" in sources + targets or op.channel_type == "port"
            switch = "W" in sources + targets and "s" in self._switch_buffers(op)
            if remote or switch:
                self._error(
                    "scratch",
                    f"{op.name} does not follow use_double_scratch_buffer to the second half",
                    number,
                )
        if op.name == "gstorepkt" and self._switch_buffers(op) != {"s"}:
            self._error("packets", "gstorepkt to another buffer than scratch", number)

    def _switch_buffers(self, op: Operation) -> set[str]:
        ids = self._channels["switch"]
        return {
            self._switches[ids[ref.switch_channel_id]][0]
            for ref in (*op.src_buff, *op.dst_buff)
            if ref.switch_channel_id >= 0
        }
