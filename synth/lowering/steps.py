"""Steps of a program from thread blocks: numbering, nops, flags, what is left of scratch."""

from __future__ import annotations

from collections.abc import Callable

from tuccl.planners import chunk_counts
from tuccl.program import Gpu, Step, ThreadBlock
from tuccl.synth.lowering.blocks import Block, DraftStep
from tuccl.synth.model.schedule import Address, Schedule

# The loader joins consecutive `re` into one step of at most 16 sources, and stops joining for good
# after a thread block's 16th reduction (docs/reference/msccl.md, trap 8).
_MOST_FUSED = 16


def gpus(schedule: Schedule, blocks: list[list[Block]], channels: dict[int, int]) -> list[Gpu]:
    """Return the GPUs of the program; `channels` renumbers the channels used."""
    return [
        _gpu(schedule, rank, blocks_of_rank, channels) for rank, blocks_of_rank in enumerate(blocks)
    ]


def _gpu(schedule: Schedule, rank: int, blocks: list[Block], channels: dict[int, int]) -> Gpu:
    for block in blocks:
        _part_reductions(block.drafts)
    order = _awaited_first(blocks)
    number = {block: position for position, block in enumerate(order)}
    position = [_positions(block.drafts) for block in blocks]
    slots = _scratch_slots(blocks)

    def emit(draft: DraftStep) -> list[Step]:
        waits = [(number[b], position[b][k]) for b, k in draft.waits]
        return _steps(draft, sorted(waits), slots)

    threadblocks = [
        ThreadBlock(
            id=number[b],
            send_peer=-1 if (send := blocks[b].send) is None else send[2],
            recv_peer=-1 if (recv := blocks[b].recv) is None else recv[1],
            channel=channels.get(blocks[b].channel, 0),
            steps=[step for draft in blocks[b].drafts for step in emit(draft)],
        )
        for b in order
    ]
    return _sized_gpu(schedule, rank, len(slots), threadblocks)


def _sized_gpu(schedule: Schedule, rank: int, scratch: int, threadblocks: list[ThreadBlock]) -> Gpu:
    collective = schedule.collective
    inputs, outputs = chunk_counts(
        collective.name, schedule.nchunks, collective.ranks, rank, collective.root
    )
    return Gpu(rank, inputs, outputs, scratch, threadblocks)


def _awaited_first(blocks: list[Block]) -> list[int]:
    """Return the blocks' order in the file: those that others wait for first.

    A dependency names its thread block in a signed byte, so these must have low numbers.
    """
    awaited = {b for block in blocks for draft in block.drafts for b, _ in draft.waits}

    def rank(b: int) -> tuple[bool, int, bool, int]:
        return b not in awaited, blocks[b].channel, blocks[b].recv is None, b

    return sorted(range(len(blocks)), key=rank)


def _positions(drafts: list[DraftStep]) -> list[int]:
    """Return the step number of each draft; nops that carry further waits count too."""
    positions, at = [], 0
    for draft in drafts:
        at += max(0, len(draft.waits) - 1)
        positions.append(at)
        at += 1
    return positions


def _scratch_slots(blocks: list[Block]) -> dict[int, int]:
    """Return new numbers for the scratch chunks that steps still use; runs stay runs."""
    used = {
        at.offset + k
        for block in blocks
        for draft in block.drafts
        for at in (draft.src, draft.dst)
        if at.buffer == "s"
        for k in range(draft.count)
    }
    return {old: new for new, old in enumerate(sorted(used))}


def _part_reductions(drafts: list[DraftStep]) -> None:
    """Make `re` steps publish where the loader would join what must not be joined."""
    chain = total = 0
    for k, draft in enumerate(drafts):
        if draft.op != "re":
            chain = 0
            continue
        before = drafts[k - 1] if chain else None
        joins = (
            before is not None
            and not draft.waits
            and not before.publishes
            and (before.dst, before.src.buffer) == (draft.dst, draft.src.buffer)
        )
        if before is not None and joins:
            same = before.count == draft.count
            if not same or chain == _MOST_FUSED or total >= _MOST_FUSED:
                before.publishes = True
                joins = False
        chain = chain + 1 if joins else 1
        total += 1


def _steps(draft: DraftStep, waits: list[tuple[int, int]], slots: dict[int, int]) -> list[Step]:
    """Return the nops that carry all waits but the last, and the step itself."""
    extra, last = waits[:-1], (waits[-1] if waits else (-1, -1))
    nops = [Step("nop", dep_tb=block, dep_step=at) for block, at in extra]
    src, dst = _placed(draft.src, slots.__getitem__), _placed(draft.dst, slots.__getitem__)
    step = Step(
        draft.op,
        src_buffer=src.buffer,
        src_offset=src.offset,
        dst_buffer=dst.buffer,
        dst_offset=dst.offset,
        count=draft.count,
        dep_tb=last[0],
        dep_step=last[1],
        has_dep=draft.publishes,
    )
    return [*nops, step]


def _placed(at: Address, slot: Callable[[int], int]) -> Address:
    return Address("s", slot(at.offset)) if at.buffer == "s" else at
