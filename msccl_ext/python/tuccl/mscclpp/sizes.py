"""Faults of a plan that depend on its sizes: bounds, ranges of packets, pipelines, 32 bits."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tuccl.mscclpp.findings import Findings
from tuccl.mscclpp.plan import NO_LIMIT, BufferRef, ExecutionPlan, Gpu, Operation, ThreadBlock
from tuccl.mscclpp.shapes import SHAPES

__all__ = ["check_sizes", "owners", "packet_refs", "size_step", "whole_chunks"]

ITERATIONS = 65535
WORD = 2**32
SCRATCH = 1 << 26  # bytes of scratch under reuse_resources, and of each half of a double one
CHUNKS = 1 << 20  # of a buffer, in the proof
HALVES = 8  # chunks whose packets fill both halves with whole ones, whatever a chunk's bytes
PIECE = 16  # bytes that a thread moves at once


def whole_chunks(plan: ExecutionPlan) -> int:
    """Return the number of chunks of the whole array, by which a size is counted."""
    gpu = plan.gpus[0]
    return gpu.output_chunks if plan.collective == "allgather" else gpu.input_chunks


def size_step(plan: ExecutionPlan) -> int:
    """Return the bytes of which every size that the loader takes is a multiple."""
    return whole_chunks(plan) * plan.buffer_alignment


def check_sizes(plan: ExecutionPlan, findings: Findings) -> None:
    """Hold chunks, bounds, ranges and sizes of a plan whose parts are sound."""
    _check_chunks(plan, findings)
    if findings.count:
        return
    _check_range(plan, findings)
    ranges = _Ranges(plan)
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            number = 0
            for op in block.ops:
                if op.name == "pipeline":
                    _check_pipeline(plan, gpu, block, op, number, findings)
                for each in (op, *op.ops):
                    ranges.check(gpu, block, each, number, findings)
                    number += 1
    ranges.check_packets(findings)


def _check_chunks(plan: ExecutionPlan, findings: Findings) -> None:
    ranks = len(plan.gpus)
    share = {"allgather": (1, ranks), "reducescatter": (ranks, 1)}.get(plan.collective, (1, 1))
    first = plan.gpus[0]
    for gpu in plan.gpus:
        chunks = gpu.input_chunks, gpu.output_chunks
        if 0 in chunks:
            findings.add("chunks", "no chunks on one side: the loader divides by both", gpu.id)
        elif max(*chunks, gpu.scratch_chunks) > CHUNKS:
            findings.add("limit", f"more than {CHUNKS} chunks, too many to prove", gpu.id)
        elif chunks != (first.input_chunks, first.output_chunks):
            findings.add("chunks", f"{chunks} chunks, gpu 0 has others", gpu.id)
        elif gpu.input_chunks * share[1] != gpu.output_chunks * share[0]:
            findings.add(
                "chunks",
                f"{chunks[0]} input and {chunks[1]} output chunks: {plan.collective} on {ranks} "
                f"ranks has {share[0]} to {share[1]}",
                gpu.id,
            )
        if plan.use_double_scratch_buffer and gpu.scratch_chunks != first.scratch_chunks:
            findings.add(
                "scratch",
                f"{gpu.scratch_chunks} scratch chunks, gpu 0 has {first.scratch_chunks}: a rank "
                "takes the second half of another's scratch to begin where its own does",
                gpu.id,
            )
    halves = plan.use_double_scratch_buffer and not plan.reuse_resources
    if halves and first.scratch_chunks % HALVES and plan.buffer_alignment % (2 * PIECE):
        findings.add(
            "scratch",
            f"{first.scratch_chunks} scratch chunks: the second half may begin amid a packet; have "
            f"a multiple of {HALVES} of them, or of {2 * PIECE} as buffer_alignment",
        )
    if plan.collective == "alltoall" and first.input_chunks % ranks:
        findings.add("chunks", f"{first.input_chunks} chunks for {ranks} ranks")


def _check_range(plan: ExecutionPlan, findings: Findings) -> None:
    least, most = plan.min_message_size, plan.max_message_size
    step = size_step(plan)
    if least >= 2**31:
        findings.add(
            "size-range", f"min_message_size {least}: the loader reads 32 bits of it with a sign"
        )
    if most == NO_LIMIT:
        findings.add(
            "size-range", "no max_message_size: scratch is then sized by the whole allocation"
        )
        return
    if max(least, 1) > most or most // step * step < max(least, step):
        findings.add(
            "size-range", f"no multiple of {step} bytes from {least} to {most}: nothing loads"
        )
    if most >= WORD:
        findings.add(
            "size-range", f"max_message_size {most}: offsets have 32 bits, expected below {WORD}"
        )
    for gpu in plan.gpus:
        # The loader takes the limit for the send buffer's when it sizes scratch.
        twice = (1 + plan.packets) * (1 + plan.use_double_scratch_buffer)
        scratch = most // gpu.input_chunks * gpu.scratch_chunks * twice
        if plan.reuse_resources:
            chunk = most // whole_chunks(plan)
            both = plan.packets or plan.use_double_scratch_buffer
            if chunk * gpu.scratch_chunks * (1 + both) > SCRATCH:
                findings.add(
                    "reuse",
                    f"{gpu.scratch_chunks} scratch chunks of {chunk} bytes: reuse_resources has "
                    f"{SCRATCH >> both} and does not look; lower max_message_size",
                    gpu.id,
                )
        elif scratch > WORD:
            findings.add(
                "size-range",
                f"{scratch} bytes of scratch at max_message_size: offsets have 32 bits",
                gpu.id,
            )


def _check_pipeline(
    plan: ExecutionPlan,
    gpu: Gpu,
    block: ThreadBlock,
    op: Operation,
    number: int,
    findings: Findings,
) -> None:
    context = op.iter_context
    if not context or not op.ops or not context.num_chunks:
        findings.add("pipeline", "a pipeline over nothing", gpu.id, block.id, number)
        return
    if not context.unit_size or context.unit_size % PIECE:
        findings.add(
            "pipeline",
            f"unit_size {context.unit_size}: expected a multiple of {PIECE}",
            gpu.id,
            block.id,
            number,
        )
        return
    chunk = plan.max_message_size // whole_chunks(plan)
    loop = context.num_chunks * chunk
    if -(-loop // context.unit_size) > ITERATIONS:
        findings.add(
            "limit",
            f"{-(-loop // context.unit_size)} iterations at max_message_size; at most {ITERATIONS}",
            gpu.id,
            block.id,
            number,
        )
    if plan.reuse_resources and gpu.scratch_chunks and loop > SCRATCH // gpu.scratch_chunks:
        findings.add(
            "reuse",
            f"a pipeline over {loop} bytes wraps in the scratch of reuse_resources",
            gpu.id,
            block.id,
            number,
        )
    for place, each in enumerate(op.ops, number + 1):
        shape = SHAPES[each.name]
        if shape.packets:
            findings.add(
                "pipeline",
                f"{each.name} in a pipeline moves all its chunks in every iteration",
                gpu.id,
                block.id,
                place,
            )
        size = each.src_buff[0].size if each.src_buff else 0
        exact = size == context.num_chunks and (not each.tbg_info or each.tbg_info.tbg_size == 1)
        if shape.moves and not exact and max(loop, size * chunk) > context.unit_size:
            findings.add(
                "pipeline",
                f"{each.name} of {size} chunks in a pipeline over {context.num_chunks}: it must "
                "cover just these, alone",
                gpu.id,
                block.id,
                place,
            )


class _Ranges:
    """Chunks that operations name, against buffers; of scratch, packets against plain data."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan
        self._packets: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self._plain: dict[int, set[tuple[int, int]]] = defaultdict(set)

    def check(
        self, gpu: Gpu, block: ThreadBlock, op: Operation, number: int, findings: Findings
    ) -> None:
        """Hold each buffer of ``op`` against what its owner has."""
        if not SHAPES[op.name].moves:
            return
        for ref, packets in packet_refs(op):
            for rank, buffer in owners(gpu, block, op, ref):
                owner = self._plan.gpus[rank]
                have = {
                    "i": owner.input_chunks,
                    "o": owner.output_chunks,
                    "s": owner.scratch_chunks * (1 + (self._plan.packets and not packets)),
                }[buffer]
                end = ref.index + ref.size
                if end > have:
                    findings.add(
                        "bounds",
                        f"{op.name} of chunks {ref.index} to {end - 1} of buffer {buffer} of gpu "
                        f"{rank}, which has {have}",
                        gpu.id,
                        block.id,
                        number,
                    )
                elif buffer == "s":
                    kind = self._packets if packets else self._plain
                    twice = 1 + packets
                    kind[rank].add((twice * ref.index, twice * end))

    def check_packets(self, findings: Findings) -> None:
        """Packets stand at twice their index: those bytes must hold no plain data."""
        for rank, plain in self._plain.items():
            packets = _joined(self._packets[rank])
            starts = [start for start, _ in packets]
            for start, end in sorted(plain):
                before = bisect_right(starts, end - 1) - 1
                if before >= 0 and packets[before][1] > start:
                    findings.add(
                        "packets",
                        f"plain data in scratch chunks {start} to {end - 1} meets packets of "
                        f"chunks {packets[before][0] // 2} to {packets[before][1] // 2 - 1}, which "
                        "stand at twice their index",
                        rank,
                    )
                    break


