"""Calls of a job's groups, simulated: what verbs that time groups share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tuccl.cli.arguments import sizes_of
from tuccl.cli.layouts import beside_of, calls_of
from tuccl.cli.output import columns, warn
from tuccl.errors import Infeasible, InputError
from tuccl.groups.concurrent import Choose, company_calls, nccl_choice, time_groups
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.layout import Kind, ProcessGroups
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import Topology
from tuccl.units import format_bytes


class GroupTimes:
    """Times the calls of -c, each by all groups of its kind, beside those of --beside."""

    def __init__(self, args: argparse.Namespace, topology: Topology, job: ProcessGroups) -> None:
        """Read the arguments.

        Raises:
            InputError: they name no such call, or --concurrent has no meaning.
        """
        self._args, self._topology, self._job = args, topology, job
        self.calls = calls_of(args.collective, job) if args.collective else []
        self._company = beside_of(args.beside, job)
        if args.concurrent not in (None, "kind", "all"):
            raise InputError(f"--concurrent {args.concurrent[:20]}: expected kind or all")
        if args.concurrent == "all" and not self._company:
            raise InputError("--concurrent all: expected the calls of other kinds; add --beside")
        if self._company and not self.calls:
            raise InputError("--beside: expected calls that it is beside; add -c and -s")

    def rows(self, choosers: Mapping[str, Choose]) -> list[dict[str, Any]]:
        """Return a row for each call, size and chooser, and warn of what is not timed."""
        rows = [row for call in self.calls for row in self._of(*call, choosers)]
        cuts = (f"bound by cuts alone: {why}" for r in rows if (why := r["why_no_flow"]))
        warn(dict.fromkeys(cuts))
        return rows

    def _of(
        self, kind: Kind, collective: str, choosers: Mapping[str, Choose]
    ) -> Iterator[dict[str, Any]]:
        beside = [call for call in self._company if call.kind != kind.name]
        if self._args.concurrent == "all" and not beside:
            raise InputError(
                f"--concurrent all: no call of another kind beside {kind.name}:{collective}; add "
                "it to --beside"
            )
        nccl = nccl_choice(self._args.nccl_version or NCCL_VERSION)
        company = company_calls(
            self._topology,
            self._job,
            beside,
            {call.kind: nccl for call in beside},
            repeats=self._args.concurrent == "all",
        )
        orbits = group_orbits(self._topology, kind.groups)
        for nbytes, who in product(sizes_of(self._args.size), choosers):
            call = self._topology, kind.groups, orbits, collective, nbytes, choosers[who], company
            try:
                found = time_groups(*call)
            except (Infeasible, InputError) as error:
                what = f"{kind.name}:{collective} {format_bytes(nbytes)}"
                warn([f"{what}, {who}: not timed: {error}"])
                continue
            yield {
                "kind": kind.name,
                "collective": collective,
                "size": nbytes,
                "programs": who,
                "choice": found.choice,
                "alone_us": max(found.alone_us.values()),
                "together_us": found.together_us,
                "slowdown": found.slowdown,
                "bound_us": found.bound_us,
                "beside_us": {str(c): us for c, us in zip(beside, found.company_us, strict=True)},
                "why_no_flow": found.bound.why_no_flow,
            }


def print_group_times(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the times of each call."""
    print("# simulated, us: a group alone, all groups of the kind at once, and the bound on this")
    beside = any(r["beside_us"] for r in rows)
    table = [
        [
            *(r["kind"], r["collective"], format_bytes(r["size"]), r["programs"], r["choice"]),
            *(f"{r['alone_us']:.1f}", f"{r['together_us']:.1f}", f"{r['slowdown']:.2f}"),
            *(f"{r['bound_us']:.1f}", f"{r['bound_us'] / r['together_us']:.2f}"),
            *([", ".join(f"{c} {us:.1f}" for c, us in r["beside_us"].items())] if beside else []),
        ]
        for r in rows
    ]
    head = ["kind", "collective", "size", "programs", "choice", "alone", "at once", "ratio"]
    print(columns([*head, "bound", "of bound", *(["beside"] if beside else [])], table))
