"""Faults of a plan that its parts show by themselves: limits, ids, shapes of operations."""

from __future__ import annotations

from collections import defaultdict

from tuccl.mscclpp.block_checks import check_block
from tuccl.mscclpp.findings import Findings
from tuccl.mscclpp.plan import ExecutionPlan, Gpu

__all__ = ["COLLECTIVES", "check_parts"]

# By the loader's names: those that a call of the runtime reaches, and tuccl's names for them.
COLLECTIVES = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reduce-scatter",
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
# What the executor's arrays hold (src/core/include/execution_common.hpp) and its bit fields.
PORT_CHANNELS = 1024
INITIAL = 65535
BLOCKS = 304  # compute units of an MI300X: no GPU runs more at once
MEMORY_IDS = 512
THREADS = 1024
ALIGNMENT = 16  # bytes that a reduction's thread takes at once


def check_parts(plan: ExecutionPlan, findings: Findings) -> None:
    """Hold everything that needs no sizes and no order against what the executor takes."""
    _check_header(plan, findings)
    for rank, gpu in enumerate(plan.gpus):
        if gpu.id != rank:
            findings.add("gpus", f"id {gpu.id} stands at place {rank}: write them in order", gpu.id)
    if findings.count:
        return
    for gpu in plan.gpus:
        _check_connections(plan, gpu, findings)
    _check_switches(plan, findings)
    if findings.count:
        return
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            check_block(plan, gpu, block, findings)
        _check_barriers(gpu, findings)


def _check_header(plan: ExecutionPlan, findings: Findings) -> None:
    if plan.collective not in COLLECTIVES:
        findings.add(
            "collective",
            f"collective {plan.collective[:40]!r}: expected one of {', '.join(COLLECTIVES)}",
        )
    if plan.protocol not in ("Simple", "LL"):
        findings.add(
            "protocol",
            f"protocol {plan.protocol[:40]!r}: the loader takes it for Simple; write Simple or LL",
        )
    if not 1 <= plan.num_threads_per_block <= THREADS:
        findings.add(
            "threads", f"{plan.num_threads_per_block} threads a block, expected 1 to {THREADS}"
        )
    if plan.buffer_alignment < 1 or plan.buffer_alignment % ALIGNMENT:
        findings.add(
            "alignment",
            f"buffer_alignment {plan.buffer_alignment}: expected a multiple of {ALIGNMENT}",
        )
    if plan.use_double_scratch_buffer and not plan.packets:
        findings.add(
            "scratch",
            "use_double_scratch_buffer with Simple: only packets follow the second half, so every "
            "second call is wrong",
        )


def _check_connections(plan: ExecutionPlan, gpu: Gpu, findings: Findings) -> None:
    """Channels, remote buffers, semaphores and the order of blocks of one GPU."""
    ranks = range(len(plan.gpus))
    for channel in gpu.channels:
        peers = channel.connected_to
        switch = channel.channel_type == "switch"
        if channel.channel_type == "none" or switch == bool(peers):
            findings.add("channel", f"a {channel.channel_type} channel to {list(peers)}", gpu.id)
        if switch != bool(channel.buffer_type) or switch != bool(channel.rank_groups):
            findings.add("channel", "buffer_type and rank_groups belong to a switch", gpu.id)
        for peer in peers:
            if peer not in ranks or peer == gpu.id:
                findings.add("channel", f"connected to {peer}: expected another rank", gpu.id)
    for buffer in gpu.remote_buffers:
        types = buffer.access_channel_types
        if buffer.rank not in ranks or buffer.rank == gpu.id:
            findings.add("buffer", f"a remote buffer of {buffer.rank}: expected another", gpu.id)
        elif buffer.type == "s" and not plan.gpus[buffer.rank].scratch_chunks:
            findings.add("buffer", f"scratch of gpu {buffer.rank}, which has none", gpu.id)
        if not types or not set(types) <= {"memory", "port"} or len(set(types)) < len(types):
            findings.add("buffer", f"a remote buffer through {list(types)}", gpu.id)
        if plan.reuse_resources and buffer.type != "s":
            findings.add(
                "reuse",
                f"reuse_resources with the remote buffer {buffer.type}: the context is kept by "
                "name, later calls would use the first call's; only scratch may be remote",
                gpu.id,
            )
        if plan.inplace and (plan.collective, buffer.type) in _SHIFTED:
            findings.add("placement", _shifted(plan, buffer.type), gpu.id)
    made = sum(peers.count(gpu.id) for peers in (g.peers("port") for g in plan.gpus))
    if max(len(gpu.peers("port")), made) > PORT_CHANNELS:
        findings.add("limit", f"more than {PORT_CHANNELS} port channels", gpu.id)
    if 3 + sum("port" in b.access_channel_types for b in gpu.remote_buffers) > MEMORY_IDS:
        findings.add("limit", f"more than {MEMORY_IDS} memory ids", gpu.id)
    if any(not 0 <= semaphore.init_value <= INITIAL for semaphore in gpu.semaphores):
        findings.add("limit", f"a semaphore that begins beyond 0 to {INITIAL}", gpu.id)
    if len(gpu.threadblocks) > BLOCKS:
        findings.add("limit", f"{len(gpu.threadblocks)} blocks that wait for each other", gpu.id)
    ids = [block.id for block in gpu.threadblocks]
    if not ids or ids != list(range(len(ids))):
        findings.add(
            "threadblocks", f"ids {ids[:8]}: expected 0, 1, 2 ... in the order of the file", gpu.id
        )


