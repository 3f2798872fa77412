"""The calls that a job makes: its collectives with sizes and counts, read from its own records."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.workload.calls import Call, LeftOut, Workload
    from tuccl.runtime.workload.read import read_workload

__all__ = ["Call", "LeftOut", "Workload", "read_workload"]

make_lazy(__name__)
