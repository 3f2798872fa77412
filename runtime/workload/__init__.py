"""The calls that a job makes: its collectives with sizes and counts, read from its own records."""

from tuccl.runtime.workload.calls import Call, LeftOut, Workload
from tuccl.runtime.workload.read import read_workload

__all__ = ["Call", "LeftOut", "Workload", "read_workload"]
