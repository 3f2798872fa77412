"""The peers that can be had on the ranks of an executor."""

from __future__ import annotations

from contextlib import ExitStack

from peer import GlooRanks, Peer, mpi_peer
from tuccl.errors import Unavailable
from tuccl.runtime import MpiExecutor, find_mpi


def peers_beside(
    executor: MpiExecutor, names: tuple[str, ...], stack: ExitStack
) -> tuple[list[Peer], list[str]]:
    """Return the peers on the ranks of ``executor``, and why others cannot be had.

    ``stack`` ends their processes.

    Raises:
        Unavailable: none can be had.
    """
    found: list[Peer] = []
    missing = []
    for name in names:
        try:
            found.append(_peer(executor, name, stack))
        except Unavailable as error:
            missing.append(f"{name} left out: {error}")
    if not found:
        raise Unavailable("; ".join(missing))
    return found, missing


def _peer(executor: MpiExecutor, name: str, stack: ExitStack) -> Peer:
    if name == "gloo":
        ranks = GlooRanks(executor.ranks, executor.mpi, executor.launch)
        return stack.enter_context(ranks).peer
    if name == executor.mpi.family:
        return mpi_peer(executor)
    return mpi_peer(stack.enter_context(executor.with_mpi(find_mpi(name))))
