"""The defaults a table is compared with, timed alike."""

from tuccl.runtime.baseline.defaults import (
    BASELINES,
    SYMMETRIC_BASELINE,
    BaselineTiming,
    baselines_on,
    time_baseline,
)
from tuccl.runtime.baseline.nccl_call import NcclCall, nccl_call

__all__ = [
    "BASELINES",
    "SYMMETRIC_BASELINE",
    "BaselineTiming",
    "NcclCall",
    "baselines_on",
    "nccl_call",
    "time_baseline",
]
