"""The cost of calls on a topology, simulated: of a table's programs, or of the default's."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial

from tuccl.errors import InputError
from tuccl.runtime import (
    NCCL_VERSION,
    Candidate,
    Executor,
    SimExecutor,
    Table,
    select,
    time_baseline,
)
from tuccl.simulation import MachineClass
from tuccl.topology import Topology, keep_gpus
from tuccl.training.costs import Cost, Costs, server_costs

_MOST_POWER = 40
_GRID = sorted({part << power for power in range(7, _MOST_POWER) for part in (2, 3)})
_ALPHA_BYTES = range(32 << 10, (504 << 12) + 1, 160 << 10)
_LARGE = 256 << 20
_COLLECTIVES = ("allreduce", "reduce-scatter", "allgather", "broadcast")


def interpolated(us_of: Callable[[int], float]) -> Cost:
    """Return the cost that ``us_of`` gives at powers of two and midpoints, linear between them.

    ``us_of`` is called once for a size, and only as sizes come up.

    >>> interpolated(lambda nbytes: nbytes / 2)(1280)
    640.0
    """
    us_at = cache(us_of)

    def cost(nbytes: int) -> float:
        if not nbytes:
            return 0.0
        place = bisect_left(_GRID, nbytes)
        if place == 0 or _GRID[min(place, len(_GRID) - 1)] == nbytes:
            return us_at(max(nbytes, _GRID[0]))
        if place == len(_GRID):
            raise InputError(f"a call of {nbytes} bytes: expected less than {_GRID[-1]}")
        low, high = _GRID[place - 1], _GRID[place]
        part = (nbytes - low) / (high - low)
        return us_at(low) * (1 - part) + us_at(high) * part

    return cost


def fitted_line(cost: Cost) -> tuple[float, float]:
    """Return the start-up in us and us a byte of ``cost``, by least squares.

    Notes:
        As MG-WFBP measures them: all-reduces of 8K to 504K elements; fewer of them here.
    """
    xs = list(_ALPHA_BYTES)
    ys = [cost(x) for x in xs]
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / math.fsum(
        (x - mean_x) ** 2 for x in xs
    )
    return max(mean_y - slope * mean_x, 0.0), slope


def simulated_costs(
    topology: Topology,
    stored: Table | None = None,
    *,
    servers: int = 0,
    colocated: bool = False,
    version: str = NCCL_VERSION,
    machine: MachineClass | None = None,
    executor: Executor | None = None,
) -> Costs:
    """Return what calls take on ``topology``, simulated.

    Args:
        topology: the machine.
        stored: a table, whose programs run where it has them; else the default does.
        servers: hosts of parameter servers; 0 are as many as there are worker hosts.
        colocated: servers share the workers' hosts and so their network.
        version: NCCL whose choice the default is.
        machine: class of the GPUs; None is that of the topology.
        executor: simulates in place of the GPUs' simulator.

    Notes:
        Times between powers of two and midpoints are interpolated. A server's network has the
        rate that a large all-reduce reaches on the same machine.

    Raises:
        InputError: the table is for another number of ranks.
    """
    executor = executor or SimExecutor(topology, machine)
    if stored is not None and stored.lookup.ranks != topology.ranks:
        raise InputError(
            f"table {stored.lookup.name[:40]!r} is for {stored.lookup.ranks} ranks, topology "
            f"{topology.name[:40]!r} has {topology.ranks}; tune one for it"
        )
    calls = {
        name: interpolated(partial(_us, executor, topology, stored, version, name))
        for name in _COLLECTIVES
    }
    allreduce = calls["allreduce"]
    alpha_us, _ = fitted_line(allreduce)
    stages = _stages(topology, allreduce, servers, colocated, version, machine)
    return Costs(
        {**calls, **stages},
        alpha_us,
        executor.label,
        lambda call, nbytes: _program(stored, call, nbytes) is not None,
    )


def _program(stored: Table | None, collective: str, nbytes: int) -> Candidate | None:
    """The candidate with a program that the table has for a call in place, as PyTorch's are."""
    if stored is None or collective not in _COLLECTIVES:
        return None
    in_place = collective in ("allreduce", "broadcast")
    choice = select(stored.lookup, collective, nbytes, in_place=in_place, pads=True)
    return choice.candidate if choice.candidate.program is not None else None


def _us(
    executor: Executor,
    topology: Topology,
    stored: Table | None,
    version: str,
    collective: str,
    nbytes: int,
) -> float:
    candidate = _program(stored, collective, nbytes)
    if stored is not None and candidate is not None and candidate.knobs is not None:
        program = stored.program(candidate)
        assert program is not None
        return executor.time(program, candidate.knobs.knobs, nbytes).us
    kind = executor.default_baseline
    return time_baseline(executor, topology, kind, collective, nbytes, version=version).timing.us


def _stages(
    topology: Topology,
    allreduce: Cost,
    servers: int,
    colocated: bool,
    version: str,
    machine: MachineClass | None,
) -> dict[str, Cost]:
    """The stages of parameter servers; inside hosts of several ranks by the host's default."""
    hosts, ranks = len(topology.hosts), topology.ranks
    servers = servers or hosts
    gbs = 2 * (ranks - 1) / ranks * _LARGE / allreduce(_LARGE) / 1e3
    if colocated and hosts > 1:  # both ways carry what workers push and what servers answer
        gbs /= 2 * (hosts - 1) / hosts
    each = ranks // hosts
    local: Cost | None = None
    if each > 1:
        host = keep_gpus(topology, topology.gpus_of(topology.hosts[0]))
        simulator = SimExecutor(host, machine)
        local = interpolated(partial(_us, simulator, host, None, version, "allreduce"))
    alpha_us = max(fitted_line(allreduce)[0] / max(2 * (ranks - 1), 1), 1.0)
    return server_costs(local, gbs, gbs, hosts, servers, alpha_us)
