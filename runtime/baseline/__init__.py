"""The defaults a table is compared with, timed alike."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.baseline.defaults import (
        BASELINES,
        BEST_BASELINES,
        LIBRARIES_BASELINE,
        SYMMETRIC_BASELINE,
        baselines_on,
        time_baseline,
    )
    from tuccl.runtime.baseline.nccl_best import nccl_configurations, nccl_timings, time_nccl
    from tuccl.runtime.baseline.nccl_call import collective_stub, nccl_call

__all__ = [
    "BASELINES",
    "BEST_BASELINES",
    "LIBRARIES_BASELINE",
    "SYMMETRIC_BASELINE",
    "baselines_on",
    "collective_stub",
    "nccl_call",
    "nccl_configurations",
    "nccl_timings",
    "time_baseline",
    "time_nccl",
]

make_lazy(__name__)
