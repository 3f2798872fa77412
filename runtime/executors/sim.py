"""The simulator as an executor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import cycle
from random import Random
from typing import NamedTuple

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.cross import CrossRuns
from tuccl.runtime.executors.executor import (
    EXACT_TO,
    MSCCL_LOOP,
    Call,
    Executor,
    StepLoop,
    Timing,
    TracedRun,
)
from tuccl.runtime.executors.sent_routes import SentRoutes
from tuccl.simulation import (
    MachineClass,
    Network,
    OutsideTraffic,
    least_us,
    simulate,
    simulate_all,
    simulate_groups,
)
from tuccl.simulation import trace as simulate_and_record
from tuccl.sketches.parameters import MOST_MESHED
from tuccl.synth.baseline.nccl_nvls import SWITCH_RANKS, nvls_network
from tuccl.topology import CrossTraffic, Topology, machine_of, network, process_gpus, residual
from tuccl.topology.machine import plan_machine_of

_MOMENTS = 20  # of cross traffic that a call is simulated at, for each repeat
_ITERATION_REPEATS = 10
# Kernels of different communicators never start at one moment. If they did, equal programs would
# stay in step and leave a link that they share idle, all at once. Of many groups the last must not
# begin when the first are done; those that share a link are often a power of two apart.
_STARTS_US = tuple(n / 2 for n in range(13))


class GroupCall(NamedTuple):
    """A call by some ranks of a machine, beside other calls on it.

    Attributes:
        members: The machine's rank for each of the program's.
        program: What they run.
        knobs: Its knobs.
        nbytes: The whole array; rounded up to what the program's chunks divide.
        loop: The loop of the kernel that runs it.
        start_us: When the call begins.
        repeats: It begins again whenever it ends, twice or more; the others meanwhile do too.
        plan: What MSCCL++ runs in the program's place; None: it runs as it is.
    """

    members: Sequence[int]
    program: Program
    knobs: Knobs
    nbytes: int
    loop: StepLoop = MSCCL_LOOP
    start_us: float = 0.0
    repeats: bool = False
    plan: ExecutionPlan | None = None


class SimExecutor(Executor):
    """Runs programs in virtual time on one topology; deterministic, so repeats cost nothing."""

    name = "sim"
    simulated = True
    deterministic = True
    full_effort = 1
    connection_a_pair = False  # of ranks on two hosts; else each channel has its own

    def __init__(
        self,
        topology: Topology,
        machine: MachineClass | None = None,
        launch: str = "mpi",
        shared: Network | None = None,
        cross: CrossTraffic | None = None,
    ) -> None:
        """Prepare ``topology`` for many runs.

        Args:
            topology: the machine.
            machine: its class; None is that of its GPUs.
            launch: who launches: ``process``, ``mpi`` or ``graph``.
            shared: what its ranks share; None are the topology's own links.
            cross: traffic of others on its network; a time is then the mean over many moments.

        Raises:
            InputError: the launch is none of process, mpi and graph, or ``cross`` is not on this
                network.
        """
        if launch not in ("process", "mpi", "graph"):
            raise InputError(f"launch {launch[:20]!r}: expected process, mpi or graph")
        self._topology = topology
        self.ranks = topology.ranks
        self._machine = machine if machine is not None else machine_of(topology)
        self._launch = launch
        self._has_parts = shared is None and cross is None
        self._hosts = tuple(topology.gpus_of(host) for host in topology.hosts)
        self._shared = shared
        many = self._has_parts and topology.ranks > MOST_MESHED
        self._routes = SentRoutes(topology) if many else None
        self._cross = (
            CrossRuns(topology, self._network, cross, self.connection_a_pair) if cross else None
        )
        self._planned = residual(topology, cross) if cross else None
        self._process_gpus = process_gpus(topology)

    @property
    def topology(self) -> Topology:
        """The topology that is simulated."""
        return self._topology

    def of_part(self, part: Topology) -> Executor | None:
        """The same on a part; None where others use its links, or they are not the topology's."""
        return SimExecutor(part, self._machine, self._launch) if self._has_parts else None

    @property
    def planned_topology(self) -> Topology | None:
        """The topology with what cross traffic leaves of its links on average."""
        return self._planned

    @property
    def label(self) -> str:
        """That it simulates, and what."""
        cross = f" beside {self._cross.label}" if self._cross else ""
        return f"simulated on {self._topology.name}{cross}, class {self._machine.name}"

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
        """Return the simulated time of ``program`` on the whole array of ``nbytes`` bytes.

        A size that the program's chunks do not divide is rounded up to one that they do. The
        runtimes demand divisibility in elements: which calls they take is for the export to
        say. ``root`` is baked into the program; it is not read.

        Raises:
            Infeasible: the GPUs cannot hold all thread blocks at once.
            InputError: the program is for another number of ranks, or the knobs are illegal.
        """
        return self._timing(program, knobs, nbytes, repeats, loop)

    def time_against(
        self,
        best_us: float,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        """Return what ``time`` returns; over 1.25 times ``best_us`` a pace need not be settled."""
        return self._timing(program, knobs, nbytes, repeats, loop, EXACT_TO * best_us)

    def _timing(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        repeats: int,
        loop: StepLoop,
        exact_to_us: float = math.inf,
    ) -> Timing:
        program, knobs, loop, machine = self._as_run(program, knobs, loop)
        self._check(program, loop)
        if repeats < 1 or nbytes < 1:
            raise InputError(f"{nbytes} bytes, {repeats} repeats: expected at least one of each")

        call = GroupCall(range(self.ranks), program, knobs, nbytes, loop)
        time_us = self._timer(call, machine, exact_to_us)
        samples = self._samples(time_us, program, repeats)
        us = sum(samples) / len(samples) if self._cross else samples[0]
        # A copy onto its own memory is carried out like any other: in place costs the same.
        out_of_place, in_place = (
            us if program.out_of_place else None,
            us if program.in_place else None,
        )
        in_place_samples = samples if in_place is not None else ()
        return Timing(out_of_place, in_place, samples, "sim", samples_us_ip=in_place_samples)

    def _timer(
        self, call: GroupCall, machine: MachineClass, exact_to_us: float
    ) -> Callable[..., float]:
        """Return what gives the time in us on a network and, if any, beside flows of others."""

        def time_us(shared: Network, outside: OutsideTraffic | None = None) -> float:
            return simulate(
                call.program,
                call.knobs,
                self._links(shared, call.loop.multicast),
                machine,
                padded(call.nbytes, call.program.nchunks),
                launch=self._launch,
                process_gpus=self._process_gpus,
                pass_bytes=call.loop.pass_bytes,
                transfer_slots=call.loop.transfer_slots,
                outside=outside,
                exact_to_us=exact_to_us,
            ).time_us

        return time_us

    @cached_property
    def _network(self) -> Network:
        return self._shared if self._shared is not None else network(self._topology)

    def _network_of(self, program: Program) -> Network:
        """The links, of very many ranks those over which ``program`` sends."""
        return self._network if self._routes is None else self._routes.network(program)

    def _links(self, shared: Network, multicast: bool) -> Network:
        """The network, or where switches multicast its links to them."""
        if not multicast or shared.ranks > self.ranks:
            return shared
        return self._multicast if shared is self._network else nvls_network(shared, self._hosts)

    @cached_property
    def _multicast(self) -> Network:
        return nvls_network(self._network, self._hosts)

    def _as_run(
        self, program: Program, knobs: Knobs, loop: StepLoop
    ) -> tuple[Program, Knobs, StepLoop, MachineClass]:
        """The program, the knobs and the loop simulated for a call, and their costs."""
        return program, knobs, loop, self._machine_of(loop)

    def _samples(
        self, time_us: Callable[..., float], program: Program, repeats: int
    ) -> tuple[float, ...]:
        """The times in us of ``repeats`` calls, or of calls at many moments of cross traffic."""
        if self._cross is None:
            return (time_us(self._network_of(program)),) * repeats
        samples = []
        for moment, shared in self._cross.moments(_MOMENTS * repeats):
            us, drawn_us = 0.0, -1.0
            while us > drawn_us:  # the flows must go on for as long as the call
                outside, drawn_us = self._cross.outside(moment, us)
                us = time_us(shared, outside)
            samples.append(us)
        return tuple(samples)

    def time_all(
        self, program: Program, calls: Sequence[Call], *, root: int = 0, threads: int = 1
    ) -> list[float]:
        """Return the simulated time in us of each of ``calls``, as ``time`` gives it.

        Calls that cannot differ (buffers beyond the chunk, threads beyond the protocol's need)
        are simulated once, the rest on ``threads`` threads without Python's lock. A call that
        ``time`` refuses takes infinitely long.
        """
        if self._cross:
            return super().time_all(program, calls, root=root)
        if not self._takes(program):
            return [math.inf] * len(calls)
        return simulate_all(
            program,
            _padded_calls(program, calls),
            self._network_of(program),
            self._machine,
            launch=self._launch,
            process_gpus=self._process_gpus,
            threads=threads,
        )

    def time_groups(self, calls: Sequence[GroupCall]) -> list[float]:
        """Return when each of ``calls``, which run at the same time, ends, in simulated us.

        They begin up to 6 us apart, which does not count. Each is a communicator of its own, with
        proxies of its own. A rank may be in several. Of a call that repeats it is the mean time of
        its turns but the first. Plans take what they do by the machine's class for MSCCL++.

        Raises:
            Infeasible: traffic of others is beside the executor's runs.
            InputError: members are not ranks of this machine or not the program's, knobs are
                illegal, or GPUs cannot hold the thread blocks of all calls at once.
        """
        if self._cross:
            raise Infeasible("groups that call at once are not simulated beside others' traffic")
        starts_us = [us for us, _ in zip(cycle(_STARTS_US), calls, strict=False)]
        calls = [
            call._replace(start_us=call.start_us + us)
            for call, us in zip(calls, starts_us, strict=True)
        ]
        multicast = any(call.loop.multicast for call in calls)
        plans = [(call.plan, call) for call in calls if call.plan is not None]
        ends_us = simulate_groups(
            [
                (
                    call.program,
                    self._members(call),
                    call.knobs,
                    padded(call.nbytes, call.program.nchunks),
                    call.loop.pass_bytes,
                    call.loop.transfer_slots,
                    call.loop.launch_plan,
                    call.start_us,
                    call.repeats,
                )
                for call in calls
                if call.plan is None
            ],
            self._links(self._network, multicast),
            self._machine,
            launch=self._launch,
            process_gpus=self._process_gpus,
            plans=[
                (
                    plan,
                    list(call.members),
                    padded(call.nbytes, plan.size_step),
                    call.start_us,
                    call.repeats,
                )
                for plan, call in plans
            ],
            plan_machine=plan_machine_of(self._topology) if plans else self._machine,
        ).calls_us
        order = sorted(range(len(calls)), key=lambda number: calls[number].plan is not None)
        return [
            us if calls[number].repeats else us - starts_us[number]
            for number, us in sorted(zip(order, ends_us, strict=True))
        ]

    def _members(self, call: GroupCall) -> list[int]:
        """The members, and those of the switches where the program has any (`nvls_program`)."""
        inside = (
            self.ranks + SWITCH_RANKS * rank + number
            for rank in call.members
            for number in range(SWITCH_RANKS)
        )
        return [*call.members, *(inside if call.loop.multicast else ())]

    def least_us(self, program: Program, calls: Sequence[Call]) -> list[float]:
        """Return for each of ``calls`` what it takes at least in us, without simulating it.

        That is what the host, the busiest link and the busiest thread block need: never above
        what ``time`` gives, but for the few parts in ten thousand that a long run's extrapolation
        may be off. Infinite where ``time`` refuses the call.
        """
        if self._cross:
            return super().least_us(program, calls)
        if not self._takes(program):
            return [math.inf] * len(calls)
        return least_us(
            program,
            _padded_calls(program, calls),
            self._network_of(program),
            self._machine,
            launch=self._launch,
            process_gpus=self._process_gpus,
        )

    def iterate(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        releases_us: Sequence[float],
        *,
        runs: int = 1,
    ) -> tuple[float, ...]:
        """Return the simulated times in us of iterations, each beside another moment's traffic.

        Beside cross traffic the calls of an iteration meet what those of one before it have held
        up: a bucket takes its part of what as many buckets again add to a long call.

        Raises:
            InputError: as ``time``.
        """
        buckets = len(releases_us)
        each_us = self._bucket_us(program, knobs, nbytes, buckets)
        random = Random(1)
        times = []
        for _ in range(runs):
            end_us, bucket_us = 0.0, random.choice(each_us)
            for release_us in releases_us:
                end_us = max(end_us, release_us) + bucket_us
            times.append(end_us)
        return tuple(times)

    def _bucket_us(
        self, program: Program, knobs: Knobs, nbytes: int, buckets: int
    ) -> Sequence[float]:
        if not self._cross:
            return self.time(program, knobs, nbytes).samples_us
        before, both = (
            self.time(program, knobs, nbytes * count, repeats=_ITERATION_REPEATS).samples_us
            for count in (buckets, 2 * buckets)
        )
        return [(more - less) / buckets for less, more in zip(before, both, strict=True)]

    def trace(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        passes: int = 0,
        bins: int = 50,
        loop: StepLoop = MSCCL_LOOP,
    ) -> TracedRun:
        """Return a record of the run that ``time`` reports, with nothing extrapolated.

        Args:
            program: what runs.
            knobs: the backend knobs.
            nbytes: the whole array; rounded up as ``time`` does.
            passes: how many of the first and of the last passes to record span by span; 0 is as
                many as a viewer takes with ease. Totals and use over time always hold for all.
            bins: parts that the run is cut in for the use of links over time.
            loop: how the kernel loops over the chunks.

        Raises:
            Infeasible: the GPUs cannot hold all thread blocks at once.
            InputError: ``time`` refuses the call, or the loop or the record would be too long.
        """
        if self._cross:
            raise InputError("--cross: a call beside cross traffic is not recorded; leave it out")
        self._check(program, loop)
        size, shared = (
            padded(nbytes, program.nchunks),
            self._links(self._network_of(program), loop.multicast),
        )
        trace = simulate_and_record(
            program,
            knobs,
            shared,
            self._machine_of(loop),
            size,
            launch=self._launch,
            process_gpus=self._process_gpus,
            pass_bytes=loop.pass_bytes,
            transfer_slots=loop.transfer_slots,
            bins=bins,
            passes=passes,
        )
        return TracedRun(
            program=program,
            knobs=knobs,
            nbytes=size,
            topology=self._topology,
            network=shared,
            loop=loop,
            launch=self._launch,
            label=self.label,
            trace=trace,
        )

    def _machine_of(self, loop: StepLoop) -> MachineClass:
        return self._machine.replace(host_channel_us=0.0) if loop.launch_plan else self._machine

    def _takes(self, program: Program) -> bool:
        try:
            self._check(program, MSCCL_LOOP)
        except (Infeasible, InputError):
            return False
        return True

    def _check(self, program: Program, loop: StepLoop) -> None:
        ranks = program.ngpus // ((1 + SWITCH_RANKS) if loop.multicast else 1)
        if ranks != self.ranks:
            raise InputError(
                f"program {program.name[:40]!r} is for {ranks} ranks, "
                f"topology {self._topology.name[:40]!r} has {self.ranks}"
            )
        if not loop.multicast and 0 < self._machine.sm_count < program.threadblocks:
            raise Infeasible(
                f"{program.name[:40]}: {program.threadblocks} thread blocks cannot be co-resident "
                f"on the {self._machine.sm_count} SMs of class {self._machine.name!r}"
            )


def _padded_calls(program: Program, calls: Sequence[Call]) -> list[Call]:
    # A size below one is left to be refused.
    return [(knobs, padded(nbytes, program.nchunks)) for knobs, nbytes in calls]


def padded(nbytes: int, nchunks: int) -> int:
    """Return ``nbytes`` rounded up to a multiple of ``nchunks``.

    >>> padded(1000, 16)
    1008
    """
    return -(-nbytes // nchunks) * nchunks
