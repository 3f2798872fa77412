"""Running commands to their end, or ending them with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuccl.errors import InputError

_GRACE_S = 5.0  # a launcher takes its ranks on other hosts down
_ORPHANS_S = 0.5  # what outlives it gets no longer
_LOOK_S = 0.05


@dataclass(frozen=True)
class Finished:
    """The output of a command and its exit code, negative for a signal; None: out of time."""

    code: int | None
    out: str
    err: str


def start_command(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
    """Start ``command`` without a shell, without input, in a session of its own.

    ``options`` are those of `subprocess.Popen`. In its own session a terminal's interrupt does not
    reach it: who started it ends it.

    Raises:
        InputError: there is no such command, or it cannot be started.
    """
    options = {"stdin": subprocess.DEVNULL, **options}
    try:
        return subprocess.Popen(list(command), start_new_session=True, **options)
    except (OSError, ValueError) as error:
        raise InputError(f"{command[0][:80]!r} cannot be started: {error}") from None


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float | None
) -> Finished:
    """Return what ``command`` printed; after ``limit_s`` seconds it is ended with its children.

    It runs without a shell, with ``environment`` as its whole environment, and in a session of
    its own: a Ctrl-C comes here first, and ends it likewise.

    Raises:
        InputError: there is no such command, or it cannot be started.
    """
    pipe = subprocess.PIPE
    process = start_command(
        command, env=dict(environment), stdout=pipe, stderr=pipe, text=True, errors="replace"
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end([process])
        out, err = process.communicate()
        return Finished(None, out, err)
    except BaseException:
        _end([process])
        process.communicate()
        raise
    return Finished(process.returncode, out, err)


def run_all(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    limit_s: float,
    at_once: int = 16,
    most_bytes: int = 1 << 26,
) -> list[Finished]:
    """Return what each of ``commands`` printed, ``at_once`` of them running at a time.

    Each runs as `run_to_end` runs it. One that prints more than ``most_bytes`` is ended as one is
    that is out of time. Whatever ends the waiting, a Ctrl-C too, ends all that still run.

    Raises:
        InputError: there is no such command, or it cannot be started.
    """
    finished: dict[int, Finished] = {}
    running: dict[int, _Child] = {}
    numbers = iter(range(len(commands)))
    try:
        while len(finished) < len(commands):
            while len(running) < at_once and (number := next(numbers, None)) is not None:
                running[number] = _Child(commands[number], environment, limit_s, most_bytes)
            for number in [n for n, child in running.items() if child.is_over()]:
                finished[number] = running[number].finished()
                del running[number]
            time.sleep(_LOOK_S)
    finally:
        _end([child.process for child in running.values()])
        for child in running.values():
            child.finished()
    return [finished[number] for number in range(len(commands))]


class _Child:
    """A command that runs, its output in files: what it leaves behind cannot hold them open."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        limit_s: float,
        most_bytes: int,
    ) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._most_bytes = most_bytes
        self._until = time.monotonic() + limit_s
        try:
            self.process = start_command(
                command, env=dict(environment), stdout=self._out, stderr=self._err
            )
        except InputError:
            self._out.close()
            self._err.close()
            raise

    def is_over(self) -> bool:
        """Return whether it ended, or has to."""
        sizes = (os.fstat(file.fileno()).st_size for file in (self._out, self._err))
        late = time.monotonic() > self._until or max(sizes) > self._most_bytes
        return self.process.poll() is not None or late

    def finished(self) -> Finished:
        """Return what it printed; it is ended if it still runs."""
        code = self.process.poll()
        if code is None:
            _end([self.process])
            self.process.wait()
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read(self._most_bytes).decode("utf-8", "replace"))
            file.close()
        return Finished(code, *texts)


def _end(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Signal the commands to end, then kill what is left of their children by their ids."""
    tree: dict[int, str] = {}
    for process in processes:  # a command's end hides what it started
        tree |= {process.pid: _began(process.pid), **descendants(process.pid)}
    for process in processes:
        process.terminate()
    until = time.monotonic() + _GRACE_S
    orphans_until: float | None = None
    while time.monotonic() < until and any(lives(pid, began) for pid, began in tree.items()):
        ended = all(process.poll() is not None for process in processes)
        if orphans_until is None and ended:
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
