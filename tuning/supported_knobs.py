"""Which knobs an executor honours: what it does not is not searched."""

from __future__ import annotations

import os

from tuccl.runtime import Executor
from tuccl.tuning.knob_grid import WHOLE_GRID, KnobGrid

__all__ = ["grid_of"]

_ON_CPUS = ("mpi", "loopback")
_GPU_THREADS_OF_A_CPU_THREAD = 128
_STOCK_THREADS = 512
_MOST_THREADS = 640  # of LL128
_GPU_BUFFERS = tuple(256 << 10 << i for i in range(6))  # each try starts a job: few that differ
_BUFFERS = tuple(64 << 10 << i for i in range(8))  # smaller slots are all message cost on a CPU
_CHANNELS = (1, 2, 4, 8)


def grid_of(executor: Executor) -> KnobGrid:
    """Return the knobs that change what ``executor`` does, each value that it tells apart.

    Notes:
        On CPUs (docs/cpu.md) LL128 runs as LL with other slots; threads share a reduction
        only as far as a rank has cores of its own, in steps of 128; a channel is no more than a
        tag. A stock MSCCL runs with a protocol's most threads only (docs/msccl.md), and a buffer
        for the whole process.
    """
    if executor.name == "nccl-tests":
        return KnobGrid(threads=(_STOCK_THREADS, _MOST_THREADS), buffers=_GPU_BUFFERS)
    if executor.name not in _ON_CPUS:
        return WHOLE_GRID
    own_cores = (os.cpu_count() or 1) // executor.ranks
    steps = range(1, min(own_cores, _STOCK_THREADS // _GPU_THREADS_OF_A_CPU_THREAD))
    fewer = (_GPU_THREADS_OF_A_CPU_THREAD * n for n in steps)
    return KnobGrid(("Simple", "LL"), _CHANNELS, (*fewer, _STOCK_THREADS), _BUFFERS)
