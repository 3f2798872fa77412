"""The dialect ``mscclpp``: MSCCL++'s execution plans, their files, their proof and their runs."""

from tuccl._native import (
    PLAN_MEMORIES,
    PLAN_PORT_CHANNELS,
    BufferRef,
    ExecutionPlan,
    IterContext,
    Operation,
    RankGroup,
    RemoteBuffer,
    RemoteBufferRefs,
    Semaphore,
    ThreadBlockChannels,
    ThreadBlockGroup,
)
from tuccl._native import PlanChannel as Channel
from tuccl._native import PlanGpu as Gpu
from tuccl._native import PlanThreadBlock as ThreadBlock

__all__ = [
    "PLAN_MEMORIES",
    "PLAN_PORT_CHANNELS",
    "BufferRef",
    "Channel",
    "ExecutionPlan",
    "Gpu",
    "IterContext",
    "Operation",
    "RankGroup",
    "RemoteBuffer",
    "RemoteBufferRefs",
    "Semaphore",
    "ThreadBlock",
    "ThreadBlockChannels",
    "ThreadBlockGroup",
    "is_plan",
]


def is_plan(text: bytes) -> bool:
    """Distinguish a plan from MSCCL XML by its first character: JSON begins with a brace."""
    return text[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
