"""A table in seconds from that of a similar machine: its calls, and its best points first."""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tuccl.errors import TucclError
from tuccl.runtime import LookupTable, load_table
from tuccl.synth import METHODS, Collective
from tuccl.topology import Topology, load_topology
from tuccl.tuning.final_round import tuned_size
from tuccl.tuning.joint_search import tune
from tuccl.tuning.options import TuneOptions

_BUDGET = 8  # of which a quarter are points of the other table
_SLOW = {"fewstep", "taccl"}  # which start a solver
_SHARE = 0.6  # of the time is for searching, the rest for what starts and ends a tune


def derive_table(topology: Topology, start: LookupTable, path: Path, seconds: float) -> None:
    """Write a table of ``topology`` for the calls of ``start``, simulated, within ``seconds``.

    It is written after each collective, so that whatever ends this leaves a whole table.

    Raises:
        TucclError: not even one collective could be tuned.
    """
    deadline = time.monotonic() + _SHARE * seconds
    quick, tabled = {*METHODS} - _SLOW, {c.method for c in start.candidates}
    methods = tuple(sorted(quick & tabled or quick))
    options = TuneOptions(budget=_BUDGET, dialect=start.dialect, methods=methods, start=start)
    if start.dialect == "nccl":  # which has no programs
        options = TuneOptions(budget=_BUDGET, dialect="nccl")
    calls: defaultdict[Collective, set[int]] = defaultdict(set)
    for entry in start.entries:
        if (root := entry.root or 0) < topology.ranks:
            calls[Collective(entry.collective, topology.ranks, root)].add(tuned_size(entry))
    for call, sizes in calls.items():
        left = max(deadline - time.monotonic(), 0.5)
        try:
            tune(topology, call, sizes, "sim", replace(options, seconds=left), path=path)
        except TucclError:
            if not path.exists():
                raise
            break


def main(machine: str, start: str, path: str, seconds: str) -> None:
    """Derive the table ``path`` for the topology ``machine`` from ``start``, or end in time."""
    signal.setitimer(signal.ITIMER_REAL, float(seconds))  # whoever waits for it may be gone
    try:
        derive_table(load_topology(machine), load_table(start).lookup, Path(path), float(seconds))
    except TucclError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
