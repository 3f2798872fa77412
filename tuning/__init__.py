"""Search for the fastest programs and knobs: search space, searches, resumable studies."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.tuning.final_round import beats, tuned_sizes
    from tuccl.tuning.joint_search import aligned_size, tune
    from tuccl.tuning.options import SEARCHES, TuneOptions
    from tuccl.tuning.policy_training import train_policy
    from tuccl.tuning.program_search import synthesize
    from tuccl.tuning.rl.policy import load_policy, save_policy
    from tuccl.tuning.rl.saturation import Saturation
    from tuccl.tuning.rl.state import TrainingJob
    from tuccl.tuning.studies.reader import StoredStudy, importances, read_studies
    from tuccl.tuning.studies.study import study_folder
    from tuccl.tuning.tuned_table import SizeSummary, TunedTable, TuneResult
    from tuccl.tuning.workload_search import tune_workload

__all__ = [
    "SEARCHES",
    "Saturation",
    "SizeSummary",
    "StoredStudy",
    "TrainingJob",
    "TuneOptions",
    "TuneResult",
    "TunedTable",
    "aligned_size",
    "beats",
    "importances",
    "load_policy",
    "read_studies",
    "save_policy",
    "study_folder",
    "synthesize",
    "train_policy",
    "tune",
    "tune_workload",
    "tuned_sizes",
]

make_lazy(__name__)
