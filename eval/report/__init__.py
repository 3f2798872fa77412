"""A comparison as one HTML page: elements, charts, and a module for each section."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.eval.report.page import html_report

__all__ = ["html_report"]

make_lazy(__name__)
