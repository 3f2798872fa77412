"""Clusters of network namespaces on one machine, with a topology's rates."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.emulation.cluster import emulated_cluster
    from tuccl.emulation.cross_executor import CrossExecutor
    from tuccl.emulation.emulated_topology import emulated_network, emulated_topology
    from tuccl.emulation.emulation import Emulation, running_emulations, set_rate
    from tuccl.emulation.executor import EmulatedExecutor
    from tuccl.emulation.probing import (
        emulated_endpoints,
        emulated_prober,
        unprobed_topology,
    )
    from tuccl.emulation.regimes import Cells, CellsExecutor
    from tuccl.emulation.sim_executor import EmulatedSimExecutor, as_run_on_cpus

__all__ = [
    "Cells",
    "CellsExecutor",
    "CrossExecutor",
    "EmulatedExecutor",
    "EmulatedSimExecutor",
    "Emulation",
    "as_run_on_cpus",
    "emulated_cluster",
    "emulated_endpoints",
    "emulated_network",
    "emulated_prober",
    "emulated_topology",
    "running_emulations",
    "set_rate",
    "unprobed_topology",
]

make_lazy(__name__)
