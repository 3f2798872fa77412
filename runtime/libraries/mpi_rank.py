"""One rank of an MPI's own collectives: ``-m tuccl.runtime.libraries.mpi_rank LIBRARY SOCKET``."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tuccl.runtime.libraries.rank import Control, serve

_TYPES = {"float": np.float32, "double": np.float64}  # by another name than numpy's


class OwnCollectives:
    """The MPI's own collectives, by each algorithm that it has."""

    name = "MPI"

    def __init__(self, path: str) -> None:
        """Start MPI by the library at ``path``.

        Raises:
            RuntimeError: says why it does not start.
        """
        # Open MPI's own plugins look for its symbols among the global ones.
        self._mpi = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        for name in ("tuccl_own_algorithms", "tuccl_own_version", "tuccl_own_error"):
            getattr(self._mpi, name).restype = ctypes.c_char_p
        rank, ranks = ctypes.c_int(), ctypes.c_int()
        self._checked(self._mpi.tuccl_own_start(ctypes.byref(rank), ctypes.byref(ranks)))
        self.rank, self.ranks = rank.value, ranks.value

    @property
    def progress(self) -> int:
        """Number of runs so far."""
        return int(self._mpi.tuccl_own_progress())

    @property
    def version(self) -> str:
        """The MPI's own words of itself."""
        return bytes(self._mpi.tuccl_own_version()).decode()

    def algorithms(self, collective: str) -> str:
        """Return the names of its algorithms, its own choice ("auto") first."""
        return bytes(self._mpi.tuccl_own_algorithms(collective.encode())).decode()

    def choose(self, call: Mapping[str, str]) -> None:
        """Make the runs to come take a call's algorithm."""
        names = (call[name].encode() for name in ("own-run", "algorithm", "datatype", "op"))
        self._checked(self._mpi.tuccl_own_choose(*names, int(call["root"])))
        self._type = np.dtype(_TYPES.get(call["datatype"], call["datatype"]))

    def buffer(self, values: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return an array of ``values``."""
        return values.astype(self._type)

    def run(
        self, given: NDArray[np.generic], output: NDArray[np.generic], pause_us: int, runs: int
    ) -> list[float]:
        """Run as often, each after a rest; return the times in us, of a loop in C."""
        times = (ctypes.c_double * runs)()
        elements = ctypes.c_size_t(max(given.size, output.size))  # of the whole buffer
        buffers = (given.ctypes.data_as(ctypes.c_void_p), output.ctypes.data_as(ctypes.c_void_p))
        pause = ctypes.c_long(pause_us)
        self._checked(self._mpi.tuccl_own_run(*buffers, elements, pause, runs, times))
        return list(times)

    def finish(self) -> None:
        """End MPI."""
        self._mpi.tuccl_own_finish()

    def _checked(self, result: int) -> None:
        if result < 0:
            raise RuntimeError(bytes(self._mpi.tuccl_own_error()).decode())


if __name__ == "__main__":
    control = Control(sys.argv[2])
    collectives = OwnCollectives(sys.argv[1])
    serve(control, collectives, collectives.version)
