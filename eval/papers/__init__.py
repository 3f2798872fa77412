"""Figures and tables of published papers, rebuilt: ids, their data, and pages of files."""

from tuccl.eval.papers.figure import Chart, FigureData, PaperFigure
from tuccl.eval.papers.pages import write_figure
from tuccl.eval.papers.registry import FIGURES, figure_of

__all__ = ["FIGURES", "Chart", "FigureData", "PaperFigure", "figure_of", "write_figure"]
