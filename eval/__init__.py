"""Comparisons of a tuned table with defaults, fits of machine classes, analyses of runs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.eval.calibrate import (
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
    from tuccl.eval.calibration_runs import (
        CalibrationRun,
        emulated_case,
        read_calibration_set,
        switch_trial,
        trial_of,
    )
    from tuccl.eval.columns import (
        BandwidthRow,
        algbw_gbs,
        bandwidth_row,
        busbw_factor,
        busbw_gbs,
        columns_text,
    )
    from tuccl.eval.compare_plugin import compare_plugin
    from tuccl.eval.compare_text import text_report
    from tuccl.eval.comparer import compare
    from tuccl.eval.comparison import Comparison, ComparisonRow
    from tuccl.eval.critical_path import critical_path, path_text
    from tuccl.eval.measurements import Measured, read_measurements
    from tuccl.eval.peers.report import (
        NamedProgram,
        PeerRow,
        peer_report,
        peer_text,
    )
    from tuccl.eval.plots import plots_available
    from tuccl.eval.report import html_report
    from tuccl.eval.time_spent import spent_text, time_spent
    from tuccl.eval.trace_events import trace_json
    from tuccl.eval.utilisation import utilisation, utilisation_text

__all__ = [
    "BandwidthRow",
    "CalibrationRun",
    "Case",
    "Comparison",
    "ComparisonRow",
    "Fit",
    "Measured",
    "NamedProgram",
    "PeerRow",
    "RunErrors",
    "Trial",
    "algbw_gbs",
    "bandwidth_row",
    "busbw_factor",
    "busbw_gbs",
    "columns_text",
    "compare",
    "compare_plugin",
    "critical_path",
    "cross_validate",
    "emulated_case",
    "errors_of",
    "fit",
    "html_report",
    "path_text",
    "peer_report",
    "peer_text",
    "plots_available",
    "predict",
    "read_calibration_set",
    "read_measurements",
    "spent_text",
    "switch_trial",
    "text_report",
    "time_spent",
    "trace_json",
    "trial_of",
    "unfitted",
    "utilisation",
    "utilisation_text",
]

make_lazy(__name__)
