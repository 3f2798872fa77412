"""The executors' contract: run a program and say how long it took."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.cross_load import CarriedLoad
from tuccl.runtime.executors.knob_grid import WHOLE_GRID, KnobGrid
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.context import JobContext
from tuccl.simulation import Network, SimTrace
from tuccl.topology import Topology

if TYPE_CHECKING:
    from tuccl.mscclpp import ExecutionPlan

Call = tuple[Knobs, int]
"""The knobs of a call and the bytes of its whole array."""


class StepLoop(NamedTuple):
    """The loop of a kernel over a program's tiles and steps, where it is not MSCCL's interpreter.

    Attributes:
        pass_bytes: Most payload of a chunk in one pass; 0: all that the slots of a transfer hold.
        transfer_slots: Slots of the FIFO that a transfer takes; 0: the protocol's (4 for Simple).
        multicast: The program's last ranks are those of NVLink switches (NVLS): simulated only.
        launch_plan: The host hands over the work of all channels at once, as NCCL's kernel plans
            do from 2.14 on; before, a channel costs it `host_channel_us`: simulated only.
        runtime_choice: The program only names the collective; a real runtime runs what it chooses.
        windows: The buffers are registered as symmetric windows (NCCL 2.27 on).
        nccl: Knobs of the runtime's choice; None: all are its own.
        library: Whose own collective runs, of `Executor.libraries`; "": the runtime's.

    Notes:
        NCCL's rings run as the interpreter does; its trees, lines and grouped sends take a slot
        a transfer (NCCL src/include/collectives.h), trees in passes as small as keeps all of
        their hops busy (src/enqueue.cc).
    """

    pass_bytes: int = 0
    transfer_slots: int = 0
    multicast: bool = False
    launch_plan: bool = False
    runtime_choice: bool = False
    windows: bool = False
    nccl: NcclKnobs | None = None
    library: str = ""


MSCCL_LOOP = StepLoop()
RUNTIME_CHOICE = StepLoop(runtime_choice=True)
WINDOWS = StepLoop(runtime_choice=True, windows=True)
EXACT_TO = 1.25
"""Times the best that a search has: what takes longer need not be timed exactly."""


@dataclass(frozen=True)
class Timing:
    """Time of one collective call in us, out of place and in place.

    A placement that the program does not claim has None. ``samples_us`` holds the repeats of
    the placement that ``us`` names, ``samples_us_ip`` those in place, where the executor keeps
    them; ``on`` says what ran it ("sim", "mpi", "cuda",
    "loopback", "nccl-tests", "mscclpp"); ``wrong`` counts wrong elements, None where none were
    compared; ``first_wrong`` is the first of them; ``runs`` is the number of timed runs behind
    ``us``, 0 where none was measured; ``sms`` are the thread blocks that
    ran on a GPU, 0: the program's own; ``scenarios_us`` the times under each scenario by name
    where ``us`` reduces several (`ScenarioExecutor`).

    >>> Timing(12.0, None, (12.0,), "sim", None).us
    12.0
    """

    time_us: float | None
    time_us_ip: float | None
    samples_us: tuple[float, ...]
    on: str
    wrong: int | None = None
    samples_us_ip: tuple[float, ...] = ()
    runs: int = 0
    first_wrong: str = ""
    sms: int = 0
    scenarios_us: tuple[tuple[str, float], ...] = ()

    @property
    def us(self) -> float:
        """Time in us out of place, or in place where the program claims nothing else."""
        time_us = self.time_us if self.time_us is not None else self.time_us_ip
        if time_us is None:
            raise ValueError("a timing without any time")
        return time_us


@dataclass(frozen=True)
class TracedRun:
    """A simulated call that was walked whole; ``nbytes`` is the whole array in bytes.

    ``trace`` holds what happened when, in us; ``label`` says that it is simulated, and on what;
    ``launch`` is the host term that was paid, and ``network`` what the program crossed. Each read
    of a list of ``trace`` copies it: read it once.

    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> run = SimExecutor(host).trace(program, Knobs(), 1 << 20)
    >>> run.trace.result.time_us == SimExecutor(host).time(program, Knobs(), 1 << 20).us
    True
    """

    program: Program
    knobs: Knobs
    nbytes: int
    topology: Topology
    network: Network
    loop: StepLoop
    launch: str
    label: str
    trace: SimTrace


class Executor(ABC):
    """Runs programs on one machine: simulated, over MPI, on threads, by nccl-tests.

    ``time`` never changes the program or the knobs it is given. A call that cannot be run raises
    InputError, never returns a guess. What callers need to know of an executor they read from
    its attributes; none checks which class it is of.

    Attributes:
        name: Short name for tables: "sim", "mpi", "loopback", "cuda", "nccl-tests" or "mscclpp".
        ranks: Ranks of the machine; a program must have as many.
        simulated: Times come from a model of the machine, which has what only a model has (the
            multicast of an NVLink switch).
        deterministic: Repeats of a call are equal, so that one is enough.
        full_effort: Repeats that make a sure time, a power of 3 (the ratio of a search's rungs).
        runs_plans: Programs run as execution plans of MSCCL++, and plans run as they are.
        runs_nccl: What it calls "nccl" is NCCL itself, not a program like what NCCL chooses.
        loads: What the traffic of others carried during each time so far, where there is any.
        default_baseline: What a call without a table gets: NCCL on GPUs, untuned MSCCL on CPUs.
        libraries: Others whose own collectives run on the same ranks, by name.
    """

    name: str
    ranks: int
    simulated = False
    deterministic = False
    full_effort = 27
    runs_plans = False
    runs_nccl = False
    default_baseline: str = "nccl"
    loads: Sequence[CarriedLoad] = ()
    libraries: tuple[str, ...] = ()

    @property
    def context(self) -> JobContext | None:
        """Context of the ranks where real runs are timed; None: it does not matter."""
        return None

    @property
    def topology(self) -> Topology | None:
        """The machine with the rates that it has now; None where only its ranks are known."""
        return None

    @property
    def planned_topology(self) -> Topology | None:
        """The machine with the rates to make programs for and to bound times by; None: its own."""
        return self.topology

    @property
    def burst_us(self) -> float:
        """The time in us that full token buckets save a run at most."""
        return 0.0

    @property
    @abstractmethod
    def label(self) -> str:
        """One phrase for figures: whether simulated or measured, and on what."""

    @property
    def of_defaults(self) -> Executor:
        """The executor that times the defaults to beat: itself, where they run as programs do."""
        return self

    @property
    def of_search(self) -> Executor:
        """The executor that a search goes by, before this one chooses among its best."""
        return self

    def of_part(self, part: Topology) -> Executor | None:
        """Return what times a part of the machine like this one; None: only the whole is timed."""
        return None

    @property
    def supported_knobs(self) -> KnobGrid:
        """The knobs that change what it does, each value that it distinguishes."""
        return WHOLE_GRID

    def time_plan(self, plan: ExecutionPlan, nbytes: int, *, repeats: int = 1) -> Timing:
        """Return the time of an execution plan of MSCCL++ on the whole array of ``nbytes`` bytes.

        Raises:
            InputError: the executor runs no plans, or not this one at this size.
        """
        raise InputError(f"--on {self.name}: runs no plans; use --on sim or mscclpp")

    def iterate(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        releases_us: Sequence[float],
        *,
        runs: int = 1,
    ) -> tuple[float, ...]:
        """Return the times in us of iterations of a job: ``program`` once a bucket of ``nbytes``.

        Buckets are reduced one after another, none before its release in us of the iteration.

        Raises:
            InputError: the executor runs no iterations; and what ``time`` raises.
        """
        raise InputError(f"--on {self.name}: runs no iterations; use --on sim or mpi")

    def pinned_knobs(self) -> tuple[str, ...]:
        """Return sentences on knobs of which a search tries fewer values than there are."""
        if restrictions := self.supported_knobs.restrictions():
            searched = "; ".join(restrictions)
            why = f"on {self.name} other knobs change nothing or cannot be set"
            return (f"{why}, so that {searched} are searched",)
        return ()

    @abstractmethod
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
        """Return the time of ``program`` on the whole array of ``nbytes`` bytes.

        Raises:
            InputError: the program is for another number of ranks, or cannot be run.
        """

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
        """Return what ``time`` returns, or roughly that over `EXACT_TO` times ``best_us``."""
        return self.time(program, knobs, nbytes, root=root, repeats=repeats, loop=loop)

    def time_all(self, program: Program, calls: Sequence[Call], *, root: int = 0) -> list[float]:
        """Return the time in us of each of ``program``'s ``calls``, one repeat each.

        It is that of ``time``'s ``us``, and infinite where ``time`` refuses the call.
        """
        times_us = []
        for knobs, nbytes in calls:
            try:
                times_us.append(self.time(program, knobs, nbytes, root=root).us)
            except (Infeasible, InputError):
                times_us.append(math.inf)
        return times_us

    def least_us(self, program: Program, calls: Sequence[Call]) -> list[float]:
        """Return a time in us for each of ``calls`` that it cannot be under; 0 where none is known.

        Nothing is run for this.
        """
        return [0.0] * len(calls)

    def obeys(self, collective: str, nbytes: int, knobs: NcclKnobs, root: int = 0) -> bool:
        """Return whether the runtime is seen to run NCCL's ``knobs`` when they are set."""
        return True

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
        """Return a record of the run of ``program``, where the executor can keep one.

        Raises:
            InputError: it records nothing; and what ``time`` raises.
        """
        raise InputError(f"--on {self.name}: records nothing, expected sim")

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what is held; may be called twice."""

    def __enter__(self) -> Self:
        """Return itself; ``close`` comes at the end of the ``with`` statement."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close, and let any error pass."""
        self.close()
