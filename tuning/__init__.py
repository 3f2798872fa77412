"""Search for the fastest programs and knobs: search space, searches, resumable studies."""

from tuccl.runtime.executors.knob_grid import (
    CHANNELS,
    PROTOCOLS,
    THREADS,
)
from tuccl.tuning.brackets import Bracket, Rung, brackets, highest_bracket
from tuccl.tuning.convergence import Convergence, divergence
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.final_round import FinalRound, TimedPoint, beats, entries_of, tuned_sizes
from tuccl.tuning.initial_points import default_point, initial_points
from tuccl.tuning.measurements import Measurements
from tuccl.tuning.mraco import MracoSearch
from tuccl.tuning.nccl_sweep import tune_nccl
from tuccl.tuning.options import SEARCHES, TuneOptions
from tuccl.tuning.plain_searches import CoordinateSearch, GridSearch, RandomSearch
from tuccl.tuning.programs import Programs, VerifiedProgram, ll128_is_safe
from tuccl.tuning.search import Request, Search, run
from tuccl.tuning.space import Dimension, Plan, Point, Space
from tuccl.tuning.study import Studies, Study, study_folder
from tuccl.tuning.tune import SizeSummary, TuneResult, even_size, tune

__all__ = [
    "CHANNELS",
    "PROTOCOLS",
    "SEARCHES",
    "THREADS",
    "Bracket",
    "Convergence",
    "CoordinateSearch",
    "Dimension",
    "Evaluator",
    "FinalRound",
    "GridSearch",
    "Measurements",
    "MracoSearch",
    "Plan",
    "Point",
    "Programs",
    "RandomSearch",
    "Request",
    "Rung",
    "Search",
    "SizeSummary",
    "Space",
    "Studies",
    "Study",
    "TimedPoint",
    "TuneOptions",
    "TuneResult",
    "VerifiedProgram",
    "beats",
    "brackets",
    "default_point",
    "divergence",
    "entries_of",
    "even_size",
    "highest_bracket",
    "initial_points",
    "ll128_is_safe",
    "run",
    "study_folder",
    "tune",
    "tune_nccl",
    "tuned_sizes",
]
