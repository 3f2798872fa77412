"""Launch commands of real runs: an argument list, no shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tuccl.errors import InputError
from tuccl.runtime.executors.mpi_find import Mpi

# Ranks share this machine's processors, so none may be pinned and none may spin.
_OPTIONS = {
    "openmpi": ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"),
    # Else it kills all ranks as soon as one dies, before they can say what they waited for.
    "mpich": ("-bind-to", "none", "-disable-auto-cleanup"),
}
# Over TCP the receiver fetches what is longer than an eager message piece by piece, which on busy
# links takes up to 1.4 times as long as if it is sent (docs/howto/run-on-cpus.md). 1: send only.
_TCP_FLAGS = "btl_tcp_flags"


@dataclass(frozen=True)
class Launch:
    """The launcher with its options, and a prefix for each worker.

    ``prefixes`` has one argument list a rank (``ip netns exec host0``), or none at all.

    >>> Launch(("mpiexec",), (("a",), ("a",), ())).command(3, ["w"])
    ['mpiexec', '-n', '2', 'a', 'w', ':', '-n', '1', 'w']
    """

    launcher: tuple[str, ...]
    prefixes: tuple[tuple[str, ...], ...] = ()

    def command(self, ranks: int, worker: Sequence[str]) -> list[str]:
        """Return the arguments that start ``ranks`` ranks of ``worker``.

        Raises:
            InputError: there are prefixes, but not one for each rank.
        """
        prefixes = self.prefixes or ((),) * ranks
        if len(prefixes) != ranks:
            raise InputError(f"{len(prefixes)} launch prefixes for {ranks} ranks: expected as many")
        out = list(self.launcher)
        for number, (prefix, same) in enumerate(groupby(prefixes)):
            separator = [":"] if number else []
            out += [*separator, "-n", str(len(list(same))), *prefix, *worker]
        return out


def usual_launch(mpi: Mpi) -> Launch:
    """Return how ``mpi`` starts ranks that share this machine's processors.

    Open MPI gets an option to send long messages over TCP, unless the environment says otherwise
    (``OMPI_MCA_btl_tcp_flags``) or ``mpi`` is to be as shipped.
    """
    options = _OPTIONS[mpi.family]
    if mpi.family == "openmpi":
        if os.geteuid() == 0:
            options = ("--allow-run-as-root", *options)
        if not mpi.as_shipped and f"OMPI_MCA_{_TCP_FLAGS}" not in os.environ:
            options = (*options, "--mca", _TCP_FLAGS, "1")
    return Launch((str(Path(mpi.mpiexec)), *options))
