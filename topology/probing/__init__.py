"""Probing of networks: what to probe, fits, what hosts share, and the topology of it all.

Nothing here starts a process or sends a byte: a `Prober` does, for the emulated cluster, the
loopback device or the hosts behind a launcher.
"""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.topology.probing.fit import Estimate, Fit, fit
    from tuccl.topology.probing.measured import measured_topology, with_network
    from tuccl.topology.probing.network import NetworkRates, probe_network
    from tuccl.topology.probing.pairs import Endpoint, endpoints_of, read_use
    from tuccl.topology.probing.peers import with_peer_rates
    from tuccl.topology.probing.prober import Load, PairTimes, Prober
    from tuccl.topology.probing.record import RecordedProber

__all__ = [
    "Endpoint",
    "Estimate",
    "Fit",
    "Load",
    "NetworkRates",
    "PairTimes",
    "Prober",
    "RecordedProber",
    "endpoints_of",
    "fit",
    "measured_topology",
    "probe_network",
    "read_use",
    "with_network",
    "with_peer_rates",
]

make_lazy(__name__)
