"""The simulator of MSCCL++: plans in virtual time, and programs as the plans that they become."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import (
    MSCCL_LOOP,
    Call,
    Executor,
    StepLoop,
    Timing,
    TracedRun,
)
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.executors.sim import GroupCall, SimExecutor, padded
from tuccl.simulation import MachineClass, Network, SimResult
from tuccl.synth.baseline.nccl_nvls import nvls_network
from tuccl.synth.mscclpp.knobs import ALIGNMENT, PlanKnobs
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.topology import Topology, network, process_gpus
from tuccl.topology.machine import plan_machine_of
from tuccl.topology.models import has_multicast, multiprocessors

_WHOLE = 8 << 20  # buffer bytes that stand for chunks moved whole
_UNIT = 8  # buffers hold so many pieces, as a connection's FIFO has slots
_MOST_PLANNED = 1 << 30  # bytes that a plan is for, where it is not made for more
_MOST_LEAST = (1 << 31) - 1  # bytes: the loader reads 32 bits of a plan's least size
_SLOTS = 2  # where scratch has no room for every message: the fewest that cannot deadlock

PLAN_GRID = KnobGrid(
    protocols=("Simple", "LL"),
    threads=(64, 128, 256, 512),
    buffers=(128 << 10, 512 << 10, 2 << 20, _WHOLE),
)
"""The knobs of plans: `plan_knobs` says what each is."""
PLAN_KNOBS = (
    "plans of MSCCL++ have Simple and LL, twice the threads, pieces of an eighth of the buffer and "
    "whole chunks with the largest one; channels are instances where chunks move in pieces, else "
    "thread blocks of a group; slots are as many as messages, or 2 where scratch has room for no "
    "more"
)
"""The same for users of a search."""


def plan_knobs(knobs: Knobs) -> PlanKnobs:
    """Return the knobs of a plan that a point of the search stands for.

    A plan's thread block has twice the threads, up to MSCCL++'s 1024; a piece is an eighth of the
    buffer, and of the largest buffer the whole chunk. Channels are instances of the program where
    chunks move in pieces, else the thread blocks of a group, which share each operation: a group
    needs whole chunks. Slots are as many as messages (see `program_plan`).

    >>> plan_knobs(Knobs("Simple", 4, 512, 8 << 20))
    PlanKnobs(protocol='Simple', threads=1024, unit_bytes=0, slots=0, group_size=4)
    """
    packets = knobs.protocol == "LL"
    unit = 0 if packets or knobs.buffer_bytes >= _WHOLE else knobs.buffer_bytes // _UNIT
    return PlanKnobs(
        "LL" if packets else "Simple",
        min(2 * knobs.threads, 1024),
        unit // ALIGNMENT * ALIGNMENT,
        group_size=1 if unit else knobs.channels,
    )


def program_plan(
    program: Program,
    knobs: PlanKnobs,
    sizes: tuple[int, int],
    *,
    hosts: int,
    in_place: bool,
    root: int = 0,
    share_scratch: bool = False,
    name: str | None = None,
) -> ExecutionPlan:
    """Return the proved plan that runs `program` on whole arrays of `sizes`, least and most bytes.

    Where scratch has no room for every message, each connection gets the fewest slots.

    Raises:
        Infeasible: MSCCL++ cannot run it.
    """

    def plan(knobs: PlanKnobs) -> ExecutionPlan:
        return lower_to_plan(
            program,
            knobs,
            hosts=hosts,
            in_place=in_place,
            min_bytes=sizes[0],
            max_bytes=sizes[1],
            share_scratch=share_scratch,
            root=root,
            name=name,
        )

    try:
        return plan(knobs)
    except Infeasible:
        if knobs.packets or knobs.slots:
            raise
        return plan(replace(knobs, slots=_SLOTS))


def takes_in_place(program: Program) -> bool:
    """Return whether calls in place can have a plan of `program`.

    Rank 0 alone would take those of a reduce-scatter for such.
    """
    in_place: bool = program.in_place
    return in_place and not (program.collective == "reduce-scatter" and program.out_of_place)


def check_residency(plan: ExecutionPlan, topology: Topology) -> None:
    """Raise Infeasible where a GPU has fewer multiprocessors than a plan has thread blocks.

    They wait for each other, and a GPU runs one of 1024 threads on each multiprocessor.
    """
    for gpu, blocks in zip(topology.gpus, (len(g.threadblocks) for g in plan.gpus), strict=True):
        most = multiprocessors(gpu.model)
        if most is not None and blocks > most:
            raise Infeasible(
                f"plan {plan.name[:60]!r}: {blocks} thread blocks wait for each other, {gpu.model} "
                f"({gpu.id}) runs {most} at once; use fewer channels or chunks"
            )


def ranks_per_node(topology: Topology, group: Sequence[int]) -> int | None:
    """Return how many ranks of a group each host has; None: MSCCL++ runs no plan of the group.

    Plans need as many on each host, numbered host by host.
    """
    hosts = [topology.host_of(rank) for rank in group]
    runs = [len(list(each)) for _, each in groupby(hosts)]
    return runs[0] if len(runs) == len(set(hosts)) and len(set(runs)) == 1 else None


def call_plan(
    topology: Topology,
    program: Program,
    knobs: Knobs,
    nbytes: int,
    *,
    in_place: bool | None = None,
    root: int = 0,
) -> ExecutionPlan:
    """Return the proved plan that ``program`` becomes with `plan_knobs` for calls of one size.

    Args:
        topology: The machine.
        program: The program.
        knobs: A point of the search.
        nbytes: The whole array; rounded up to what the chunks divide.
        in_place: The calls' placement; None: out of place where the program can.
        root: Of the calls.

    Raises:
        Infeasible: MSCCL++ cannot run it.
    """
    each = ranks_per_node(topology, range(topology.ranks))
    if each is None:
        raise Infeasible("MSCCL++ needs as many ranks on each host, numbered host by host")
    nbytes = padded(nbytes, program.nchunks * ALIGNMENT)
    plan = program_plan(
        program,
        plan_knobs(knobs),
        (min(nbytes, _MOST_LEAST), nbytes),
        hosts=topology.ranks // each,
        in_place=not program.out_of_place if in_place is None else in_place,
        root=root,
    )
    check_residency(plan, topology)
    return plan


class PlanSimulator:
    """Runs plans of MSCCL++ in virtual time on one topology."""

    def __init__(
        self, topology: Topology, machine: MachineClass | None = None, launch: str = "graph"
    ) -> None:
        """Prepare ``topology`` for many runs.

        Args:
            topology: the machine.
            machine: its class for MSCCL++; None is that of its GPUs.
            launch: who launches: ``process``, ``mpi`` or ``graph``, as ``executor_test.py`` does.
        """
        self.topology = topology
        self.machine = machine if machine is not None else plan_machine_of(topology)
        self._launch = launch
        self._process_gpus = process_gpus(topology)

    @cached_property
    def network(self) -> Network:
        """The links, with those through a switch that adds up and multicasts where there is one."""
        links = network(self.topology)
        if not all(has_multicast(gpu.model) for gpu in self.topology.gpus):
            return links
        hosts = [self.topology.gpus_of(host) for host in self.topology.hosts]
        try:
            switch = nvls_network(links, hosts)
        except Infeasible:
            return links
        through = [route for route in switch.routes if route.dst >= links.ranks]
        return Network(switch.ranks, switch.resources, [*links.routes, *through])

    def run(self, plan: ExecutionPlan, nbytes: int) -> SimResult:
        """Return the simulated call of ``plan`` on the whole array of ``nbytes`` bytes.

        Raises:
            Infeasible: a GPU cannot run its thread blocks at once.
            InputError: the chunks do not divide the size, or the plan is for other ranks.
        """
        if len(plan.gpus) != self.topology.ranks:
            raise InputError(
                f"plan {plan.name[:60]!r}: for {len(plan.gpus)} ranks, the topology has "
                f"{self.topology.ranks}"
            )
        check_residency(plan, self.topology)
        return plan.simulate(
            nbytes,
            self.network,
            self.machine,
            launch=self._launch,
            process_gpus=self._process_gpus,
        )


@dataclass(frozen=True)
class FastestPlan:
    """A proved plan, the simulated time of a call (us), and which program it runs."""

    plan: ExecutionPlan
    time_us: float
    number: int


def fastest_plan(
    simulator: PlanSimulator, programs: Sequence[tuple[Program, Knobs]], nbytes: int, root: int = 0
) -> FastestPlan:
    """Return the fastest plan at ``nbytes`` of ``programs``, each with the knobs it was made for.

    Under Simple, chunks move whole or in the slices of the knobs. A plan runs out of place where
    its program can.

    Raises:
        Infeasible: MSCCL++ can run none of them; says why not the first.
    """
    topology = simulator.topology
    found: list[FastestPlan] = []
    reasons: list[Infeasible] = []
    for number, (program, knobs) in enumerate(programs):
        packets = knobs.protocol == "LL"
        for unit in (0,) if packets else (0, knobs.slice_bytes // ALIGNMENT * ALIGNMENT):
            choice = PlanKnobs("LL" if packets else "Simple", min(2 * knobs.threads, 1024), unit)
            try:
                plan = program_plan(
                    program,
                    choice,
                    (0, max(nbytes, _MOST_PLANNED)),
                    hosts=len(topology.hosts),
                    in_place=not program.out_of_place,
                    root=root,
                )
                us = simulator.run(plan, padded(nbytes, plan.size_step)).time_us
            except Infeasible as error:
                reasons.append(error)
            else:
                if nbytes <= plan.max_message_size:
                    found.append(FastestPlan(plan, us, number))
    if not found:
        raise reasons[0] if reasons else Infeasible(f"{nbytes} bytes: more than a plan takes")
    return min(found, key=lambda each: each.time_us)


class PlanSimExecutor(Executor):
    """Runs programs as plans of MSCCL++ in virtual time; the defaults to beat run as NCCL's do."""

    name = "sim"
    simulated = True
    deterministic = True
    runs_plans = True
    full_effort = 1

    def __init__(
        self, topology: Topology, machine: MachineClass | None = None, launch: str = "graph"
    ) -> None:
        """Prepare ``topology`` for many runs, as `PlanSimulator` does."""
        self.ranks = topology.ranks
        self.simulator = PlanSimulator(topology, machine, launch)
        self._defaults = SimExecutor(topology, launch=launch)

    @property
    def topology(self) -> Topology:
        """The topology that is simulated."""
        return self.simulator.topology

    @property
    def label(self) -> str:
        """That it simulates, and what."""
        return f"simulated MSCCL++ on {self.topology.name}, class {self.simulator.machine.name}"

    @property
    def of_defaults(self) -> Executor:
        """The simulator of NCCL and MSCCL."""
        return self._defaults

    @property
    def supported_knobs(self) -> KnobGrid:
        """The knobs that change a plan."""
        return PLAN_GRID

    def pinned_knobs(self) -> tuple[str, ...]:
        """Return what a search's knobs are in plans."""
        return (PLAN_KNOBS,)

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        """Return the simulated time of the plan that ``program`` becomes with `plan_knobs`.

        A size that its chunks do not divide is rounded up to one that they do.

        Raises:
            Infeasible: MSCCL++ cannot run it.
            InputError: the program is for another number of ranks.
        """
        if loop != MSCCL_LOOP:
            raise InputError(f"program {program.name[:40]!r}: NCCL's own kernels run it, no plan")
        blocks = 0

        def us(in_place: bool) -> float:
            nonlocal blocks
            plan = call_plan(self.topology, program, knobs, nbytes, in_place=in_place, root=root)
            blocks = max(blocks, *(len(gpu.threadblocks) for gpu in plan.gpus))
            return self._run_us(plan, GroupCall(range(self.ranks), program, knobs, nbytes))

        out_of_place = us(in_place=False) if program.out_of_place else None
        in_place = us(in_place=True) if takes_in_place(program) else None
        samples = ((out_of_place or in_place or 0.0),) * repeats
        in_place_samples = () if in_place is None else (in_place,) * repeats
        return Timing(
            out_of_place,
            in_place,
            samples,
            self.name,
            samples_us_ip=in_place_samples,
            sms=blocks,
        )

    def _run_us(self, plan: ExecutionPlan, call: GroupCall) -> float:
        """The simulated time in us of a call that has a plan."""
        return self.simulator.run(plan, padded(call.nbytes, plan.size_step)).time_us

    def time_plan(self, plan: ExecutionPlan, nbytes: int, *, repeats: int = 1) -> Timing:
        """Return the simulated time of a verified ``plan`` on the whole array of ``nbytes`` bytes.

        A size that its chunks do not divide is rounded up to one that they do.

        Raises:
            InputError: the plan is for other ranks.
        """
        us = self.simulator.run(plan, padded(nbytes, plan.size_step)).time_us
        out_of_place, in_place = (None, us) if plan.inplace else (us, None)
        samples = (us,) * repeats
        placed = samples if plan.inplace else ()
        blocks = max(len(gpu.threadblocks) for gpu in plan.gpus)
        return Timing(out_of_place, in_place, samples, self.name, samples_us_ip=placed, sms=blocks)

    def least_us(self, program: Program, calls: Sequence[Call]) -> list[float]:
        """Return nothing known for each of ``calls``: infinite where the ranks are others."""
        return [0.0 if program.ngpus == self.ranks else math.inf] * len(calls)

    def trace(self, program: Program, knobs: Knobs, nbytes: int, **_: object) -> TracedRun:
        """Refuse: plans are not recorded.

        Raises:
            InputError: always.
        """
        raise InputError("plans of MSCCL++ are not recorded; leave --trace, or --dialect mscclpp")
