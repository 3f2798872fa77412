"""The time of ranks while libraries run in turns, by its use: copies, reductions, the kernel, rest.

The kernel samples what runs on each processor (perf of Debian's linux-perf), so that all libraries
are seen alike, as they are shipped.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tuccl.errors import Unavailable

__all__ = ["PARTS", "Breakdown", "Samples"]

PARTS = ("copy", "reduce", "transfer", "own")
_HZ = 499  # no multiple of what the kernel's own timers run at
_START_S = 0.3
_SAMPLE = re.compile(r"\s*(\d+)\s+[0-9a-f]+ (.*) \((.*)\)$")
_COPY = re.compile(r"mem(move|cpy|set)|copy_(to|from)_|_copy_|rep_movs|clear_page")
_REDUCE = re.compile(r"combine|reduce|\bsum\b|sum<")
_REDUCE_LIBRARY = re.compile(r"mca_op_")
_IDLE = re.compile(r"sched|poll|epoll|ep_send|futex|switch|syscall|sleep|tsc|ktime|clock")
_KERNEL = "[kernel.kallsyms]"


@dataclass(frozen=True)
class Breakdown:
    """Shares of the time of a mean rank; what is missing from 1 no processor was used for.

    Attributes:
        shares: By part of `PARTS`: copies in memory, also the kernel's; reductions; the kernel's
            work on messages; the library's own code, which is mostly polling, with the system calls
            that poll. A library without symbols reduces in its own code.
        user: Of all parts, outside the kernel.
        system: Inside it.
    """

    shares: Mapping[str, float]
    user: float
    system: float

    def __str__(self) -> str:
        """The parts in per cent, as "12+3+40+20"."""
        return "+".join(f"{100 * self.shares[part]:.0f}" for part in PARTS)


class Samples(AbstractContextManager["Samples"]):
    """Samples of all processors, from the ``with`` statement to its end."""

    def __enter__(self) -> Self:
        """Start to sample.

        Raises:
            Unavailable: perf is missing, or may not.
        """
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name, "samples")
        command = ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", str(_HZ), "-o"]
        try:
            self._perf = subprocess.Popen([*command, str(self._file)], stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            self._folder.cleanup()
            raise Unavailable("perf is not installed: apt-get install linux-perf") from None
        time.sleep(_START_S)
        return self

    def __exit__(self, *error: object) -> None:
        """End it, and read the samples."""
        self._perf.send_signal(signal.SIGINT)
        self._perf.wait()
        command = ["perf", "script", "-i", str(self._file), "-F", "pid,ip,sym,dso"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        self._folder.cleanup()
        self._found = Counter(
            (int(sample[1]), sample[2], sample[3])
            for line in text.splitlines()
            if (sample := _SAMPLE.match(line))
        )

    def of(self, pids: Sequence[int], seconds: float) -> Breakdown | None:
        """Return where these ranks' time went; None: they were not seen, as in virtual machines.

        Args:
            pids: A process of each rank.
            seconds: How long they ran in all.
        """
        parts: Counter[str] = Counter()
        system = 0
        for (pid, symbol, library), count in self._found.items():
            if pid in pids:
                parts[_part(symbol, library)] += count
                system += count * (library == _KERNEL)
        if not parts or seconds <= 0:
            return None
        whole = _HZ * seconds * len(pids)
        shares = {part: parts[part] / whole for part in PARTS}
        return Breakdown(shares, (parts.total() - system) / whole, system / whole)


def _part(symbol: str, library: str) -> str:
    if _COPY.search(symbol):
        return "copy"
    if library == _KERNEL:
        return "own" if _IDLE.search(symbol) else "transfer"
    return "reduce" if _REDUCE_LIBRARY.search(library) or _REDUCE.search(symbol) else "own"