# In place, a remote address is reckoned with this rank's offset, and that differs by rank here.
_SHIFTED = {("allgather", "i"), ("reducescatter", "o")}


def _shifted(plan: ExecutionPlan, buffer: str) -> str:
    other = "o" if buffer == "i" else "i"
    return (
        f"in place the remote buffer {buffer} of {plan.collective} is reached at this rank's own "
        f"offset; use the remote buffer {other}"
    )


def _check_switches(plan: ExecutionPlan, findings: Findings) -> None:
    """All ranks of a switch channel make it together: they must agree on which comes when."""
    lists = {gpu.id: gpu.switches() for gpu in plan.gpus}
    for rank, switches in lists.items():
        for buffer, group in switches:
            if rank not in group.ranks or len(set(group.ranks)) < max(2, len(group.ranks)):
                findings.add("switch", f"the group {list(group.ranks)[:16]}", rank)
                continue
            for other in group.ranks:
                if other not in lists:
                    findings.add("switch", f"rank {other} is in its group", rank)
                elif _shared(switches, rank, other) != _shared(lists[other], rank, other):
                    findings.add("switch", f"its groups differ from those of gpu {other}", rank)
            if buffer == "s" and not plan.gpus[rank].scratch_chunks:
                findings.add("switch", "on scratch, of which it has none", rank)
            if plan.reuse_resources and buffer != "s":
                findings.add("reuse", f"reuse_resources with a switch on buffer {buffer}", rank)
            if plan.inplace and (plan.collective, buffer) in _SHIFTED:
                findings.add("placement", _shifted(plan, buffer), rank)


def _shared(
    switches: list[tuple[str, object]], a: int, b: int
) -> list[tuple[str, tuple[int, ...]]]:
    groups = [(buffer, group.ranks) for buffer, group in switches]  # type: ignore[attr-defined]
    return [(buffer, ranks) for buffer, ranks in groups if a in ranks and b in ranks]


def _check_barriers(gpu: Gpu, findings: Findings) -> None:
    blocks: dict[int, set[int]] = defaultdict(set)
    counts: dict[int, set[int]] = defaultdict(set)
    for block in gpu.threadblocks:
        for outer in block.ops:
            for op in (outer, *outer.ops):
                if op.name == "barrier":
                    blocks[op.barrier_id].add(block.id)
                    counts[op.barrier_id].add(op.num_threadblocks)
    for barrier, members in blocks.items():
        if counts[barrier] != {len(members)}:
            findings.add(
                "barrier",
                f"barrier {barrier} is passed by {len(members)} thread blocks, num_threadblocks "
                f"is {', '.join(map(str, sorted(counts[barrier])))}",
                gpu.id,
            )
