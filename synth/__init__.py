"""Synthesis of programs: collectives, methods, schedules, lowering, bounds."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.program import replicate
    from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS, msccl_default
    from tuccl.synth.baseline.nccl import nccl_program
    from tuccl.synth.bounds.bound import Bound, BoundKind, bound
    from tuccl.synth.bounds.hops import fewest_hops
    from tuccl.synth.candidates import Candidates, SynthesizedProgram, Target
    from tuccl.synth.choose import SearchResult, synthesize_best
    from tuccl.synth.lowering.limits import fork_end, fork_scratch_bytes
    from tuccl.synth.lowering.lower import Placement, lower
    from tuccl.synth.methods import EXACT_METHODS, METHODS, Method, make_schedule, searched_methods
    from tuccl.synth.model.collective import COLLECTIVES, Collective
    from tuccl.synth.model.problem import Options, Problem, ScheduleChoice
    from tuccl.synth.model.schedule import Address, Proof, Schedule, Transfer
    from tuccl.synth.model.solver import Budget
    from tuccl.synth.model.trace import Trace
    from tuccl.synth.mscclpp.knobs import PlanKnobs
    from tuccl.synth.mscclpp.lower import PLAN_COLLECTIVES, lower_to_plan
    from tuccl.synth.mscclpp.switch import SWITCH_COLLECTIVES, Multicast, switch_plan

__all__ = [
    "COLLECTIVES",
    "EXACT_METHODS",
    "METHODS",
    "MSCCL_DEFAULT_KNOBS",
    "PLAN_COLLECTIVES",
    "SWITCH_COLLECTIVES",
    "Address",
    "Bound",
    "BoundKind",
    "Budget",
    "Candidates",
    "Collective",
    "Method",
    "Multicast",
    "Options",
    "Placement",
    "PlanKnobs",
    "Problem",
    "Proof",
    "Schedule",
    "ScheduleChoice",
    "SearchResult",
    "SynthesizedProgram",
    "Target",
    "Trace",
    "Transfer",
    "bound",
    "fewest_hops",
    "fork_end",
    "fork_scratch_bytes",
    "lower",
    "lower_to_plan",
    "make_schedule",
    "msccl_default",
    "nccl_program",
    "replicate",
    "searched_methods",
    "switch_plan",
    "synthesize_best",
]

make_lazy(__name__)
