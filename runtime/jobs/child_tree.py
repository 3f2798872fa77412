"""Running a command to its end, or ending it with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError

__all__ = ["Finished", "descendants", "lives", "run_to_end"]

_GRACE_S = 5.0  # a launcher takes its ranks on other hosts down
_ORPHANS_S = 0.5  # what outlives it gets no longer
_LOOK_S = 0.05


@dataclass(frozen=True)
class Finished:
    """The output of a command and its exit code, negative for a signal; None: out of time."""

    code: int | None
    out: str
    err: str


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float | None
) -> Finished:
    """Return what ``command`` printed; after ``limit_s`` seconds it is ended with its children.

    It runs without a shell, with ``environment`` as its whole environment, and in a session of
    its own: a Ctrl-C comes here first, and ends it in the same way.

    Raises:
        InputError: there is no such command, or it cannot be started.
    """
    try:
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{command[0][:80]!r} cannot be started: {error}") from None
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        out, err = process.communicate()
        return Finished(None, out, err)
    except BaseException:
        _end(process)
        process.communicate()
        raise
    return Finished(process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the command to end, then kill what is left of its children by their ids."""
    tree = {process.pid: _began(process.pid), **descendants(process.pid)}
    process.terminate()
    until = time.monotonic() + _GRACE_S
    orphans_until: float | None = None
    while time.monotonic() < until and any(lives(pid, began) for pid, began in tree.items()):
        if orphans_until is None and process.poll() is not None:
            orphans_until = until = time.monotonic() + _ORPHANS_S
        time.sleep(_LOOK_S)
    for pid, began in tree.items():
        if lives(pid, began):
            _kill(pid)


def descendants(pid: int) -> dict[int, str]:
    """Return the start times of all processes below ``pid``, by process id."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _fields(int(folder.name))):
            parents.setdefault(int(fields[1]), []).append((int(folder.name), fields[19]))
    below: dict[int, str] = {}
    pending = [pid]
    while pending:
        children = parents.get(pending.pop(), [])
        below.update(children)
        pending += [child for child, _ in children]
    return below


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent ... start time at 19."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _began(pid: int) -> str:
    fields = _fields(pid)
    return fields[19] if fields else ""


def lives(pid: int, began: str) -> bool:
    """Return whether the process that started at ``began`` still runs."""
    fields = _fields(pid)
    return bool(fields) and fields[19] == began and fields[0] != "Z"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
