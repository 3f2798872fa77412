"""The argument of every method: a problem, and options for how to search."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology

SOLVERS = frozenset({"fewstep", "taccl"})
"""Methods that run a solver: a search runs them where `STAND_IN` is fastest."""

STAND_IN = "greedy"
"""The method whose quick programs choose the sketches that a solver is worth its time on."""


@dataclass(frozen=True, order=True)
class ScheduleChoice:
    """The method, sketch and chunks a rank that a schedule is made by."""

    sketch: str
    method: str
    chunks_per_rank: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A collective to schedule over the links of a sketch.

    Attributes:
        collective: The collective, with its number of ranks and its root.
        sketch: The links that may be used, and relay rules.
        chunks_per_rank: Chunks that each rank's part of the whole buffer is cut into.
        nbytes: Bytes of the whole buffer, as nccl-tests counts them; variants of a method are
            chosen for this size.
        topology: The machine of the sketch, for methods that look at shared links; None where
            only the sketch is known.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology import load_profile
    >>> topology = load_profile("v100x4")
    >>> Problem(Collective("allgather", 4), full_mesh(topology), 2, 1 << 20, topology).nchunks
    8

    Raises:
        InputError: the numbers of ranks differ, or there is no chunk or byte.
    """

    collective: Collective
    sketch: Sketch
    chunks_per_rank: int = 1
    nbytes: int = 1 << 20
    topology: Topology | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that contradict each other."""
        collective, sketch = self.collective, self.sketch
        if collective.ranks != sketch.ranks:
            raise InputError(
                f"{collective.name} over {collective.ranks} ranks on sketch {sketch.name[:60]} of "
                f"{sketch.ranks} ranks: expected the same number"
            )
        if self.topology is not None and self.topology.ranks != sketch.ranks:
            raise InputError(
                f"sketch {sketch.name[:60]} of {sketch.ranks} ranks on a topology of "
                f"{self.topology.ranks}: expected the same number"
            )
        if self.chunks_per_rank < 1 or self.nbytes < 1:
            raise InputError(
                f"{self.chunks_per_rank} chunks per rank, {self.nbytes} bytes: expected at least "
                "1 of each"
            )

    @property
    def nchunks(self) -> int:
        """Return the chunks of the whole buffer."""
        return self.collective.nchunks(self.chunks_per_rank)

    @property
    def chunk_bytes(self) -> float:
        """Return the bytes of a chunk."""
        return self.nbytes / self.nchunks


@dataclass(frozen=True, slots=True)
class Options:
    """Effort and seed of a search; methods ignore the options that they have no use for.

    Attributes:
        seed: Seed of random choices; equal seeds give equal schedules on any number of threads.
        starts: Random starts for each plan; 0: as many as take about a second.
        threads: Threads at most.
        steps: Messages in a row that `fewstep` may use; None: as few as pay at the size.
        budget: Seconds and effort of a solver, and the function it reports to; None: the method's
            own default.

    Raises:
        InputError: a number is out of range.
    """

    seed: int = 0
    starts: int = 0
    threads: int = 2
    steps: int | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        """Refuse what the native search cannot count."""
        if not 0 <= self.seed < 1 << 63 or not 0 <= self.starts <= 1_000_000:
            raise InputError(
                f"seed {self.seed}, {self.starts} starts: expected a seed of 0 to 2^63 - 1 and at "
                "most 1000000 starts"
            )


DEFAULT_OPTIONS = Options()
