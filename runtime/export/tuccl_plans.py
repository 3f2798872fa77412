"""Plans of this folder for calls of MSCCL++: which call gets which, and how they are loaded.

A job that reaches MSCCL++ through its NCCL library registers them before its first communicator:

    import tuccl_plans
    tuccl_plans.register(rank, world_size, ranks_per_node, sums_only=True)

once for each shape of communicator that it makes. Or it is started as it is, by ``torchrun ... -m
tuccl_plans --sums-only train.py``. This file needs nothing of tuccl; it stands beside
``selection.json`` and the plans.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ALIGNMENT = 16  # bytes that a thread moves at once
REDUCING = ("allreduce", "reducescatter")
# The datatypes that the executor has kernels for and adds up right.
DATATYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "uint32": 4}


@cache
def selection() -> dict[str, Any]:
    """Return ``selection.json``: communicators, and the calls of each plan."""
    document: dict[str, Any] = json.loads((FOLDER / "selection.json").read_text())
    return document


def plans_of(
    world_size: int, ranks_per_node: int, members: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Return the plans of a communicator; none: it is left to the runtime.

    With its ``members``, the job's ranks in the communicator's order, they are of the table of
    exactly these; without, of the one table that all of the job's groups of this shape share.
    """
    for table in selection()["tables"]:
        mine = table["by_shape"] if members is None else list(members) in table["groups"]
        if mine and (table["world_size"], table["ranks_per_node"]) == (world_size, ranks_per_node):
            plans: list[dict[str, Any]] = table["plans"]
            return plans
    return []


def choose(
    plans: Sequence[dict[str, Any]],
    collective: str,
    nbytes: int,
    datatype: str,
    *,
    in_place: bool,
    op: str = "sum",
    root: int = 0,
) -> str | None:
    """Return the name of the plan for a call, None where the runtime's own choice is to run.

    ``plans`` are those of its communicator (`plans_of`). ``nbytes`` is of the whole array: the
    larger of the send and the receive buffer.
    """
    if datatype not in DATATYPE_BYTES or (collective in REDUCING and op != "sum"):
        return None
    for plan in plans:
        fits = (
            plan["collective"] == collective
            and plan["in_place"] == in_place
            and plan["root"] in (None, root)
            and plan["datatype_bytes"] in (None, DATATYPE_BYTES[datatype])
            and plan["min_bytes"] <= nbytes <= plan["max_bytes"]
            and nbytes % plan["multiple_bytes"] == 0
        )
        if fits:
            return str(plan["name"])
    return None


def select(algorithms: Any, request: Any) -> Any:  # noqa: ANN401
    """Return the algorithm for a call of MSCCL++'s NCCL library, or None.

    A request does not say which reduction it needs, so `register` leaves reducing plans out
    unless the job only adds up.
    """
    source, target = int(request.input_buffer), int(request.output_buffer)
    if source % ALIGNMENT or target % ALIGNMENT:
        return None
    # Of an allgather the request counts one rank's part.
    parts = request.world_size if request.collective == "allgather" else 1
    name = choose(
        plans_of(request.world_size, request.n_ranks_per_node),
        request.collective,
        request.message_size * parts,
        str(getattr(request.dtype, "name", request.dtype)).rpartition(".")[2],
        in_place=_in_place(request, source, target),
        root=int(dict(request.hints).get("root", [0])[0]),
    )
    return None if name is None else algorithms.get(request.collective, {}).get(name)


