"""Search for the fastest programs and knobs: search space, searches, resumable studies."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.tuning.final_round import FinalRound, beats, entries_of, tuned_sizes
    from tuccl.tuning.joint_search import aligned_size, tune
    from tuccl.tuning.nccl.nccl_sweep import tune_nccl
    from tuccl.tuning.options import SEARCHES, TuneOptions
    from tuccl.tuning.policy_training import SimulatedCall, simulated_calls, train_policy
    from tuccl.tuning.program_search import synthesize
    from tuccl.tuning.programs import ProgramCache, ll128_is_safe
    from tuccl.tuning.rl.policy import Policy, load_policy, save_policy
    from tuccl.tuning.rl.saturation import Saturation
    from tuccl.tuning.rl.search import RlSearch
    from tuccl.tuning.rl.state import State, TrainingJob
    from tuccl.tuning.searches.brackets import Bracket, brackets, highest_bracket
    from tuccl.tuning.searches.convergence import Convergence, divergence
    from tuccl.tuning.searches.measurements import Measurements
    from tuccl.tuning.searches.mraco import MracoSearch
    from tuccl.tuning.searches.search import Request, Search, run_search
    from tuccl.tuning.searches.space import Point, Space
    from tuccl.tuning.studies.reader import Evaluation, StoredStudy, importances, read_studies
    from tuccl.tuning.studies.study import study_folder
    from tuccl.tuning.tuned_table import SizeSummary, TunedTable, TuneResult
    from tuccl.tuning.workload_search import tune_workload

__all__ = [
    "SEARCHES",
    "Bracket",
    "Convergence",
    "Evaluation",
    "FinalRound",
    "Measurements",
    "MracoSearch",
    "Point",
    "Policy",
    "ProgramCache",
    "Request",
    "RlSearch",
    "Saturation",
    "Search",
    "SimulatedCall",
    "SizeSummary",
    "Space",
    "State",
    "StoredStudy",
    "TrainingJob",
    "TuneOptions",
    "TuneResult",
    "TunedTable",
    "aligned_size",
    "beats",
    "brackets",
    "divergence",
    "entries_of",
    "highest_bracket",
    "importances",
    "ll128_is_safe",
    "load_policy",
    "read_studies",
    "run_search",
    "save_policy",
    "simulated_calls",
    "study_folder",
    "synthesize",
    "train_policy",
    "tune",
    "tune_nccl",
    "tune_workload",
    "tuned_sizes",
]

make_lazy(__name__)
