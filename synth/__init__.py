"""Which chunk moves where and when: collectives, schedules, methods, lowering, bounds."""

from tuccl.synth.baselines import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.bounds import Bound, bound, time_bound_us
from tuccl.synth.choose import Synthesized, synthesize_best
from tuccl.synth.collective import COLLECTIVES, Collective
from tuccl.synth.lower import lower
from tuccl.synth.methods import METHODS, Method, synthesize
from tuccl.synth.nccl import nccl_program
from tuccl.synth.replicate import replicate
from tuccl.synth.schedule import Address, Schedule, Transfer
from tuccl.synth.trace import Trace

__all__ = [
    "COLLECTIVES",
    "METHODS",
    "MSCCL_DEFAULT_KNOBS",
    "Address",
    "Bound",
    "Collective",
    "Method",
    "Schedule",
    "Synthesized",
    "Trace",
    "Transfer",
    "bound",
    "lower",
    "msccl_default",
    "nccl_program",
    "replicate",
    "synthesize",
    "synthesize_best",
    "time_bound_us",
]
