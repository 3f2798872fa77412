"""An execution plan of MSCCL++: what its JSON says, with the field names of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

__all__ = [
    "NO_LIMIT",
    "BufferRef",
    "BufferType",
    "Channel",
    "ChannelType",
    "ExecutionPlan",
    "Gpu",
    "IterContext",
    "Operation",
    "OperationName",
    "RankGroup",
    "RemoteBuffer",
    "RemoteBufferRefs",
    "Semaphore",
    "ThreadBlock",
    "ThreadBlockChannels",
    "ThreadBlockGroup",
]

NO_LIMIT = 2**64 - 1  # the loader's max_message_size where a file names none

BufferType = Literal["i", "o", "s"]  # input, output, scratch
ChannelType = Literal["memory", "port", "switch", "none"]
OperationName = Literal[
    *("nop", "barrier", "put", "pws", "pwsf", "get", "copy", "signal", "wait", "flush"),
    *("re", "res", "rre", "rres", "ppkt", "rppkt", "respkt", "cpkt", "upkt", "repkt"),
    *("recpkt", "recspkt", "glres", "gstore", "gstorepkt", "rlxsignal", "rlxwait"),
    *("pipeline", "sem_acquire", "sem_release"),
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Part of a plan: frozen, and strict about the file."""


class BufferRef(_Part):
    """A run of ``size`` chunks from chunk ``index`` on.

    Exactly one of ``type`` (a buffer of this rank), ``buffer_id`` (one of the block's remote
    buffers for the operation's channel type) and ``switch_channel_id`` (one of the block's switch
    channels) says of what.
    """

    index: Count
    size: Count
    type: BufferType | Literal[""] = ""
    buffer_id: Count = -1
    switch_channel_id: Count = -1


class ThreadBlockGroup(_Part):
    """Part ``tb_id`` of ``tbg_size``: the blocks of a group share one operation's bytes."""

    tb_id: Count
    tbg_size: Count


class IterContext(_Part):
    """A pipeline's loop: ``num_chunks`` chunks in pieces of ``unit_size`` bytes."""

    unit_size: Count
    num_chunks: Count


class Operation(_Part):
    """One operation of a thread block; ids index the block's own lists, not the GPU's."""

    name: OperationName
    channel_type: ChannelType = "none"
    channel_ids: tuple[Count, ...] = ()
    src_buff: tuple[BufferRef, ...] = ()
    dst_buff: tuple[BufferRef, ...] = ()
    tbg_info: ThreadBlockGroup | msgspec.UnsetType = msgspec.UNSET
    barrier_id: Count = -1
    num_threadblocks: Count = 0
    semaphore_ids: tuple[Count, ...] = ()
    iter_context: IterContext | msgspec.UnsetType = msgspec.UNSET
    ops: tuple[Operation, ...] = ()
    reduce_op: str = ""  # the loader does not read it: every reduction is a sum


class ThreadBlockChannels(_Part):
    """The channels of one type that a thread block uses: indices into the GPU's, flattened."""

    channel_type: ChannelType
    channel_ids: tuple[Count, ...]


class RemoteBufferRefs(_Part):
    """The remote buffers that a thread block reaches through one type of channel."""

    access_channel_type: ChannelType
    remote_buffer_ids: tuple[Count, ...]


class ThreadBlock(_Part):
    """A CUDA block: operations in order, without a barrier between them."""

    id: Count
    ops: tuple[Operation, ...]
    channels: tuple[ThreadBlockChannels, ...]
    remote_buffer_refs: tuple[RemoteBufferRefs, ...] = ()

    def channel_ids(self, channel_type: str) -> list[int]:
        """Return the GPU's channels of that type in the order in which operations index them."""
        return [i for c in self.channels if c.channel_type == channel_type for i in c.channel_ids]

    def remote_buffer_ids(self, channel_type: str) -> list[int]:
        """Return the GPU's remote buffers for that channel type as operations index them."""
        return [
            i
            for refs in self.remote_buffer_refs
            if refs.access_channel_type == channel_type
            for i in refs.remote_buffer_ids
        ]


class RankGroup(_Part):
    """The ranks that share a switch channel, and the chunks of their buffer."""

    size: Count
    ranks: tuple[Count, ...]


class Channel(_Part):
    """Channels of one type: one for each entry of ``connected_to`` or ``rank_groups``.

    Entry k of a rank towards a peer pairs with entry k of the peer towards the rank, counted by
    type; memory and port channels need ``connected_to``, switch channels the other two.
    """

    channel_type: ChannelType
    connected_to: tuple[Count, ...] = ()
    buffer_type: BufferType | Literal[""] = ""
    rank_groups: tuple[RankGroup, ...] = ()


class RemoteBuffer(_Part):
    """A buffer of another rank, and the types of channel through which it is reached."""

    rank: Count
    type: BufferType
    access_channel_types: tuple[ChannelType, ...]


class Semaphore(_Part):
    """A semaphore between the blocks of a GPU; its value outlives the call."""

    init_value: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Gpu(_Part):
    """One rank: its buffers in chunks, what it is connected to, and its thread blocks."""

    id: Count
    input_chunks: Count
    output_chunks: Count
    scratch_chunks: Count
    channels: tuple[Channel, ...]
    remote_buffers: tuple[RemoteBuffer, ...]
    threadblocks: tuple[ThreadBlock, ...]
    semaphores: tuple[Semaphore, ...] = ()

    def peers(self, channel_type: str) -> list[int]:
        """Return the peer of each memory or port channel, as thread blocks number them."""
        return [p for c in self.channels if c.channel_type == channel_type for p in c.connected_to]

    def switches(self) -> list[tuple[str, RankGroup]]:
        """Return buffer type and ranks of each switch channel, as thread blocks number them."""
        return [
            (c.buffer_type, group)
            for c in self.channels
            if c.channel_type == "switch"
            for group in c.rank_groups
        ]


class ExecutionPlan(_Part):
    """A collective for one placement; sizes are bytes of the whole array, both ends inclusive.

    ``protocol`` "LL" means packets, any other word Simple. MSCCL++ @1f5f065,
    src/core/executor/execution_plan.cc.
    """

    name: Name
    collective: Name
    protocol: Name
    inplace: bool
    gpus: tuple[Gpu, ...]
    reuse_resources: bool = False
    use_double_scratch_buffer: bool = False
    buffer_alignment: Count = 16
    num_threads_per_block: Count = 1024
    min_message_size: Size = 0
    max_message_size: Size = NO_LIMIT

    @property
    def packets(self) -> bool:
        """True where scratch is sized for packets, twice the bytes."""
        return self.protocol == "LL"

    def operations(self) -> Iterator[tuple[Gpu, ThreadBlock, int, Operation]]:
        """Yield every operation with its place; those of a pipeline follow it.

        The number is the operation's among all of its thread block, as the loader lays them out.
        """
        for gpu in self.gpus:
            for block in gpu.threadblocks:
                flat = (each for op in block.ops for each in (op, *op.ops))
                yield from ((gpu, block, number, op) for number, op in enumerate(flat))
