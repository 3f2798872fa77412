"""Whether processes that do not get on are stuck, or only get no processor on a machine that is busy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Doubt", "Turns", "turns_of"]

_WAITING = "RD"  # for a processor, for a disk (proc(5))
_SWITCHES = ("voluntary", "nonvoluntary")
_TURNS = 10  # that a process must have had before its silence is held against it
_LOOKS = 3  # of ours: what has come while we had no processor ourselves is read first


@dataclass(frozen=True)
class Turns:
    """How often the kernel has let a process's threads run, and whether one wants to now."""

    count: int
    wants: bool


def turns_of(pid: int) -> Turns | None:
    """Return a process's turns; None where it has ended.

    >>> import os
    >>> turns_of(os.getpid()).wants
    True

    Notes:
        proc(5), ``/proc/pid/task/tid/status``: each turn ends with a switch to another thread.
    """
    count, wants = 0, False
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            count += sum(int(fields[f"{kind}_ctxt_switches"]) for kind in _SWITCHES)
            wants |= fields["State"].split()[0] in _WAITING
    except (OSError, KeyError, ValueError):
        return None
    return Turns(count, wants)


class Doubt:
    """About processes that should have been heard of: from when that was due until it is settled."""

    def __init__(self, pids: Iterable[int], until: float) -> None:
        """Begin to doubt ``pids``; after ``until`` they have had time enough on any machine."""
        self._before = {pid: turns_of(pid) for pid in pids}
        self._until = until
        self._looks = 0

    def is_settled(self, now: float) -> bool:
        """Return whether each of them has had its turns, or wants none, and was silent still.

        To be asked after every look for what they say.
        """
        self._looks += 1
        if self._looks < _LOOKS:
            return False
        return now > self._until or not any(map(self._is_starved, self._before))

    def _is_starved(self, pid: int) -> bool:
        before, after = self._before[pid], turns_of(pid)
        if before is None or after is None:
            return False
        return after.wants and after.count - before.count < _TURNS
