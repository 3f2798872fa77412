"""Running a plan on the CPU: real data, what the handlers do, in random order."""

from __future__ import annotations

from array import array
from typing import get_args

from tuccl._native import RankResult
from tuccl._native import run_plan as run_native
from tuccl.errors import InputError
from tuccl.mscclpp.checks import COLLECTIVES
from tuccl.mscclpp.plan import BufferRef, ExecutionPlan, Gpu, Operation, OperationName, ThreadBlock

__all__ = ["run_plan"]

_NAMES = {name: number for number, name in enumerate(get_args(OperationName))}
_TYPES = {"memory": 0, "port": 1, "switch": 2, "none": 3}
_BUFFERS = {"i": 0, "o": 1, "s": 2, "": -1}
_MOST = 1 << 62


def run_plan(
    plan: ExecutionPlan, nbytes: int, *, root: int = 0, calls: int = 4, seed: int = 1
) -> RankResult:
    """Run ``calls`` calls of ``plan`` on ``nbytes`` of 32-bit integers and check every result.

    It follows the executor's handlers by the ids of the plan, without the proof's help. Operations
    between two nops, blocks, ranks and ports take turns at random, by ``seed``. The result counts
    the wrong elements of all ranks and calls.

    Raises:
        InputError: the collective is none of MSCCL++'s, the size is none that the plan takes or
            needs more than 4 GiB on all ranks, or an operation reaches beyond a buffer or a list.
        Stuck: all blocks wait.
    """
    if plan.collective not in COLLECTIVES:
        raise InputError(
            f"collective {plan.collective[:40]!r}: expected one of {', '.join(COLLECTIVES)}"
        )
    words = [int(plan.packets), int(plan.inplace), int(plan.use_double_scratch_buffer)]
    words += [plan.buffer_alignment, min(plan.max_message_size, _MOST), len(plan.gpus)]
    for gpu in plan.gpus:
        words += _gpu(gpu)
    collective = COLLECTIVES[plan.collective]
    return run_native(collective, array("q", words).tobytes(), nbytes, root, calls, seed)


def _list(values: object) -> list[int]:
    numbers = list(values)  # type: ignore[call-overload]
    return [len(numbers), *numbers]


def _gpu(gpu: Gpu) -> list[int]:
    out = [gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks]
    out += _list(gpu.peers("memory")) + _list(gpu.peers("port"))
    out.append(len(gpu.remote_buffers))
    for remote in gpu.remote_buffers:
        out += [remote.rank, _BUFFERS[remote.type]]
    switches = gpu.switches()
    out.append(len(switches))
    for buffer, group in switches:
        out += [_BUFFERS[buffer], *_list(group.ranks)]
    out += _list(semaphore.init_value for semaphore in gpu.semaphores)
    out.append(len(gpu.threadblocks))
    for block in gpu.threadblocks:
        out += _block(block)
    return out


def _block(block: ThreadBlock) -> list[int]:
    out: list[int] = []
    for kind in ("memory", "port", "switch"):
        out += _list(block.channel_ids(kind))
    for kind in ("memory", "port"):
        out += _list(block.remote_buffer_ids(kind))
    flat = [each for op in block.ops for each in (op, *op.ops)]
    out.append(len(flat))
    for op in flat:
        out += _operation(op)
    return out


def _operation(op: Operation) -> list[int]:
    out = [_NAMES[op.name], _TYPES[op.channel_type], *_list(op.channel_ids)]
    for refs in (op.src_buff, op.dst_buff):
        out.append(len(refs))
        for ref in refs:
            out += _ref(ref)
    group = op.tbg_info
    out += [group.tb_id, group.tbg_size] if group else [0, 1]
    out += [op.barrier_id, op.num_threadblocks, *_list(op.semaphore_ids)]
    context = op.iter_context
    out += [context.unit_size, context.num_chunks] if context else [0, 0]
    return [*out, len(op.ops)]


def _ref(ref: BufferRef) -> list[int]:
    return [_BUFFERS[ref.type], ref.buffer_id, ref.switch_channel_id, ref.index, ref.size]
