"""Clusters of network namespaces on one machine, with a topology's rates."""

from tuccl.emulation.emulated_topology import emulated_network, emulated_topology
from tuccl.emulation.emulation import (
    Emulation,
    RunningEmulation,
    running_emulations,
    set_rate,
)
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.emulation.flows import WireRate, received_mbps, wire_rates
from tuccl.emulation.plan import plan as emulation_plan
from tuccl.emulation.sim_executor import EmulatedSimExecutor, eager_costs, on_cpus

__all__ = [
    "EmulatedExecutor",
    "EmulatedSimExecutor",
    "Emulation",
    "RunningEmulation",
    "WireRate",
    "eager_costs",
    "emulated_network",
    "emulated_topology",
    "emulation_plan",
    "on_cpus",
    "received_mbps",
    "running_emulations",
    "set_rate",
    "wire_rates",
]
