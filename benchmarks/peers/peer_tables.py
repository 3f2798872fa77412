"""The figures that ``emulated_peers.py --json`` kept, as tables of results/peers.md.

    python benchmarks/peers/peer_tables.py [--write] FIGURES.json ...

A table a cluster, with a line a collective and a cell a size: our program's part of the bound, how
many times the best peer's rate, and that peer. Below, each collective's means and the marks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import geometric_mean

import msgspec
from emulated_peers import DEFAULT, Figure, marks

sys.path.append(str(Path(__file__).resolve().parents[1]))
from report import publish


def table(figures: list[Figure]) -> list[str]:
    """Return the lines of one cluster's table in Markdown."""
    sizes = sorted({f.size for f in figures})
    head = ["collective", *map(named, sizes), f"against {DEFAULT}"]
    lines = [head, ["---"] * len(head)]
    for collective in dict.fromkeys(f.collective for f in figures):
        own = {f.size: f for f in figures if f.collective == collective}
        usual = [f.versus[DEFAULT] for f in own.values() if DEFAULT in f.versus]
        mean = f"{geometric_mean(usual):.2f}x" if usual else "-"
        lines.append([collective, *(cell(own.get(n)) for n in sizes), mean])
    return ["| " + " | ".join(line) + " |" for line in lines]


def cell(f: Figure | None) -> str:
    """Return what one size came to."""
    if f is None:
        return "-"
    return f"{f.part:.0%}, {f.ratio:.2f}x {f.peer.partition(' ')[0]}"


def named(nbytes: int) -> str:
    """Return a size in KiB or MiB."""
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def main() -> None:
    """Print the tables and the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, nargs="+", metavar="FIGURES.json")
    figures = [
        figure
        for path in parser.parse_args().figures
        for figure in msgspec.json.decode(path.read_bytes(), type=list[Figure])
    ]
    for cluster in dict.fromkeys(f.cluster for f in figures):
        own = [f for f in figures if f.cluster == cluster]
        print(f"\n## {cluster}, measured\n", *table(own), "", sep="\n")
        for collective in dict.fromkeys(f.collective for f in own):
            print(f"{collective}: {marks([f for f in own if f.collective == collective])}")


if __name__ == "__main__":
    publish(main, "Measured, on network namespaces", name="peers", markdown=True)
