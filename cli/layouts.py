"""Arguments of verbs that take the process groups of a job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuccl.cli.arguments import COLLECTIVES
from tuccl.cli.output import did_you_mean
from tuccl.errors import InputError
from tuccl.groups.layout import (
    MEGATRON_ORDER,
    Kind,
    ProcessGroups,
    megatron_groups,
    mesh_groups,
    read_groups,
)
from tuccl.groups.traces import trace_groups
from tuccl.topology import Topology

if TYPE_CHECKING:
    from tuccl.groups.concurrent import KindCall

_MOST_SHOWN = 8  # ranks of a group


def add_layout(parser: argparse.ArgumentParser, *, required: bool, traces: bool = True) -> None:
    """Add the arguments that name a job's groups, ``--trace`` only if ``traces``."""
    group = parser.add_argument_group("the process groups of a job")
    source = group.add_mutually_exclusive_group(required=required)
    add_megatron(group, source)
    source.add_argument(
        "--mesh", metavar="M", help="PyTorch's DeviceMesh, as dp=4,tp=8: the last is fastest"
    )
    source.add_argument("--groups", metavar="FILE", help="a file that -o has written")
    parser.set_defaults(job_traces=None)
    if traces:
        source.add_argument(
            "--trace",
            dest="job_traces",
            metavar="FILE,...",
            help="PyTorch execution traces of the job, of all ranks whose groups matter",
        )


def add_megatron(group: argparse._ArgumentGroup, source: argparse._ArgumentGroup) -> None:
    """Add ``--layout`` to ``source`` and the order of its axes to ``group``."""
    source.add_argument(
        "--layout", metavar="L", help="Megatron's sizes, as tp=8,pp=2; dp follows from the ranks"
    )
    group.add_argument(
        "--order",
        metavar="AXES",
        default=MEGATRON_ORDER,
        help=f"with --layout: axes, the fastest first (default {MEGATRON_ORDER})",
    )


def add_company(parser: argparse.ArgumentParser, *, none: bool = False) -> None:
    """Add the arguments of groups that call at the same time; ``none``: one may be alone."""
    parser.add_argument(
        "--concurrent",
        metavar="WHO",
        help="with groups, whose calls -c names as KIND:COLLECTIVE: kind (default): all groups of "
        "the kind call at once; all: while the calls of --beside begin again whenever they end"
        + ("; none: one group alone" if none else ""),
    )
    parser.add_argument(
        "--beside",
        metavar="KIND:COLLECTIVE=SIZE,...",
        help="with groups: calls of other kinds that begin at the same time, by NCCL's choice",
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in a few words.

    >>> ranks_text(range(100))
    '0 1 2 3 4 5 6 7 ... (100)'
    """
    shown = " ".join(map(str, ranks[:_MOST_SHOWN]))
    return shown if len(ranks) <= _MOST_SHOWN else f"{shown} ... ({len(ranks)})"


def has_layout(args: argparse.Namespace) -> bool:
    """Return whether the arguments name groups."""
    sources = args.layout, args.mesh, args.groups, args.job_traces
    return any(each is not None for each in sources)


def groups_of(args: argparse.Namespace, topology: Topology) -> ProcessGroups:
    """Return the groups that the arguments name."""
    if args.layout is not None:
        return megatron_groups(args.layout, topology.ranks, args.order)
    if args.mesh is not None:
        return mesh_groups(args.mesh, topology.ranks)
    if args.job_traces is not None:
        return trace_groups(args.job_traces.split(","), topology.ranks)
    job = read_groups(args.groups)
    if job.ranks != topology.ranks:
        raise InputError(f"{args.groups}: of {job.ranks} ranks; the machine has {topology.ranks}")
    return job


def calls_of(text: str, job: ProcessGroups, option: str = "-c") -> list[tuple[Kind, str]]:
    """Return the calls of a text like "dp:allreduce,tp:allgather".

    Raises:
        InputError: it names no such kind or collective.
    """
    calls: list[tuple[Kind, str]] = []
    for word in text.split(","):
        name, colon, collective = word.partition(":")
        if not colon or collective not in COLLECTIVES:
            raise InputError(
                f"{option} {word[:60]!r}: expected KIND:COLLECTIVE, as dp:allreduce"
                f"{did_you_mean(collective, list(COLLECTIVES))}"
            )
        calls.append((job.kind(name), collective))
    return calls


def beside_of(text: str | None, job: ProcessGroups) -> list[KindCall]:
    """Return the calls of a text like "tp:allreduce=20M".

    Raises:
        InputError: it names no such kind, collective or size.
    """
    from tuccl.groups.concurrent import KindCall  # a verb starts without it

    found = []
    for word in text.split(",") if text else ():
        try:
            call = KindCall.parse(word)
        except InputError as error:
            raise InputError(f"--beside {error}") from None
        calls_of(f"{call.kind}:{call.collective}", job, "--beside")
        found.append(call)
    return found
