"""The dialect ``mscclpp``: MSCCL++'s execution plans, their files and their proof."""

from tuccl.mscclpp.files import is_plan, parse_plan, plan_json
from tuccl.mscclpp.plan import (
    NO_LIMIT,
    BufferRef,
    Channel,
    ExecutionPlan,
    Gpu,
    IterContext,
    Operation,
    RankGroup,
    RemoteBuffer,
    RemoteBufferRefs,
    Semaphore,
    ThreadBlock,
    ThreadBlockChannels,
    ThreadBlockGroup,
)
from tuccl.mscclpp.run import run_plan
from tuccl.mscclpp.simulate import simulate_plan
from tuccl.mscclpp.verify import verify_plan

__all__ = [
    "NO_LIMIT",
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
    "parse_plan",
    "plan_json",
    "run_plan",
    "simulate_plan",
    "verify_plan",
]
