"""Plans of one host whose switch adds up and multicasts (NVLS): no program says that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import (
    BufferRef,
    Channel,
    ExecutionPlan,
    Gpu,
    IterContext,
    Operation,
    RankGroup,
    ThreadBlock,
    ThreadBlockChannels,
)
from tuccl.synth.mscclpp.block_writer import MOST_CHANNELS, MOST_PER_BLOCK
from tuccl.synth.mscclpp.knobs import ALIGNMENT, SIMPLE, PlanKnobs
from tuccl.synth.mscclpp.limits import Extent
from tuccl.synth.mscclpp.tasks import MOST_SOURCES

# By the names in plans; packets of a reduce-scatter would go to ranks that do not want them.
SWITCH_COLLECTIVES = {
    "allgather": "allgather",
    "allreduce": "allreduce",
    "reduce-scatter": "reducescatter",
}
_NOP = Operation("nop")
_HALVES = 8  # chunks whose packets fill both halves of scratch with whole ones


@dataclass(frozen=True)
class Multicast:
    """A collective done by the switch that joins the ranks of one host.

    Attributes:
        collective: One of `SWITCH_COLLECTIVES`.
        ranks: All of them behind the switch, 2 to 17.
        blocks: Thread blocks of a rank; the b-th moves every `blocks`-th chunk and meets the b-th
            of all other ranks.
        through_scratch: Data is copied into and out of scratch: MSCCL++ allocates that so that a
            switch reaches it, while callers' buffers must come from its allocator.
    """

    collective: str
    ranks: int
    blocks: int = 8
    through_scratch: bool = True


def switch_plan(
    multicast: Multicast,
    knobs: PlanKnobs = SIMPLE,
    *,
    in_place: bool = False,
    min_bytes: int = 0,
    max_bytes: int = 1 << 30,
    share_scratch: bool = False,
    name: str | None = None,
) -> ExecutionPlan:
    """Return a plan in which the switch adds up and stores on all ranks at once, proved.

    Under Simple, the switch adds up each rank's share of all ranks' data, or stores each rank's
    part on all. Under "LL" each rank's packets go to all ranks, and an allreduce adds up all of
    them in the order of ranks. Sizes are of the whole array, in bytes.

    Raises:
        Infeasible: MSCCL++ cannot run it.
        InputError: an argument is out of range.

    Notes:
        MSCCL++ @1f5f065, SwitchChannel: GPUs of compute capability 9.0 and more.
    """
    collective, ranks, blocks = multicast.collective, multicast.ranks, multicast.blocks
    if collective not in SWITCH_COLLECTIVES:
        names = ", ".join(SWITCH_COLLECTIVES)
        raise Infeasible(f"{collective}: a switch does only {names}")
    if collective == "reduce-scatter" and (in_place or knobs.packets):
        raise Infeasible("reduce-scatter by a switch: only out of place and under Simple")
    if not 2 <= ranks <= 1 + MOST_PER_BLOCK:
        raise InputError(f"{ranks} ranks of a switch: expected 2 to {1 + MOST_PER_BLOCK}")
    if not 1 <= blocks <= 64 or knobs.slots or knobs.group_size > 1:
        raise InputError(f"{blocks} blocks: expected 1 to 64, without slots and groups")
    shape = _Shape(multicast, in_place, knobs)
    gpus = tuple(shape.gpu(rank) for rank in range(ranks))
    first, share = gpus[0], knobs.packets and share_scratch
    whole = max(first.input_chunks, first.output_chunks)
    extent = Extent(whole, first.input_chunks, first.scratch_chunks, knobs.packets, share)
    most = extent.most_bytes(max_bytes, knobs.unit_bytes)
    if most < max(min_bytes, extent.step):
        raise Infeasible(f"{collective} by a switch: sizes end at {most} bytes")
    form = f"switch-{knobs.protocol}-{'in' if in_place else 'out'}"
    plan = ExecutionPlan(
        name or f"{collective}-{form}",
        SWITCH_COLLECTIVES[collective],
        knobs.protocol,
        in_place,
        gpus,
        reuse_resources=share,
        use_double_scratch_buffer=knobs.packets,
        buffer_alignment=ALIGNMENT,
        num_threads_per_block=knobs.threads,
        min_message_size=min_bytes,
        max_message_size=most,
    )
    report = plan.verify()
    if not report.ok:
        raise Infeasible(f"{collective} by a switch: {report.errors[0].message}")
    return plan


def _local(buffer: str, index: int) -> BufferRef:
    return BufferRef(index, 1, type=buffer)


@dataclass(frozen=True)
class _Shape:
    """The multicast of one placement; chunk c of a share is of block c."""

    multicast: Multicast
    in_place: bool
    knobs: PlanKnobs

    @property
    def buffers(self) -> tuple[str, ...]:
        """The buffers that the switch reaches, one channel each."""
        if self.multicast.through_scratch or self.knobs.packets:
            return ("s",)
        if self.multicast.collective == "reduce-scatter":
            return ("i", "s")
        return ("o",) if self.in_place or self.multicast.collective == "allgather" else ("i", "o")

    def gpu(self, rank: int) -> Gpu:
        """Return one rank of the plan."""
        every, one = self.multicast.ranks * self.multicast.blocks, self.multicast.blocks
        chunks = {
            "allgather": (one, every),
            "allreduce": (one, one) if self.knobs.packets else (every, every),
            "reduce-scatter": (every, one),
        }[self.multicast.collective]
        scratch = every if "s" in self.buffers else 0
        if self.knobs.packets:
            scratch = -(-(every + one) // _HALVES) * _HALVES
        peers = tuple(peer for peer in range(self.multicast.ranks) if peer != rank)
        group = (RankGroup(self.multicast.ranks, tuple(range(self.multicast.ranks))),)
        channels = [Channel("switch", (), buffer, group) for buffer in self.buffers]
        if not self.knobs.packets:
            channels.insert(0, Channel("memory", peers * self.multicast.blocks))
        threadblocks = tuple(self.block(rank, number) for number in range(self.multicast.blocks))
        return Gpu(rank, *chunks, scratch, tuple(channels), (), threadblocks)

    def block(self, rank: int, number: int) -> ThreadBlock:
        """Return thread block `number`, which moves that chunk of each share."""
        first, count = number * (self.multicast.ranks - 1), self.multicast.ranks - 1
        channels = [ThreadBlockChannels("switch", tuple(range(len(self.buffers))))]
        if self.knobs.packets:
            ops = self.packets(rank, number)
        else:
            channels.insert(0, ThreadBlockChannels("memory", tuple(range(first, first + count))))
            ops = self.stores(rank, number)
            if self.knobs.unit_bytes:
                ops = [Operation("pipeline", iter_context=self.loop, ops=(*ops, _NOP))]
        return ThreadBlock(number, tuple(ops), tuple(channels))

    @property
    def loop(self) -> IterContext:
        """The pieces of a chunk."""
        return IterContext(self.knobs.unit_bytes, 1)

    def stores(self, rank: int, number: int) -> list[Operation]:
        """Return what a block does under Simple."""
        shares = [each * self.multicast.blocks + number for each in range(self.multicast.ranks)]
        mine = shares[rank]
        scratch, gathers = self.multicast.through_scratch, self.multicast.collective == "allgather"
        before = [self.copy("i", k, "s", k) for k in shares] if scratch and not gathers else []
        first, last = self.buffers[0], self.buffers[-1]
        if gathers:
            move = Operation(
                "gstore", "switch", (), (_local("i", number),), (self.behind(last, mine),)
            )
        else:
            ends = (self.behind(first, mine),), (self.behind(last, mine),)
            move = Operation("glres", "switch", (), *ends)
        if self.multicast.collective == "reduce-scatter":
            after = [self.copy("s", mine, "o", number)]
        else:
            after = [self.copy("s", k, "o", k) for k in shares] if scratch else []
        # Without a copy nothing of this call must be seen: the others have begun, that is all.
        start = [*before, _NOP, *self.meet(relaxed=not before), _NOP]
        return [*start, move, _NOP, *self.meet(), *([_NOP, *after] if after else [])]

    def packets(self, rank: int, number: int) -> list[Operation]:
        """Return what a block does under LL."""
        landed = [each * self.multicast.blocks + number for each in range(self.multicast.ranks)]
        leaving = self.multicast.ranks * self.multicast.blocks + number
        out = [
            Operation("cpkt", src_buff=(_local("i", number),), dst_buff=(_local("s", leaving),)),
            Operation(
                "gstorepkt",
                "switch",
                (),
                (_local("s", leaving),),
                (self.behind("s", landed[rank]),),
            ),
            _NOP,
        ]
        if self.multicast.collective == "allgather":
            return out + [self.copy("s", k, "o", k, "upkt") for k in landed]
        target = _local("o", number)
        out.append(self.copy("s", landed[0], "o", number, "upkt"))
        for at in range(1, self.multicast.ranks, MOST_SOURCES):
            some = tuple(_local("s", k) for k in landed[at : at + MOST_SOURCES])
            out += [_NOP, Operation("repkt", src_buff=(target, *some), dst_buff=(target,))]
        return out

    def meet(self, *, relaxed: bool = False) -> Iterator[Operation]:
        """Yield signals to the block of that number on all other ranks, and the waits for them."""
        peers = range(self.multicast.ranks - 1)
        for name in ("signal", "wait"):
            for at in range(0, len(peers), MOST_CHANNELS):
                ids = tuple(peers[at : at + MOST_CHANNELS])
                yield Operation(f"rlx{name}" if relaxed else name, "memory", ids)

    def behind(self, buffer: str, index: int) -> BufferRef:
        """Return a chunk of all ranks' buffers."""
        return BufferRef(index, 1, switch_channel_id=self.buffers.index(buffer))

    def copy(self, source: str, at: int, target: str, to: int, name: str = "copy") -> Operation:
        """Return a copy within the rank."""
        ends = (_local(source, at),), (_local(target, to),)
        return Operation(name, "none", (), *ends)
