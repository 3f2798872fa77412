"""Which chunk moves where and when: collectives, schedules, methods, lowering, bounds."""

from tuccl.synth.baselines import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.bounds import Bound, bound, time_bound_us
from tuccl.synth.choose import Synthesized, synthesize_best
from tuccl.synth.collective import COLLECTIVES, Collective
from tuccl.synth.exact import Solution, schedule_of, solve
from tuccl.synth.exact_check import plan_fault, plan_time_us
from tuccl.synth.exact_costs import Costs, sketch_costs, taccl_costs
from tuccl.synth.exact_plan import Message
from tuccl.synth.exact_solver import Budget
from tuccl.synth.hops import fewest_hops
from tuccl.synth.improve import Improved, Improvement, improve
from tuccl.synth.lower import lower
from tuccl.synth.methods import EXACT_METHODS, METHODS, Method, synthesize
from tuccl.synth.nccl import nccl_program
from tuccl.synth.replicate import replicate
from tuccl.synth.schedule import Address, Proof, Schedule, Transfer
from tuccl.synth.trace import Trace

__all__ = [
    "COLLECTIVES",
    "EXACT_METHODS",
    "METHODS",
    "MSCCL_DEFAULT_KNOBS",
    "Address",
    "Bound",
    "Budget",
    "Collective",
    "Costs",
    "Improved",
    "Improvement",
    "Message",
    "Method",
    "Proof",
    "Schedule",
    "Solution",
    "Synthesized",
    "Trace",
    "Transfer",
    "bound",
    "fewest_hops",
    "improve",
    "lower",
    "msccl_default",
    "nccl_program",
    "plan_fault",
    "plan_time_us",
    "replicate",
    "schedule_of",
    "sketch_costs",
    "solve",
    "synthesize",
    "synthesize_best",
    "taccl_costs",
    "time_bound_us",
]