def _in_place(request: Any, source: int, target: int) -> bool:  # noqa: ANN401
    """Return whether all ranks see the call as one in place, as NCCL means it."""
    if request.collective == "allgather":
        return source == target + int(request.rank * request.message_size)
    if request.collective == "reducescatter":
        return target == source + int(request.rank * request.message_size // request.world_size)
    return source == target


def algorithms(
    rank: int,
    world_size: int,
    ranks_per_node: int,
    *,
    members: Sequence[int] | None = None,
    sums_only: bool = False,
) -> list[Any]:
    """Return the plans of a communicator (`plans_of`) as algorithms of ``mscclpp`` for its rank.

    Without plans, one line says so. The constraint (0, 0) fits no communicator, so that MSCCL++'s
    own choice, which looks at neither datatype nor divisibility, never takes them. ``sums_only``
    promises that every reduction is a sum; without it reducing plans are left out.
    """
    plans = plans_of(world_size, ranks_per_node, members)
    if not plans:
        shape = f"{world_size} ranks, {ranks_per_node} on a host"
        who = shape if members is None else f"{shape}, members {' '.join(map(str, members))}"
        _warn(f"{who}: no plans in {FOLDER}; MSCCL++ chooses")
        return []
    mscclpp = importlib.import_module("mscclpp")
    return [
        mscclpp.Algorithm(
            id=plan["name"],
            execution_plan=mscclpp.ExecutionPlan(str(FOLDER / plan["file"]), rank),
            constraint=mscclpp.Algorithm.Constraint(0, 0),
        )
        for plan in plans
        if sums_only or plan["collective"] not in REDUCING
    ]


@cache
def _warn(line: str) -> None:
    """Log a line, once in a process."""
    logging.getLogger(__name__).warning(line)


def register(rank: int, world_size: int, ranks_per_node: int, *, sums_only: bool = False) -> int:
    """Add the plans of a shape to ``mscclpp.ext`` with `select`; return how many.

    Call it on every rank before a communicator is made, with the rank in it.
    """
    plans = algorithms(rank, world_size, ranks_per_node, sums_only=sums_only)
    if plans:
        builder = importlib.import_module("mscclpp.ext").AlgorithmCollectionBuilder()
        for algorithm in plans:
            builder.add_algorithm_builder(algorithm)
        builder.set_algorithm_selector(select)
    return len(plans)


def extend_sglang(communicator: Any) -> None:  # noqa: ANN401
    """Have SGLang's ``PyMscclppCommunicator`` try the allreduce plans among its own.

    It adds up in place and times all candidates when it starts. Call it before SGLang makes a
    communicator, on every rank.
    """
    for method in ("_create_dsl_algorithms", "_create_native_algorithms"):
        setattr(communicator, method, _extended(getattr(communicator, method)))


def _extended(create: Any) -> Any:  # noqa: ANN401
    def created(self: Any) -> list[Any]:  # noqa: ANN401
        plans = algorithms(self.rank, self.world_size, self.nranks_per_node, sums_only=True)
        names = {
            plan["name"]
            for plan in plans_of(self.world_size, self.nranks_per_node)
            if plan["collective"] == "allreduce" and plan["in_place"]
        }
        candidates = [(algorithm, [0], [0]) for algorithm in plans if algorithm.name in names]
        return [*create(self), *candidates]

    return created


def communicators(rank: int, world_size: int, ranks_per_node: int) -> list[tuple[int, int, int]]:
    """Return a process's communicators to register, each as its rank there and its shape.

    Of a job they are the groups that get plans by their shape, else all ranks.
    """
    found = {
        (group.index(rank), table["world_size"], table["ranks_per_node"]): None
        for table in selection()["tables"]
        if table["by_shape"] and world_size == selection()["ranks"]
        for group in table["groups"]
        if rank in group
    }
    return list(found) or [(rank, world_size, ranks_per_node)]


def main() -> None:
    """Register the plans in a job of torchrun's, then run its script."""
    arguments = sys.argv[1:]
    sums_only = arguments[:1] == ["--sums-only"]
    script = arguments[sums_only:]
    if not script:
        raise SystemExit("usage: torchrun ... -m tuccl_plans [--sums-only] SCRIPT [ARGUMENTS]")
    rank, world_size, ranks_per_node = (
        int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    # The script imports this module under its own name, and must find the same one.
    module = importlib.import_module("tuccl_plans")
    for each in module.communicators(rank, world_size, ranks_per_node):
        module.register(*each, sums_only=sums_only)
    sys.argv = script
    runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    main()
