"""Candidate programs: the call that they are for, the sketches, methods and knobs to try."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from tuccl.errors import Infeasible
from tuccl.program import Knobs, Program
from tuccl.simulation import MachineClass, Network, simulate
from tuccl.sketches import Sketch
from tuccl.sketches.parameters import MOST_MESHED
from tuccl.synth.bounds.bound import bound
from tuccl.synth.bounds.hops import fewest_hops, longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.classic.local_routes import slowest
from tuccl.synth.lowering.lower import claims_size, lower
from tuccl.synth.methods import EXACT_METHODS, find_method, searched_methods
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.topology import Topology, network

_MOST_CHUNKS = 8
# The order in which methods are tried where latency decides, and where bandwidth does.
_FOR_LATENCY = [
    "allpairs",
    "allpairs+paired",
    "allpairs+any-order",
    "allpairs+paired+any-order",
    "recursive",
    "hierarchical2",
    "hierarchical-doubling",
    "hierarchical-doubling+split",
    "fewstep",
    "hierarchical3",
    "pipelined",
    "greedy",
    "ring",
    "rings",
    "packing",
    "flow",
]
_FOR_BANDWIDTH = [
    "packing",
    "flow",
    "hierarchical2",
    "hierarchical3",
    "hierarchical-doubling+split",
    "hierarchical-doubling",
    "rings",
    "pipelined",
    "allpairs",
    "hierarchical-rings",
    "allpairs+paired",
    "ring",
    "recursive",
    "greedy",
]
# Size from which, on 8 ranks, and the protocols and channels by which a schedule is judged first.
_FIRST_KNOBS = (
    (8 << 20, ("Simple", "LL128", "LL"), 8),
    (512 << 10, ("LL128", "Simple", "LL"), 4),
    (64 << 10, ("LL128", "LL", "Simple"), 2),
    (0, ("LL", "LL128", "Simple"), 1),
)


@dataclass(frozen=True, slots=True)
class SynthesizedProgram:
    """A program, its schedule, and its simulated time in us at the size of the target.

    Attributes:
        program: Verified.
        sketch: Name of the sketch.
        schedule: The schedule that it was lowered from.
        knobs: Protocol, channels and threads that it is made for.
        time_us: Simulated.
        seconds: Time that making it took, as far as it was not made for others already.
        fraction_of_bound: The part of the bound that the program's busiest link allows; NaN of
            calls in groups.
        hops: Messages that wait for each other, at most.
    """

    program: Program
    sketch: str
    schedule: Schedule
    knobs: Knobs
    time_us: float
    seconds: float
    fraction_of_bound: float
    hops: int

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.schedule.method

    @property
    def chunks_per_rank(self) -> int:
        """Return the chunks of each rank's part."""
        return self.schedule.chunks_per_rank

    @property
    def proof(self) -> Proof | None:
        """Return what an exact method proved, by the costs of the sketch."""
        return self.schedule.proof

    @property
    def outcome(self) -> str:
        """Return in words what is proved of its steps, by a method that counts them."""
        return self.schedule.outcome

    @property
    def rank(self) -> tuple[float, str, str, int]:
        """Return the key that orders programs: time first."""
        return self.time_us, self.method, self.sketch, self.chunks_per_rank


@dataclass(frozen=True)
class Target:
    """The call that programs are made and timed for.

    Attributes:
        topology: The machine.
        collective: The collective, with its root.
        nbytes: Bytes of the whole buffer.
        machine: Rates of its class, for the simulator.
        dialect: The dialect whose limits hold: ``executor``, ``rccl`` or ``fork``.
    """

    topology: Topology
    collective: Collective
    nbytes: int
    machine: MachineClass
    dialect: str = "executor"

    def program(
        self, schedule: Schedule, sketch: str, knobs: Knobs, seconds: float = 0.0
    ) -> SynthesizedProgram:
        """Return the program of a schedule, which itself took `seconds`.

        Raises:
            Infeasible: it does not fit.
        """
        begun = time.monotonic()
        program = lower(
            schedule,
            protocol=knobs.protocol,
            instances=knobs.channels,
            dialect=self.dialect,
        )
        _check_residency(program, self.machine)
        if not claims_size(program, self.nbytes, self.dialect):
            raise Infeasible(
                f"{program.name[:60]}: sends before it receives, which is safe below "
                f"{self.nbytes} bytes only; use protocol LL, more channels or another method"
            )
        links = network(self.topology, schedule.sent)
        time_us = simulated_us(program, knobs, links, self.machine, self.nbytes)
        if not math.isfinite(time_us):
            raise Infeasible(f"{program.name[:60]}: its simulation found no time")
        return SynthesizedProgram(
            program,
            sketch,
            schedule,
            knobs,
            time_us,
            seconds + time.monotonic() - begun,
            math.nan
            if self.collective.groups
            else fraction_of_bound(program, self.topology, self.collective, links),
            longest_chain(schedule),
        )

    def favours_bandwidth(self, sketch: Sketch) -> bool:
        """Return whether the bound by bytes exceeds that by messages in a row at this size."""
        alpha_us, _ = slowest(sketch, sketch.pairs)
        latency_us = fewest_hops(self.topology, self.collective) * alpha_us
        return bound(self.topology, self.collective).time_us(self.nbytes) > 2 * latency_us


