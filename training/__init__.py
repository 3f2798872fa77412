"""Data-parallel training: what a tuned table saves a step; schedules, their cost, their runs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.training.advice import Advice, advise, workload_json
    from tuccl.training.bucket_schedule import Bucket, BucketSchedule
    from tuccl.training.buckets import (
        ddp_groups,
        fused_groups,
        groups_end_us,
        merged_groups,
        merged_groups_exact,
        partitions,
    )
    from tuccl.training.costs import Costs, c2c_by_operations, c2c_by_time, linear, server_costs
    from tuccl.training.journal import Journal
    from tuccl.training.methods import (
        GRADIENT_METHODS,
        SURVEY,
        GradientMethod,
        Label,
        best_bucket_cap,
        method_of,
    )
    from tuccl.training.model import Model, Parameter
    from tuccl.training.model_files import encode_model, load_model
    from tuccl.training.pictures import timeline_svg, timeline_trace
    from tuccl.training.reference_models import REFERENCE_MODELS, reference_model
    from tuccl.training.rows import TrainingRow
    from tuccl.training.simulated_costs import fitted_line, interpolated, simulated_costs
    from tuccl.training.simulation import TrainingRun, best_run, simulate_training
    from tuccl.training.timeline import Span, StepTimeline, simulate_steps

__all__ = [
    "GRADIENT_METHODS",
    "REFERENCE_MODELS",
    "SURVEY",
    "Advice",
    "Bucket",
    "BucketSchedule",
    "Costs",
    "GradientMethod",
    "Journal",
    "Label",
    "Model",
    "Parameter",
    "Span",
    "StepTimeline",
    "TrainingRow",
    "TrainingRun",
    "advise",
    "best_bucket_cap",
    "best_run",
    "c2c_by_operations",
    "c2c_by_time",
    "ddp_groups",
    "encode_model",
    "fitted_line",
    "fused_groups",
    "groups_end_us",
    "interpolated",
    "linear",
    "load_model",
    "merged_groups",
    "merged_groups_exact",
    "method_of",
    "partitions",
    "reference_model",
    "server_costs",
    "simulate_steps",
    "simulate_training",
    "simulated_costs",
    "timeline_svg",
    "timeline_trace",
    "workload_json",
]

make_lazy(__name__)
