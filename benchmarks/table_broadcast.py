"""Prints how long a table takes to reach all ranks of a job and be proved equal by all.

    .venv/bin/python benchmarks/table_broadcast.py [--ranks 16] [--mib 1] [--repeats 9]

Ranks are processes of this host (`tuccl-agree`) that meet over loopback sockets. The time runs from
the moment all have met (their start is not in it) until the last one holds the proved table: rank
0's reading of the folder, checksums of the text and of every program, and the proofs are all in it.
An update is one round: times gathered from all ranks, one entry ranked anew, proved by all and
adopted.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

from made_tables import SIGNATURE, write_table

import tuccl

AGREE = Path(tuccl.__path__[0]) / "worker" / "tuccl-agree"
_LINE = re.compile(r"holds (\w+) agreed_ms ([\d.]+) update_ms ([\d.]+)")


def free_port() -> int:
    """Return a TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(folder: Path, ranks: int, more: list[str]) -> tuple[float, float]:
    """Return the time in ms until the last rank holds the table, and of the slowest update."""
    environment = {**os.environ, "TUCCL_TOKEN": os.urandom(16).hex()}
    meeting = ["--meet", f"127.0.0.1:{free_port()}", "--ranks", str(ranks), *more]
    ranks_started = [
        subprocess.Popen(
            [AGREE, folder, SIGNATURE, "--rank", str(rank), *meeting],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    answers = [_LINE.search(rank.communicate(timeout=120)[0]) for rank in ranks_started]
    lines = [match.groups() for match in answers if match is not None]
    if len(lines) != ranks or len({digest for digest, _, _ in lines}) != 1:
        raise SystemExit("the ranks did not agree")
    return max(float(agreed) for _, agreed, _ in lines), max(float(u) for _, _, u in lines)


def report(name: str, times: list[float], target: float) -> None:
    """Print the median, the least and the most of ``times`` and the target."""
    print(
        f"{name:44} {statistics.median(times):8.2f} ms "
        f"({min(times):.2f} to {max(times):.2f}; target {target:g})"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--mib", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "table"
        nbytes = write_table(folder, round(args.mib * (1 << 20)))
        print(f"table.txt of {nbytes} bytes to {args.ranks} processes on {os.cpu_count()} CPUs")
        jobs = [run_job(folder, args.ranks, []) for _ in range(args.repeats)]
        report("agreement on the table", [agreed for agreed, _ in jobs], 100.0)
        jobs = [run_job(folder, args.ranks, ["--rounds", "51"]) for _ in range(args.repeats)]
        report("update of one entry, median of 51", [update for _, update in jobs], 10.0)


if __name__ == "__main__":
    main()
