"""NCCL's own algorithms as programs: ring, double binary tree, grouped sends and receives."""

from __future__ import annotations

from tuccl.errors import Infeasible, InputError
from tuccl.planners import ring_program
from tuccl.program import Program
from tuccl.synth.baseline.nccl_chains import chains
from tuccl.synth.baseline.nccl_tree import nccl_tree
from tuccl.synth.lowering.lower import lower
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace
from tuccl.topology import Topology

NCCL_ALGORITHMS = ("ring", "tree", "p2p")

# A ring allreduce takes 2 n - 1 steps, and the executor walks 64 in a block; rings that are longer
# claim out of place alone, as the fork would run them.
_MOST_RANKS_EXECUTOR = 32
_MOST_CHANNELS = 64
_RINGS = frozenset({"allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"})


def nccl_program(
    topology: Topology,
    collective: Collective,
    algorithm: str,
    channels: int,
    protocol: str = "Simple",
    *,
    parts: int = 1,
) -> Program:
    """Return NCCL's algorithm as a program, a peer for simulated and measured times.

    Trees and lines have one chunk a channel; NCCL's kernels walk it in small passes, which is for
    the executor (`tuccl.runtime.StepLoop`).

    Args:
        topology: Of the machine.
        collective: What is to be computed.
        algorithm: ``ring``, ``tree`` (allreduce only) or ``p2p`` (alltoall, gather, scatter).
        channels: Number of channels; NCCL's own number is `tuccl.runtime.nccl.choice`'s.
        protocol: The protocol the program is to run with.
        parts: Channels over which ``p2p`` spreads the data of one peer.

    Raises:
        Infeasible: NCCL has no such algorithm for the collective, or the program is too large.
        InputError: an unknown algorithm, or numbers that do not fit `topology`.
    """
    if algorithm not in NCCL_ALGORITHMS:
        names = ", ".join(NCCL_ALGORITHMS)
        raise InputError(f"NCCL algorithm {algorithm[:40]!r}: expected one of {names}")
    if algorithm == "tree":
        _check(topology, collective, channels)
        return nccl_tree(topology, collective, channels, protocol)
    if algorithm == "ring":
        return _ring(topology, collective, channels).replace(
            name=f"nccl-ring-{channels}",
            protocol=protocol,
            in_place=collective.ranks <= _MOST_RANKS_EXECUTOR,
        )
    schedule = nccl_alltoall(topology, collective, channels, parts)
    name = f"nccl-p2p-{channels}" + (f"x{parts}" if parts > 1 else "")
    return lower(schedule, protocol=protocol, name=name)


def _check(topology: Topology, collective: Collective, channels: int) -> None:
    if collective.ranks != topology.ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a topology of {topology.ranks}: "
            "the numbers must agree"
        )
    if not 1 <= channels <= _MOST_CHANNELS:
        raise InputError(f"{channels} channels: expected 1 to {_MOST_CHANNELS}")


def _ring(topology: Topology, collective: Collective, channels: int) -> Program:
    """Return NCCL's ring: each channel sends its part of the data round its own order of ranks.

    Raises:
        Infeasible: NCCL runs the collective without rings (alltoall, gather, scatter).
        InputError: numbers that do not fit `topology`.
    """
    _check(topology, collective, channels)
    if collective.name not in _RINGS:
        raise Infeasible(f"NCCL has no ring for {collective.name}; it groups sends: use 'p2p'")
    orders = [
        [rank for chain in hosts for rank in chain.ranks] for hosts in chains(topology, channels)
    ]
    return ring_program(collective.name, orders, collective.root)


def nccl_alltoall(
    topology: Topology, collective: Collective, channels: int, parts: int = 1
) -> Schedule:
    """Return grouped sends and receives: `parts` for each pair, spread over the channels.

    Raises:
        Infeasible: NCCL does the collective otherwise than by sends and receives.
        InputError: numbers that do not fit `topology`.

    Notes:
        As ncclSend and ncclRecv in a group: at distance d rank r sends to r + d and receives
        from r - d; the parts of a distance keep to as many neighbouring channels.
    """
    _check(topology, collective, channels)
    if not 1 <= parts <= channels:
        raise InputError(f"{parts} parts for a peer: expected 1 to {channels}, a channel each")
    if collective.name not in ("alltoall", "gather", "scatter"):
        raise Infeasible(f"NCCL does {collective.name} by ring, not by grouped sends: use 'ring'")
    ranks, root = collective.ranks, collective.root
    trace = Trace(collective, parts, "nccl-p2p")
    for distance in range(1, ranks):
        for src in range(ranks):
            dst = (src + distance) % ranks
            chunk = {"alltoall": src * ranks + dst, "gather": src, "scatter": dst}[collective.name]
            if (
                collective.name == "alltoall"
                or (collective.name == "gather" and dst == root)
                or (collective.name == "scatter" and src == root)
            ):
                for part in range(parts):
                    channel = ((distance - 1) * parts + part) % channels
                    trace.send(chunk * parts + part, src, dst, channel=channel)
    return trace.schedule()
