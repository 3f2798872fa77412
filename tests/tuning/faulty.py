"""A simulator whose recursive programs end, hold up or mislead the process that times them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.tuning.conftest import Stand
from tuccl.program import Knobs, Program
from tuccl.runtime import MSCCL_LOOP, StepLoop, Timing
from tuccl.topology import Topology


class Faulty(Stand):
    """``attempts`` gets a byte for each evaluation that met the fault, at most ``most``."""

    def __init__(self, topology: Topology, fault: str, attempts: Path, most: int = 100) -> None:
        super().__init__(topology)
        self.fault, self.attempts, self.most = fault, attempts, most
        self.attempts.touch()

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        self.wrong_methods = ()
        if self.fault == "dawdles":
            time.sleep(0.3)
        faulty = "recursive" in program.name
        if faulty and self.attempts.stat().st_size < self.most:
            with self.attempts.open("ab") as file:
                file.write(b".")
            if self.fault == "crashes":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "kills parent":
                os.kill(os.getppid(), signal.SIGKILL)
            while self.fault in ("hangs", "kills parent"):
                time.sleep(1.0)
            if self.fault == "misleads":
                self.wrong_methods = ("",)
        return super().time(program, knobs, nbytes, root=root, repeats=repeats, loop=loop)
