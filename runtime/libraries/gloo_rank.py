"""One rank of Gloo: ``python -m tuccl.runtime.libraries.gloo_rank SOCKET``."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from tuccl.runtime.libraries.rank import Control, serve

_LIMIT_S = 300
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_TYPES = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "bfloat16": torch.bfloat16,
}
_COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "broadcast", "alltoall", "gather")
_OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


class Gloo:
    """Gloo by ``torch.distributed``, on the ranks that the launcher has set."""

    name = "Gloo"
    progress = 0

    def __init__(self, folder: Path) -> None:
        """Join the others, by a file in ``folder``."""
        self.rank, self.ranks = (
            int(next(os.environ[n] for n in names if n in os.environ)) for names in (_RANK, _RANKS)
        )
        torch.set_num_threads(1)
        at = os.environ.get("MASTER_ADDR")  # hosts may share no folder
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{at}:29400" if at else f"file://{folder / 'gloo'}",
            rank=self.rank,
            world_size=self.ranks,
            timeout=datetime.timedelta(seconds=_LIMIT_S),
        )

    def algorithms(self, collective: str) -> str:
        """Return its one way, or none."""
        return "auto" if collective in _COLLECTIVES else ""

    def choose(self, call: Mapping[str, str]) -> None:
        """Take what a call computes."""
        self._collective, self._root = call["own-run"], int(call["root"])
        self._type, self._op = _TYPES[call["datatype"]], _OPS[call["op"]]

    def buffer(self, values: NDArray[np.int64]) -> torch.Tensor:
        """Return a tensor of ``values``."""
        return torch.from_numpy(values).to(self._type, copy=True)

    def run(
        self, given: torch.Tensor, output: torch.Tensor, pause_us: int, runs: int
    ) -> list[float]:
        """Run as often, each after a rest; return the times in us."""
        return [self._run(given, output, pause_us) for _ in range(runs)]

    def _run(self, given: torch.Tensor, output: torch.Tensor, pause_us: int) -> float:
        dist.barrier()
        if pause_us:
            time.sleep(pause_us * 1e-6)
            dist.barrier()
        begin = time.perf_counter()
        match self._collective:
            case "allreduce":
                dist.all_reduce(output, self._op)
            case "allgather":
                dist.all_gather_into_tensor(output, given)
            case "reduce-scatter":
                dist.reduce_scatter_tensor(output, given, self._op)
            case "gather":
                at_root = self.rank == self._root
                parts = list(output.chunk(self.ranks)) if at_root else None
                dist.gather(given, parts, self._root)
            case "alltoall":
                dist.all_to_all_single(output, given)
            case _:
                dist.broadcast(output, self._root)
        us = (time.perf_counter() - begin) * 1e6
        self.progress += 1
        return us

    def finish(self) -> None:
        """End at once: the group's own end waits for others."""
        os._exit(0)


if __name__ == "__main__":
    control = Control(sys.argv[1])
    serve(control, Gloo(Path(sys.argv[1]).parent), f"Gloo of PyTorch {torch.__version__}")
