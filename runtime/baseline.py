"""The defaults that a table has to beat, timed like any program."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuccl._native import Knobs, Program, max_threads
from tuccl.errors import InputError
from tuccl.runtime.executor import Executor, Timing
from tuccl.runtime.nccl_choice import NcclChoice, nccl_choice
from tuccl.synth import Collective, lower
from tuccl.synth.baselines import MSCCL_DEFAULT_KNOBS, msccl_default
from tuccl.synth.nccl import nccl_alltoall, nccl_ring, nccl_tree
from tuccl.topology import Topology

__all__ = ["BASELINES", "BaselineKind", "BaselineTiming", "time_baseline"]

BaselineKind = Literal["nccl", "msccl-default", "msccl-default-robust"]
BASELINES: tuple[BaselineKind, ...] = ("nccl", "msccl-default", "msccl-default-robust")


@dataclass(frozen=True)
class BaselineTiming:
    """A default's time for one call; ``chosen`` says what it ran, like ``Ring/Simple/4ch``."""

    timing: Timing
    chosen: str
    program: Program
    knobs: Knobs
