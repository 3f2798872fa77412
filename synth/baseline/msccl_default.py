"""The program that untuned MSCCL would run: direct sends on the full mesh, stock knobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.sketches import full_mesh
from tuccl.synth.classic.allpairs import allpairs
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace
from tuccl.topology import Topology

# The paper's default configuration: Simple, one channel, 512 threads, 4 MiB buffers.
MSCCL_DEFAULT_KNOBS = Knobs("Simple", 1, 512, 4 << 20)
# The robust form is one program for every size, made for this one.
_ROBUST_BYTES = 1 << 20


def msccl_default(
    topology: Topology, collective: Collective, form: Literal["faithful", "robust"] = "robust"
) -> Schedule:
    """Return the msccl-default schedule: one chunk a rank, direct sends, one channel.

    Args:
        topology: The topology, whose full mesh is the sketch.
        collective: What is to be computed.
        form: ``faithful`` builds what TACCL's method gives; ``robust`` an all-pairs program.

    Raises:
        InputError: an unknown form, or a collective of another number of ranks than `topology`.

    Notes:
        The configuration C0 of TuCCL, Table III. TACCL (microsoft/taccl, reduce_scheduler.py)
        reverses its allgather for the reduce-scatter and lets a chunk's sum take one contribution
        after the other; the robust form collects contributions side by side. Claims are made
        against the robust form.
    """
    if collective.ranks != topology.ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a topology of {topology.ranks}: "
            "the numbers must agree"
        )
    if form == "robust":
        return allpairs(Problem(collective, full_mesh(topology), 1, _ROBUST_BYTES))
    if form == "faithful":
        return _faithful(
            collective, tuple(topology.host_of(rank) for rank in range(topology.ranks))
        )
    raise InputError(f"form {str(form)[:40]!r} of msccl-default: expected 'faithful' or 'robust'")


def _faithful(collective: Collective, hosts: tuple[str, ...]) -> Schedule:
    """Return direct sends, and for reductions the same sends reversed, sums taken in a row."""
    trace = Trace(collective, 1, "msccl-default-faithful")
    if collective.reducing:
        # The reversal also reverses the order: contributions from other hosts come first.
        for chunk, owner, other in reversed(list(_direct(collective, hosts))):
            trace.reduce(chunk, other, owner)
    if not collective.reducing or collective.name == "allreduce":
        for chunk, owner, other in _direct(collective, hosts):
            trace.send(chunk, owner, other)
    return trace.schedule()


def _direct(collective: Collective, hosts: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (chunk, rank that has it, rank that is to get it), by time: own hosts first."""
    ranks = collective.ranks
    for inter in (False, True):
        for distance in range(1, ranks):
            for src in range(ranks):
                dst = (src + distance) % ranks
                if (hosts[src] != hosts[dst]) == inter:
                    yield from ((chunk, src, dst) for chunk in _chunks(collective, src, dst))


def _chunks(collective: Collective, src: int, dst: int) -> range | tuple[int, ...]:
    """Return the chunks that go directly from `src` to `dst` (back again for a reduction)."""
    ranks, root = collective.ranks, collective.root
    match collective.name:
        case "alltoall":
            return (src * ranks + dst,)
        case "broadcast" | "reduce":
            return range(ranks) if src == root else ()
        case "scatter":
            return (dst,) if src == root else ()
        case "gather":
            return (src,) if dst == root else ()
        case _:
            return (src,)
