"""Figures whose rows are results of earlier runs, under results/, or published by others."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row, Value

_HERE = Path(__file__).resolve().parent
_RESULTS = _HERE.parents[1] / "results"
_AGENT = re.compile(
    r"    (sweep|agent, policy|agent alone|descent|NCCL's own) +median +([\d.]+) +90 % +([\d.]+)"
    r" +worst +([\d.]+) +mean +([\d.]+)"
)


def _page(name: str) -> tuple[list[str], str]:
    """The lines of a page under results/ and its provenance; none outside a checkout."""
    path = _RESULTS / f"{name}.md"
    if not path.exists():
        return [], f"results/{name}.md is not here: it stands in the repository, not in a wheel."
    text = path.read_text()
    commit = re.search(r"Commit [^.]+\.", text.replace("\n", " "))
    return text.splitlines(), f"From results/{name}.md: {commit[0] if commit else 'no commit'}"


def _value(cell: str) -> Value:
    try:
        return int(cell) if cell.isdigit() else float(cell)
    except ValueError:
        return cell


def _table(lines: list[str], first: str) -> Iterator[list[Value]]:
    """Yield the cells of the lines below the one that begins with ``first``."""
    heads = [n for n, line in enumerate(lines) if line.startswith(first)]
    for line in lines[heads[0] + 1 :] if heads else []:
        if not line.strip():
            return
        yield [_value(cell) for cell in re.split(r"\s{2,}", line.strip())]


def regimes(_: Progress) -> FigureData:
    """Give the libraries' times in regimes of isolation, as measured."""
    lines, note = _page("regimes")
    libraries = ("tuccl us", "gloo us", "openmpi us", "mpich us")
    columns = ("regime", "ranks", "collective", "bytes", *libraries, "fastest")
    rows = tuple(tuple(each[:9]) for each in _table(lines, "regime") if len(each) > 8)
    chart = Chart("regime", libraries, "us", ("ranks", "collective", "bytes"), "bars", log=True)
    return FigureData(columns, rows, (note,), chart)


def cross_traffic(_: Progress) -> FigureData:
    """Give iteration times beside the traffic of others, as measured."""
    lines, note = _page("cross_traffic")
    columns = ("model", "kind", "load", "offered Mb/s", "carried Mb/s", "carried p99", "mean ms")
    more = ("p99 ms", "t/t0", "control")
    rows = tuple(tuple(each) for each in _table(lines, "model ") if len(each) == 10)
    chart = Chart("load", ("mean ms", "p99 ms"), "ms", ("model", "kind"), log=True)
    return FigureData((*columns, *more), rows, (note,), chart)


def agent(_: Progress) -> FigureData:
    """Give the regret of the agent and of the sweep over NCCL's configurations, as simulated."""
    lines, note = _page("nccl_agent")
    rows: list[Row] = []
    version = machine = ""
    for line in lines:
        if line.startswith("NCCL 2"):
            version = line.partition(";")[0]
        elif line and not line.startswith(" "):
            machine = re.split(r"\s{2,}", line)[0]
        elif found := _AGENT.match(line):
            rows.append((version, machine, found[1], *(float(found[n]) for n in (2, 3, 4, 5))))
    columns = ("NCCL", "machine", "search", "median %", "90th %", "worst %", "mean %")
    chart = Chart("search", ("mean %", "90th %"), "regret, %", ("NCCL", "machine"), "bars")
    return FigureData(columns, tuple(rows), (note,), chart)


def synthesizers(_: Progress) -> FigureData:
    """Give published synthesizers' all-gathers on seven fabrics beside ours and the bound."""
    lines, note = _page("packing")
    rows: list[Row] = []
    with (_HERE / "synthesizers.tsv").open() as file:
        others = list(csv.DictReader(file, delimiter="\t"))
    bounds = {
        str(cells[0]): cells
        for cells in _table(lines, "fabric ")
        if len(cells) > 4 and cells[1] == "allgather"
    }
    for fabric in dict.fromkeys(row["fabric"] for row in others):
        if own := bounds.get(fabric):
            algbw, part = float(str(own[2])), float(str(own[4]))
            rows.append((fabric, "bound", algbw, 1.0, None, "cut bound, nominal rates"))
            ours = (
                algbw * part,
                part,
                own[-1],
                "results/packing.md, 8 GiB, simulated",
            )
            rows.append((fabric, "tuccl", *ours))
        rows += [
            (fabric, row["synthesizer"], *(float(row[n]) for n in _NUMBERS), row["source"])
            for row in others
            if row["fabric"] == fabric
        ]
    columns = ("fabric", "synthesizer", "algbw GB/s", "of bound", "seconds", "source")
    chart = Chart("synthesizer", ("of bound",), "part of the bound", ("fabric",), "bars")
    return FigureData(columns, tuple(rows), (note,), chart)


_NUMBERS = ("algbw_gbs", "of_bound", "seconds")
