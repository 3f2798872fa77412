"""What tuning is worth: comparisons, nccl-tests' columns, the report."""

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
from tuccl.eval.plots import plots_available
from tuccl.eval.report import html_report

__all__ = [
    "REGRESSION",
    "BandwidthRow",
    "Comparison",
    "ComparisonRow",
    "algbw_gbs",
    "bandwidth_row",
    "busbw_factor",
    "busbw_gbs",
    "columns_text",
    "compare",
    "element_count",
    "html_report",
    "plots_available",
    "text_report",
]
