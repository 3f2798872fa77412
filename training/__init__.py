"""Data-parallel training: what a tuned table saves a step; schedules, their cost, their runs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.training.advice import Advice
    from tuccl.training.costs import Costs, c2c_by_operations
    from tuccl.training.journal import Journal
    from tuccl.training.methods import GRADIENT_METHODS, GradientMethod, method_of
    from tuccl.training.model import Model
    from tuccl.training.model_files import load_model
    from tuccl.training.pictures import timeline_svg, timeline_trace
    from tuccl.training.reference_models import reference_model
    from tuccl.training.rows import TrainingRow
    from tuccl.training.simulated_costs import simulated_costs
    from tuccl.training.simulation import TrainingRun, simulate_training

__all__ = [
    "GRADIENT_METHODS",
    "Advice",
    "Costs",
    "GradientMethod",
    "Journal",
    "Model",
    "TrainingRow",
    "TrainingRun",
    "c2c_by_operations",
    "load_model",
    "method_of",
    "reference_model",
    "simulate_training",
    "simulated_costs",
    "timeline_svg",
    "timeline_trace",
]

make_lazy(__name__)
