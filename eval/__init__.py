"""Comparisons of a tuned table with defaults, fits of machine classes, analyses of runs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.eval.calibrate import Fit, RunErrors, Trial, cross_validate, errors_of, fit
    from tuccl.eval.calibration_runs import CalibrationRun, read_calibration_set, trial_of
    from tuccl.eval.columns import bandwidth_row, columns_text
    from tuccl.eval.compare_text import text_report
    from tuccl.eval.comparer import compare
    from tuccl.eval.comparison import Comparison
    from tuccl.eval.critical_path import critical_path, path_text
    from tuccl.eval.report.page import html_report
    from tuccl.eval.time_spent import spent_text, time_spent
    from tuccl.eval.trace_events import trace_json
    from tuccl.eval.utilisation import utilisation, utilisation_text

__all__ = [
    "CalibrationRun",
    "Comparison",
    "Fit",
    "RunErrors",
    "Trial",
    "bandwidth_row",
    "columns_text",
    "compare",
    "critical_path",
    "cross_validate",
    "errors_of",
    "fit",
    "html_report",
    "path_text",
    "read_calibration_set",
    "spent_text",
    "text_report",
    "time_spent",
    "trace_json",
    "trial_of",
    "utilisation",
    "utilisation_text",
]

make_lazy(__name__)
