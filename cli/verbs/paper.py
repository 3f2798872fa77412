"""``tuccl paper``: figures and tables of papers, rebuilt as data, pictures and pages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.output import columns
from tuccl.cli.progress import Progress
from tuccl.errors import InputError

if TYPE_CHECKING:
    from tuccl.eval.papers import PaperFigure

EXAMPLE = "tuccl paper tuccl-table3-fig2 -o papers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "figures",
        nargs="*",
        metavar="ID",
        help="figures to rebuild; all: every one; list, or none: print the ids",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="papers",
        metavar="DIR",
        help="folder for ID.csv, ID.json, ID.svg and ID.md (default: papers)",
    )


def run(args: argparse.Namespace) -> int:
    """List the figures, or rebuild those that are named."""
    from tuccl.eval.papers import FIGURES, figure_of

    if not args.figures or args.figures == ["list"]:
        rows = [[each.name, each.kind, f"{each.paper}: {each.title}"] for each in FIGURES.values()]
        print(columns(["id", "rows are", "figure"], rows))
        return 0
    names = FIGURES if args.figures == ["all"] else dict.fromkeys(args.figures)
    figures = [figure_of(name) for name in names]
    folder = Path(args.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {args.output[:80]}: cannot be made: {error.strerror}") from None
    rebuild(figures, folder)
    return 0


def rebuild(figures: list[PaperFigure], folder: Path) -> None:
    """Write each figure when it is complete; an interrupt leaves those before it."""
    from tuccl.eval.papers import write_figure

    with Progress() as progress:
        for number, figure in enumerate(figures):

            def show(what: str, number: int = number, name: str = figure.name) -> None:
                progress.update(number, len(figures), f"{name}: {what}")

            show("rows")
            written = write_figure(figure, figure.rebuild(show), folder)
            print(f"{written[-1].with_suffix('.md')}: {figure.title} ({figure.kind})", flush=True)
        progress.update(len(figures), len(figures), "figures")
