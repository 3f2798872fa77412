"""The figures that ``emulated_peers.py --json`` kept, as tables of docs/peers.md.

    python benchmarks/peer_tables.py FIGURES.json ...

A line for each cluster, collective and size: our program, its part of the bound, the best peer and the
ratio, the ratio to msccl-default. Then the marks, cluster by cluster.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from emulated_peers import DEFAULT, Figure, marks

_HEAD = ("cluster", "collective", "size", "program", "of the bound", "best peer", "against it")


def lines(figures: list[Figure]) -> list[str]:
    """Return a table in Markdown."""
    rows = [
        (
            *(f.cluster, f.collective, size(f.size), f.program, f"{f.part:.0%}"),
            *(f.peer, f"{f.ratio:.2f}x", f"{f.versus.get(DEFAULT, float('nan')):.2f}x"),
        )
        for f in figures
    ]
    cells = [(*_HEAD, f"against {DEFAULT}"), ("---",) * (len(_HEAD) + 1), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def size(nbytes: int) -> str:
    """Return a size in KiB or MiB.

    >>> size(65536), size(4 << 20)
    ('64 KiB', '4 MiB')
    """
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
    print("\n".join(lines(figures)))
    for call in dict.fromkeys((f.cluster, f.collective) for f in figures):
        own = [f for f in figures if (f.cluster, f.collective) == call]
        print(f"{call[1]} on {call[0]}: {marks(own)}")


if __name__ == "__main__":
    main()
