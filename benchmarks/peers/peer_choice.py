"""The peers that can be had on the ranks of an executor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from peer import GlooRanks, MpiRanks, Peer
from tuccl.errors import Unavailable
from tuccl.runtime import MpiExecutor, find_mpi
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch


def peers_beside(
    executor: MpiExecutor,
    launch: Callable[[Mpi], Launch],
    names: tuple[str, ...],
    stack: ExitStack,
) -> tuple[list[Peer], list[str]]:
    """Return the peers beside the ranks of ``executor``, and why others cannot be had.

    ``launch`` starts ranks where those of ``executor`` are; ``stack`` ends their processes.

    Raises:
        Unavailable: none can be had.
    """
    found: list[Peer] = []
    missing = []
    for name in names:
        try:
            mpi = executor.mpi if name in ("gloo", executor.mpi.family) else find_mpi(name)
            kind = GlooRanks if name == "gloo" else MpiRanks
            found.append(stack.enter_context(kind(executor.ranks, mpi, launch(mpi))).peer)
        except Unavailable as error:
            missing.append(f"{name} left out: {error}")
    if not found:
        raise Unavailable("; ".join(missing))
    return found, missing
