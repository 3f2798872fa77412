"""Load of a finished program on the links, and the fraction of the bound that this allows."""

from __future__ import annotations

from tuccl.program import Program
from tuccl.simulation import Network
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.bound import bound
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.schedule import Schedule
from tuccl.topology import Topology, network


def busiest_us_per_mb(program: Program, topology: Topology, links: Network | None = None) -> float:
    """Return the us that the busiest link takes for each MB (1e6 bytes) of the whole buffer.

    Args:
        program: Says who sends what.
        topology: Says which links that takes.
        links: The same for the simulator, where it was made before.
    """
    if links is None:
        links = network(topology, program.sent)
    return links.busiest_us_per_mb(program)


def busiest_link_us(schedule: Schedule, sketch: Sketch, topology: Topology, nbytes: int) -> float:
    """Return the us that the busiest link takes for what `schedule` sends of `nbytes` bytes.

    No program of it is faster: GPUs' channels share what NICs they have.
    """
    routed = sketch_network(sketch, topology)
    loads = routed.loads([schedule.sent.get(pair, 0) for pair in routed.pairs])
    return float(routed.busiest_s(loads)) * nbytes / schedule.nchunks / 1e3


def fraction_of_bound(
    program: Program, topology: Topology, collective: Collective, links: Network | None = None
) -> float:
    """Return the algbw that the busiest link allows at large sizes, as a fraction of the bound.

    Args:
        program: Says who sends what.
        topology: Says which links that takes.
        collective: Is bounded.
        links: As for `busiest_us_per_mb`.

    Raises:
        InputError: the collective or a route does not fit the topology.
    """
    busiest = busiest_us_per_mb(program, topology, links)
    return 1e3 / busiest / bound(topology, collective).algbw_gbs if busiest else 1.0
