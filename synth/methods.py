"""The methods that make schedules, by name, and their variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.allpairs import (
    ALLPAIRS_COLLECTIVES,
    PAIRED_COLLECTIVES,
    UNORDERED_COLLECTIVES,
    allpairs,
)
from tuccl.synth.classic.fan_in import scratch_preferences
from tuccl.synth.classic.hierarchy import (
    HIERARCHICAL2_COLLECTIVES,
    HIERARCHICAL3_COLLECTIVES,
    HIERARCHICAL_RINGS_COLLECTIVES,
    hierarchical2,
    hierarchical3,
    hierarchical_rings,
)
from tuccl.synth.classic.rail_doubling import DOUBLING_COLLECTIVES, hierarchical_doubling
from tuccl.synth.classic.recursive import RECURSIVE_COLLECTIVES, recursive
from tuccl.synth.classic.ring import RING_COLLECTIVES, ring, rings
from tuccl.synth.few_step.few_step import FEWSTEP_COLLECTIVES, fewstep
from tuccl.synth.greedy.greedy import greedy, greedy_chunks
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.packing.flow import FLOW_COLLECTIVES, flow, flow_chunks
from tuccl.synth.packing.packing import PACKING_COLLECTIVES, packing, packing_chunk_counts
from tuccl.synth.packing.pipelined import PIPELINED_COLLECTIVES, pipelined, pipelined_chunks
from tuccl.synth.taccl.taccl import taccl
from tuccl.topology import Topology


@dataclass(frozen=True)
class Method:
    """A method to make schedules.

    Attributes:
        name: The name in tables, programs and on the command line.
        collectives: Names of the collectives that it can do.
        solve: Returns the schedule of a problem; raises Infeasible where it has none.
        chunk_counts: Chunks per rank that searches try.
        choose_chunk_counts: Returns the chunks per rank worth a try for a collective, a sketch, a
            topology and the most; None: ``chunk_counts``, whatever the problem.
        least_ranks: Ranks below which searches skip it: others are faster.
        most_ranks: The same above: it takes minutes, or others are faster.
        at_scale: Most ranks by collective, where it is another number.
        bitwise_equal: Whether all ranks get equal results: a sum is made once, or by all ranks
            in one order.
        effort_s: Seconds that a schedule takes on a common machine, where it is no moment: time
            limits count them instead of the clock's.
        solver: Whether it runs OR-Tools, within the budget of the options.
        sizeless: Names of the collectives whose schedules are the same at every size.
        summing: Names of those that sum single chunks, and where sizes change nothing else.
        variants: Other forms of it, each named like it, with a plus and what differs.
    """

    name: str
    collectives: frozenset[str]
    solve: Callable[[Problem, Options], Schedule]
    chunk_counts: tuple[int, ...] = (1, 2, 4)
    choose_chunk_counts: (
        Callable[[Collective, Sketch, Topology | None, int], tuple[int, ...]] | None
    ) = None
    least_ranks: int = 0
    most_ranks: int = 128
    at_scale: Mapping[str, int] = field(default_factory=dict)
    bitwise_equal: bool = True
    effort_s: float = 0.01
    solver: bool = False
    sizeless: frozenset[str] = frozenset()
    summing: frozenset[str] = frozenset()
    variants: tuple[Method, ...] = ()

    def suits(self, collective: Collective) -> bool:
        """Return whether searches try it: it does that collective, over so many ranks."""
        most = self.at_scale.get(collective.name, self.most_ranks)
        served = self.least_ranks <= collective.ranks <= most
        return served and collective.name in self.collectives

    def size_key(self, collective: Collective, chunks_per_rank: int, nbytes: int) -> object:
        """Return what its schedule heeds of the size: sizes of one key have equal schedules."""
        if collective.name in self.sizeless:
            return None
        if collective.name in self.summing:
            chunk_bytes = nbytes / collective.nchunks(chunks_per_rank)
            return scratch_preferences(chunk_bytes, collective.ranks)
        return nbytes


_UNROOTED = frozenset(name for name in COLLECTIVES if not Collective(name, 2).rooted)
_ALLGATHER = frozenset({"allgather"})
_SUMMING = frozenset({"allreduce", "reduce-scatter"})
_UNLIMITED = 1 << 30  # ranks
_MOST_CHUNKED = 1024  # ranks up to which each rank's chunks can be planned one by one
_ALLPAIRS_SIZELESS = frozenset({"allgather", "alltoall", "scatter", "gather"})
# Each chunk may be summed in a thread block of its own.
_ALLPAIRS_CHUNKS = (1, 2, 4, 8)
# Whether pairs of ranks send as one, whether sums take values as they arrive, and what for.
_ALLPAIRS_VARIANTS = (
    ("", False, False, ALLPAIRS_COLLECTIVES),
    ("+paired", True, False, PAIRED_COLLECTIVES),
    ("+any-order", False, True, UNORDERED_COLLECTIVES),
    ("+paired+any-order", True, True, UNORDERED_COLLECTIVES),
)
_ALLPAIRS, *_VARIANTS = (
    Method(
        f"allpairs{variant}",
        collectives,
        partial(allpairs, paired=paired, unordered=unordered),
        _ALLPAIRS_CHUNKS,
        # Beyond, more steps than a thread block of the executor's may have.
        at_scale={"allreduce": 32},
        bitwise_equal=not unordered,
        sizeless=frozenset() if unordered else _ALLPAIRS_SIZELESS & collectives,
    )
    for variant, paired, unordered, collectives in _ALLPAIRS_VARIANTS
)
# Where there are few ranks others are faster; in parts, many take as many times as long to make.
_DOUBLING, _SPLIT = (
    Method(
        f"hierarchical-doubling{'+split' * split}",
        DOUBLING_COLLECTIVES,
        partial(hierarchical_doubling, split=split),
        least_ranks=129,
        most_ranks=_MOST_CHUNKED if split else _UNLIMITED,
    )
    for split in (False, True)
)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ring", RING_COLLECTIVES, ring, sizeless=_UNROOTED),
        Method("rings", RING_COLLECTIVES, rings, sizeless=_UNROOTED),
        Method(
            "recursive",
            RECURSIVE_COLLECTIVES,
            recursive,
            at_scale={"allreduce": _UNLIMITED},
            sizeless=RECURSIVE_COLLECTIVES - {"allreduce"},
        ),
        replace(_ALLPAIRS, variants=tuple(_VARIANTS)),
        Method(
            "hierarchical2",
            HIERARCHICAL2_COLLECTIVES,
            hierarchical2,
            at_scale={"alltoall": _UNLIMITED},
            sizeless=_ALLGATHER,
            summing=_SUMMING,
        ),
        Method(
            "hierarchical-rings",
            HIERARCHICAL_RINGS_COLLECTIVES,
            hierarchical_rings,
            (1, 2),
            sizeless=_ALLGATHER,
            summing=_SUMMING,
        ),
        Method(
            "hierarchical3",
            HIERARCHICAL3_COLLECTIVES,
            hierarchical3,
            at_scale=dict.fromkeys(
                HIERARCHICAL3_COLLECTIVES - HIERARCHICAL_RINGS_COLLECTIVES, _UNLIMITED
            ),
            sizeless=_ALLGATHER,
        ),
        replace(_DOUBLING, variants=(_SPLIT,)),
        Method(
            "greedy",
            frozenset(COLLECTIVES),
            greedy,
            choose_chunk_counts=greedy_chunks,
            at_scale=dict.fromkeys(
                ("allgather", "reduce-scatter", "gather", "scatter"), _MOST_CHUNKED
            ),
            effort_s=0.1,
        ),
        Method(
            "packing",
            PACKING_COLLECTIVES,
            packing,
            choose_chunk_counts=packing_chunk_counts,
            # Beyond, trees of one root take minutes, and more thread blocks than a GPU runs.
            at_scale={
                name: _MOST_CHUNKED if name in _UNROOTED else 256 for name in PACKING_COLLECTIVES
            },
            effort_s=0.2,
            sizeless=PACKING_COLLECTIVES,
        ),
        Method(
            "pipelined",
            PIPELINED_COLLECTIVES,
            pipelined,
            choose_chunk_counts=pipelined_chunks,
            at_scale=dict.fromkeys(("allgather", "reduce-scatter"), _MOST_CHUNKED),
        ),
        Method("flow", FLOW_COLLECTIVES, flow, choose_chunk_counts=flow_chunks),
        Method("fewstep", FEWSTEP_COLLECTIVES, fewstep, effort_s=1.0, solver=True),
    )
}

EXACT_METHODS: dict[str, Method] = {
    "taccl": Method("taccl", frozenset(COLLECTIVES), taccl, (1,), solver=True)
}
"""Methods that run a solver for seconds; no search tries them unless a user names them."""


def searched_methods(*, unordered: bool = False) -> tuple[str, ...]:
    """Return the names that searches try: with ``unordered`` also those without equal results.

    >>> [name for name in searched_methods() if name.startswith("allpairs")]
    ['allpairs', 'allpairs+paired']
    """
    forms = (form for method in METHODS.values() for form in (method, *method.variants))
    return tuple(form.name for form in forms if form.bitwise_equal or unordered)


def find_method(name: str) -> Method:
    """Return the method or the variant of that name.

    Raises:
        InputError: there is none; names those that there are.
    """
    names = (*searched_methods(unordered=True), *EXACT_METHODS)
    if name not in names:
        if (variant := name.replace("-paired", "+paired").replace("-any", "+any")) in names:
            raise InputError(f"method {name} is now {variant}")
        raise InputError(f"method {name[:40]!r}: expected one of {', '.join(names)}")
    base = name.partition("+")[0]
    method = METHODS.get(base) or EXACT_METHODS[base]
    return next(form for form in (method, *method.variants) if form.name == name)


def make_schedule(problem: Problem, method: str, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the schedule of `method`, a name that `find_method` knows, for `problem`.

    Raises:
        Infeasible: the method cannot do it under this sketch; the message names the rule.
        InputError: there is no such method, or it lacks its solver.
    """
    entry, name = find_method(method), problem.collective.name
    if name not in entry.collectives:
        able = ", ".join(m.name for m in METHODS.values() if name in m.collectives)
        raise Infeasible(f"{method} does not do {name}; these methods do: {able}")
    if problem.collective.groups is not None and method != "greedy":
        raise Infeasible(f"{method} does not do {name} in groups; greedy does")
    return entry.solve(problem, options)