def packet_refs(op: Operation) -> Iterator[tuple[BufferRef, bool]]:
    """Yield each buffer of a data operation, and True where it holds packets."""
    packets = SHAPES[op.name].packets
    plain_sources = {"ppkt": 99, "cpkt": 1, "repkt": 1, "respkt": 1, "recpkt": 1, "recspkt": 1}
    plain_targets = {"upkt": 1, "repkt": 1, "respkt": 1, "recpkt": 1, "recspkt": 1}
    for number, ref in enumerate(op.src_buff):
        yield ref, packets and number >= plain_sources.get(op.name, 0)
    for number, ref in enumerate(op.dst_buff):
        yield ref, packets and number >= plain_targets.get(op.name, 0)


def owners(gpu: Gpu, block: ThreadBlock, op: Operation, ref: BufferRef) -> list[tuple[int, str]]:
    """Return rank and buffer of each place that ``ref`` stands for: several behind a switch."""
    if ref.type:
        return [(gpu.id, ref.type)]
    if ref.buffer_id >= 0:
        remote = gpu.remote_buffers[block.remote_buffer_ids(op.channel_type)[ref.buffer_id]]
        return [(remote.rank, remote.type)]
    buffer, group = gpu.switches()[block.channel_ids("switch")[ref.switch_channel_id]]
    return [(rank, buffer) for rank in group.ranks]


def _joined(ranges: set[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
