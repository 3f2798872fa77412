"""What tuning is worth: comparisons, nccl-tests' columns, the report."""

from tuccl.eval.calibrate import (
    SMALL_BYTES,
    Case,
    Fit,
    RunErrors,
    Trial,
    cross_validate,
    errors_of,
    fit,
    predict,
    unfitted,
)
from tuccl.eval.calibration_runs import CalibrationRun, read_calibration_set, trial_of
from tuccl.eval.columns import (
    BandwidthRow,
    algbw_gbs,
    bandwidth_row,
    busbw_factor,
    busbw_gbs,
    columns_text,
    element_count,
)
from tuccl.eval.compare import REGRESSION, Comparison, ComparisonRow, compare, text_report
from tuccl.eval.measurements import Measured, Measurements, read_measurements
from tuccl.eval.plots import plots_available
from tuccl.eval.report import html_report

__all__ = [
    "REGRESSION",
    "SMALL_BYTES",
    "BandwidthRow",
    "CalibrationRun",
    "Case",
    "Comparison",
    "ComparisonRow",
    "Fit",
    "Measured",
    "Measurements",
    "RunErrors",
    "Trial",
    "algbw_gbs",
    "bandwidth_row",
    "busbw_factor",
    "busbw_gbs",
    "columns_text",
    "compare",
    "cross_validate",
    "element_count",
    "errors_of",
    "fit",
    "html_report",
    "plots_available",
    "predict",
    "read_calibration_set",
    "read_measurements",
    "text_report",
    "trial_of",
    "unfitted",
]
