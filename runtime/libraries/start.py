"""The libraries that can be had on the ranks of an executor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tuccl.errors import Unavailable
from tuccl.runtime.executors import find_mpi
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch
from tuccl.runtime.libraries.library import GlooRanks, Library, LibraryRanks, MpiRanks


def start_libraries(
    executor: MpiExecutor,
    launch: Callable[[Mpi], Launch],
    names: tuple[str, ...],
    stack: ExitStack,
) -> tuple[list[Library], list[str]]:
    """Return the libraries beside the ranks of ``executor``, and why others cannot be had.

    ``launch`` starts ranks where those of ``executor`` are; ``stack`` ends their processes.

    Raises:
        Unavailable: none can be had.
    """
    found: list[Library] = []
    missing = []
    for name in names:
        try:
            mpi = executor.mpi if name in ("gloo", executor.mpi.family) else find_mpi(name)
            kind: type[LibraryRanks] = GlooRanks if name == "gloo" else MpiRanks
            shipped = replace(mpi, as_shipped=True)  # as its users run it
            ranks = kind(executor.ranks, shipped, launch(shipped))
            found.append(stack.enter_context(ranks).library)
        except Unavailable as error:
            missing.append(f"{name} left out: {error}")
    if not found:
        raise Unavailable("; ".join(missing))
    return found, missing