@dataclass(frozen=True)
class Candidates:
    """The programs that a search tries: every method on every sketch.

    Attributes:
        sketches: The sketches, the most promising first.
        knobs: Protocols, channels and threads to choose from. Schedules are judged by those that
            suit the size; for the fastest, the others are tried too.
        methods: Names of `find_method`.
        chunk_counts: Chunks per rank; None: those that each method finds worth a try.
        allows: Whether a schedule may run by some knobs.
    """

    sketches: Sequence[Sketch]
    knobs: Sequence[Knobs]
    methods: Sequence[str] = searched_methods()
    chunk_counts: Sequence[int] | None = None
    allows: Callable[[Schedule, Knobs], bool] = lambda schedule, knobs: True

    def __post_init__(self) -> None:
        """Refuse methods that do not exist."""
        for name in self.methods:
            find_method(name)

    def ordered(self, target: Target) -> list[tuple[Sketch, str]]:
        """Return the pairs of sketch and method, those that the bound favours at this size first.

        Methods that suit the size have several sketches tried before others have their first.
        """
        pairs = [
            (number, sketch, name)
            for (number, sketch), name in product(enumerate(self.sketches), self.methods)
            if len(self.methods) == 1
            or name in EXACT_METHODS
            or (
                target.collective.name in find_method(name).collectives
                and find_method(name).suits(target.collective)
            )
        ]
        if len(self.methods) > 1:
            large = target.favours_bandwidth(self.sketches[0])
            order = _FOR_BANDWIDTH if large else _FOR_LATENCY
            position = {
                name: order.index(name) if name in order else len(order)
                for name in self.methods
                if name not in EXACT_METHODS
            }
            pairs.sort(
                key=lambda p: (position.get(p[2], 0) // 3 + p[0], p[0], position.get(p[2], 0))
            )
        return [(sketch, name) for _, sketch, name in pairs]

    def counts(self, target: Target, sketch: Sketch, name: str) -> Sequence[int]:
        """Return the chunks per rank to try."""
        method = find_method(name)
        choose = method.choose_chunk_counts
        if not self.chunk_counts and not choose and target.topology.ranks > MOST_MESHED:
            return method.chunk_counts[:1]
        if self.chunk_counts or not choose or target.collective.name not in method.collectives:
            return self.chunk_counts or method.chunk_counts
        try:
            return choose(target.collective, sketch, target.topology, _MOST_CHUNKS)
        except Infeasible:
            return (1,)  # the method itself says why

    def first_knobs(self, target: Target, schedule: Schedule) -> list[Knobs]:
        """Return the knobs that suit the size, then the same with fewer channels.

        Protocols that ``schedule`` may not run by are passed over, unless it may by none.
        """
        size = target.nbytes * 8 // target.topology.ranks
        protocols, most = next(entry[1:] for entry in _FIRST_KNOBS if size >= entry[0])
        if target.topology.ranks > MOST_MESHED:
            most = 1  # many ranks keep links busy by one, and each more takes as long to make
        offered = {knobs.protocol for knobs in self.knobs if self.allows(schedule, knobs)}
        protocol = next((each for each in protocols if each in offered), self.knobs[0].protocol)
        some = sorted((k for k in self.knobs if k.protocol == protocol), key=lambda k: -k.channels)
        return [knobs for knobs in some if knobs.channels <= most] or some[-1:]


def _check_residency(program: Program, machine: MachineClass) -> None:
    """Refuse a program whose thread blocks would wait for ever for each other to start."""
    if machine.sm_count and program.threadblocks > machine.sm_count:
        raise Infeasible(
            f"{program.threadblocks} thread blocks cannot be co-resident on the "
            f"{machine.sm_count} SMs of class {machine.name!r}; use fewer channels"
        )


def simulated_us(
    program: Program, knobs: Knobs, links: Network, machine: MachineClass, nbytes: int
) -> float:
    """Return the simulated time of the GPUs in us, with `nbytes` rounded up to whole chunks."""
    rounded = -(-nbytes // program.nchunks) * program.nchunks
    return simulate(program, knobs, links, machine, rounded).gpu_us
