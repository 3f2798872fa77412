"""Synthesis of programs: collectives, methods, schedules, lowering, bounds."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.program import replicate
    from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS, msccl_default
    from tuccl.synth.bounds.bound import Bound, BoundKind, bound
    from tuccl.synth.bounds.hops import fewest_hops
    from tuccl.synth.candidates import Candidates, SynthesizedProgram, Target
    from tuccl.synth.choose import SearchResult, synthesize_best
    from tuccl.synth.lowering.limits import fork_end, fork_scratch_bytes
    from tuccl.synth.lowering.lower import Placement, lower
    from tuccl.synth.methods import (
        EXACT_METHODS,
        METHODS,
        find_method,
        make_schedule,
        searched_methods,
    )
    from tuccl.synth.model.collective import COLLECTIVES, Collective
    from tuccl.synth.model.problem import SOLVERS, Options, Problem, ScheduleChoice
    from tuccl.synth.model.schedule import Schedule
    from tuccl.synth.mscclpp.knobs import PlanKnobs
    from tuccl.synth.mscclpp.lower import PLAN_COLLECTIVES
    from tuccl.synth.mscclpp.switch import Multicast, switch_plan

__all__ = [
    "COLLECTIVES",
    "EXACT_METHODS",
    "METHODS",
    "MSCCL_DEFAULT_KNOBS",
    "PLAN_COLLECTIVES",
    "SOLVERS",
    "Bound",
    "BoundKind",
    "Candidates",
    "Collective",
    "Multicast",
    "Options",
    "Placement",
    "PlanKnobs",
    "Problem",
    "Schedule",
    "ScheduleChoice",
    "SearchResult",
    "SynthesizedProgram",
    "Target",
    "bound",
    "fewest_hops",
    "find_method",
    "fork_end",
    "fork_scratch_bytes",
    "lower",
    "make_schedule",
    "msccl_default",
    "replicate",
    "searched_methods",
    "switch_plan",
    "synthesize_best",
]

make_lazy(__name__)
