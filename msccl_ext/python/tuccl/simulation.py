"""Virtual time: a machine's network, the constants of its class, the simulator of programs."""

from tuccl._native import (
    TRACE_CAUSES,
    GroupsResult,
    MachineClass,
    Network,
    OutsideTraffic,
    ProtocolCosts,
    Resource,
    Route,
    SimResult,
    SimTrace,
    TraceSlice,
    least_us,
    simulate,
    simulate_all,
    simulate_groups,
    trace,
)

__all__ = [
    "TRACE_CAUSES",
    "GroupsResult",
    "MachineClass",
    "Network",
    "OutsideTraffic",
    "ProtocolCosts",
    "Resource",
    "Route",
    "SimResult",
    "SimTrace",
    "TraceSlice",
    "least_us",
    "simulate",
    "simulate_all",
    "simulate_groups",
    "trace",
]
