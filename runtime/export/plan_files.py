"""The folder that a job of MSCCL++ loads: plans, their selection, and the module for both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import Infeasible
from tuccl.mscclpp import PLAN_MEMORIES, PLAN_PORT_CHANNELS, ExecutionPlan
from tuccl.runtime.export.mscclpp import PlanSource

_MODULE = Path(__file__).with_name("tuccl_plans.py")


@dataclass(frozen=True)
class PlanTable:
    """The plans of one table, and which communicators get them.

    Attributes:
        sources: What each plan is made of.
        ranks: Of a communicator.
        hosts: Of a communicator.
        prefix: In the plans' names, which it makes unique in a process.
        name: The table's, in a job of several.
        by_shape: Every communicator of as many ranks and hosts gets them.
        groups: Ranks of the job, in order, of each communicator that gets them.
    """

    sources: Sequence[PlanSource]
    ranks: int
    hosts: int
    prefix: str
    name: str = ""
    by_shape: bool = True
    groups: Sequence[Sequence[int]] = ()


def plan_contents(
    tables: Sequence[PlanTable], ranks: int, *, share_scratch: bool = False
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of an export by name, each plan proved, and what the job must keep to.

    Args:
        tables: What the plans are made of.
        ranks: Of the job.
        share_scratch: LL plans use one scratch (see docs/howto/mscclpp.md).

    Raises:
        Infeasible: MSCCL++ cannot run a program of `tables`, or not all plans of one.
    """
    contents: dict[str, bytes] = {}
    selections = []
    notes: list[str] = []
    for table in tables:
        plans = [_plan(table, n, share_scratch) for n in range(len(table.sources))]
        contents |= {f"{plan.name}.json": plan.json().encode() for plan in plans}
        selections.append(_selection(table, plans))
        own = [*_short(table, plans), *_port_advice(plans)]
        notes += [f"{table.name}: {note}" for note in own] if table.name else own
    notes += _advice([source for table in tables for source in table.sources])
    document = {"ranks": ranks, "tables": selections}
    contents["selection.json"] = (json.dumps(document, indent=1) + "\n").encode()
    contents["tuccl_plans.py"] = _MODULE.read_bytes()
    return contents, notes


def _plan(table: PlanTable, number: int, share_scratch: bool) -> ExecutionPlan:
    source = table.sources[number]
    placement = "in" if source.in_place else "out"
    collective, protocol = source.program.collective.replace("-", ""), source.knobs.protocol.lower()
    name = f"tuccl-{table.prefix}-{number:03d}-{collective}-{placement}-{protocol}"
    return source.plan(table.hosts, name, share_scratch=share_scratch and source.knobs.packets)


def _short(table: PlanTable, plans: Sequence[ExecutionPlan]) -> Iterator[str]:
    """Yield on the plans that do not take all sizes of their calls."""
    for source, plan in zip(table.sources, plans, strict=True):
        if plan.max_message_size < source.max_bytes // plan.size_step * plan.size_step:
            yield f"{source.text} ends at {plan.max_message_size} bytes: 32-bit offsets"


def _selection(table: PlanTable, plans: Sequence[ExecutionPlan]) -> dict[str, object]:
    """Return the communicators and calls of a table's plans as ``selection.json`` says them."""
    return {
        "world_size": table.ranks,
        "ranks_per_node": table.ranks // table.hosts,
        "by_shape": table.by_shape,
        "groups": [list(group) for group in table.groups],
        "plans": [_call(*each) for each in zip(table.sources, plans, strict=True)],
    }


def _port_advice(plans: list[ExecutionPlan]) -> Iterator[str]:
    """Yield on how many buffers a process may call all plans: nothing is freed nor looked at."""
    channels = memories = 0
    for plan in plans:
        channels += max(len(gpu.peers("port")) for gpu in plan.gpus)
        remote = [
            [b for b in gpu.remote_buffers if "port" in b.access_channel_types] for gpu in plan.gpus
        ]
        memories += 3 + max(map(len, remote))
    if channels:
        most = min(PLAN_PORT_CHANNELS // channels, PLAN_MEMORIES // memories)
        if not most:
            raise Infeasible(
                f"{len(plans)} plans with {channels} port channels and {memories} memories in all: "
                f"an executor has {PLAN_PORT_CHANNELS} and {PLAN_MEMORIES}; export fewer "
                "collectives"
            )
        yield (
            f"port channels: a process may call all plans on {most} pairs of allocations; more "
            f"overrun the executor's {PLAN_PORT_CHANNELS} channels and {PLAN_MEMORIES} memories"
        )


def _call(source: PlanSource, plan: ExecutionPlan) -> dict[str, object]:
    """Return the calls of a plan as ``selection.json`` says them."""
    return {
        "name": plan.name,
        "file": f"{plan.name}.json",
        "collective": plan.collective,
        "in_place": plan.inplace,
        "root": source.root,
        "datatype_bytes": source.datatype_bytes,
        "multiple_bytes": plan.size_step,
        "min_bytes": plan.min_message_size,
        "max_bytes": plan.max_message_size,
    }


def _advice(sources: list[PlanSource]) -> Iterator[str]:
    """Yield what the job must keep to, since the runtime does not look."""
    collectives = {source.program.collective for source in sources}
    if collectives & {"allreduce", "reduce-scatter"}:
        yield (
            "a request does not name its reduction and plans only add up: reducing plans are "
            "registered with sums_only=True alone"
        )
    if "alltoall" in collectives:
        yield "alltoall: MSCCL++'s NCCL library refuses ncclAllToAll; run the plan by its executor"
    if collectives & {"broadcast", "reduce"}:
        yield "broadcast, reduce: all ranks must pass both buffers, all in place or none"
    if any(source.knobs.packets for source in sources):
        yield (
            "LL: communicators of one process must launch equally many plans on all ranks; a CUDA "
            "graph needs three LL calls or more"
        )
