"""From a program to an execution plan of MSCCL++."""

from __future__ import annotations

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Program
from tuccl.synth.mscclpp.form import Form, Ways
from tuccl.synth.mscclpp.fuse import (
    fuse_receives,
    fuse_sends,
    fuse_sums,
    join_receives,
    pass_sums,
    pull_sums,
)
from tuccl.synth.mscclpp.knobs import ALIGNMENT, SIMPLE, PlanKnobs
from tuccl.synth.mscclpp.limits import Extent
from tuccl.synth.mscclpp.sums import lone_sums
from tuccl.synth.mscclpp.tasks import tasks_of

# What plans are for, by the names in their files. A reduce is reached by the executor alone.
PLAN_COLLECTIVES = {
    "allgather": "allgather",
    "allreduce": "allreduce",
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "reduce-scatter": "reducescatter",
}
_MOST_ADAPTERS = 8  # of a host, by the ranks' indices in it
# The cheapest first: the proof says which is enough. Where every rank needs every rank, the two
# halves of scratch keep packets apart without more.
_SIMPLE_WAYS = (
    Ways(True, True, True, fuses=True, pulls=True),
    *(
        Ways(lands_in_place, True, True, fuses, pulls=False)
        for fuses in (True, False)
        for lands_in_place in (True, False)
    ),
)
_PACKET_WAYS = tuple(
    Ways(False, ready, flushes, fuses, pulls=False)
    for fuses in (True, False)
    for ready, flushes in ((False, False), (False, True), (True, True))
)


def lower_to_plan(
    program: Program,
    knobs: PlanKnobs = SIMPLE,
    *,
    hosts: int = 1,
    in_place: bool = False,
    min_bytes: int = 0,
    max_bytes: int = 1 << 30,
    share_scratch: bool = False,
    root: int = 0,
    name: str | None = None,
) -> ExecutionPlan:
    """Return `program` as an execution plan for one placement, proved.

    Ranks of a host exchange data through memory channels, others through port channels; hosts have
    as many ranks each, one after the other. Under Simple, messages land where they are stored if
    the proof shows that nobody uses it then, else in scratch. `share_scratch` has packets use the
    scratch that all such plans of a process share. Sizes are of the whole array, in bytes; the
    plan's largest size is less than `max_bytes` where offsets or shared scratch end before, and
    its smallest more than `min_bytes` where a group's thread blocks would have nothing to move.

    Raises:
        Infeasible: MSCCL++ cannot run it: the message says what and how to fix it.
        InputError: an argument is out of range.

    Notes:
        MSCCL++ @1f5f065, src/core/executor. A connection becomes a channel of its own for each
        pair of thread blocks that uses it; a receiver signals that it has begun before anything
        is put; a dependency becomes a semaphore; thread blocks beyond 64 operations are cut.
    """
    _check(program, hosts, in_place, min_bytes, max_bytes)
    packets = knobs.packets
    ranks_per_host = program.ngpus // hosts
    problem = ""
    for ways in _PACKET_WAYS if packets else _SIMPLE_WAYS:
        parted = knobs.unit_bytes > 0 or knobs.group_size > 1
        tasks = tasks_of(program, in_place=in_place, equal_counts=parted)
        if ways.fuses:
            # Ranks that make one sum must all make it alike.
            sums = lone_sums(tasks) if packets and program.collective == "allreduce" else None
            if packets:
                fuse_receives(tasks, sums=sums)
            fuse_sums(tasks, packets=packets, sums=sums)
            if packets:
                fuse_sends(tasks, ranks_per_host, spread=not ways.ready)
                pass_sums(tasks)
            if ways.pulls:
                pull_sums(tasks, ranks_per_host)
            if ways.lands_in_place and not knobs.slots:
                join_receives(tasks)
        gpus = Form(program, ranks_per_host, in_place, knobs, ways).gpus(tasks)
        scratch = max(gpu.scratch_chunks for gpu in gpus)
        share = packets and share_scratch
        extent = Extent(program.nchunks, gpus[0].input_chunks, scratch, packets, share)
        run = max(task.count for blocks in tasks for block in blocks for task in block)
        most = extent.most_bytes(max_bytes, knobs.unit_bytes, run)
        least = max(min_bytes, knobs.group_size * extent.step if knobs.group_size > 1 else 0)
        if most < max(least, extent.step):
            raise Infeasible(
                f"{program.name}: {scratch} chunks of scratch leave sizes up to {most} bytes; use "
                "fewer chunks, ranks or slots, or a smaller size"
            )
        plan = ExecutionPlan(
            name or f"{program.name}-{knobs.protocol}-{'in' if in_place else 'out'}",
            PLAN_COLLECTIVES[program.collective],
            knobs.protocol,
            in_place,
            gpus,
            reuse_resources=share,
            use_double_scratch_buffer=packets,
            buffer_alignment=ALIGNMENT,
            num_threads_per_block=knobs.threads,
            min_message_size=least,
            max_message_size=most,
        )
        report = plan.verify(root=root)
        if report.ok:
            return plan
        problem = report.errors[0].message + ("; use more slots" if knobs.slots else "")
    raise Infeasible(f"{program.name}: no plan of MSCCL++: {problem}")


def _check(program: Program, hosts: int, in_place: bool, min_bytes: int, max_bytes: int) -> None:
    if program.collective not in PLAN_COLLECTIVES:
        names = ", ".join(PLAN_COLLECTIVES)
        raise Infeasible(
            f"{program.collective}: MSCCL++ has no plans of it, only of {names}: none of its calls "
            "reaches one, and its executor takes both buffers from every rank"
        )
    if program.group_size:
        raise Infeasible(f"{program.name}: of groups, and MSCCL++ has no plans of them")
    if in_place and program.collective == "reduce-scatter":
        raise Infeasible(
            "reduce-scatter in place: MSCCL++ takes it for in place on rank 0 alone, so ranks "
            "would choose different plans; call it out of place"
        )
    if not (program.in_place if in_place else program.out_of_place):
        where = "in place" if in_place else "out of place"
        raise Infeasible(f"{program.name}: the program is not right {where}")
    if hosts < 1 or program.ngpus % hosts:
        raise InputError(f"{hosts} hosts: expected a number that divides {program.ngpus} ranks")
    if hosts > 1 and program.ngpus // hosts > _MOST_ADAPTERS:
        raise Infeasible(
            f"{program.ngpus // hosts} ranks a host: across hosts MSCCL++ gives each an adapter of "
            f"its own, of {_MOST_ADAPTERS} a host at most; use fewer ranks or one host"
        )
    if not 0 <= min_bytes < 1 << 31 or max_bytes < max(1, min_bytes):
        raise InputError(f"sizes {min_bytes} to {max_bytes}: expected a range from below 2 GiB on")
