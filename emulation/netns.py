"""Network namespaces, their devices and their queues, by iproute2's own batch files.

A batch is made of numbers and fixed words alone (see `emulated_cluster`); no shell reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tuccl.errors import TucclError, Unavailable

_FOLDER = Path("/run/netns")
_STEP_S = 30.0  # no step takes longer; all take milliseconds
_END_S = 3.0
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_TOOLS = ("ip", "tc", "bridge", "unshare")
_INSTEAD = "simulate instead, with --on sim (tuccl train: --kind sim)"


class Queue(NamedTuple):
    """A device's token bucket: rate in bit/s, bucket in bytes, bytes sent, packets dropped."""

    rate_bps: float
    burst: int
    sent: int
    dropped: int


def check_privilege() -> None:
    """Return if namespaces can be made here.

    Raises:
        Unavailable: this process may not, or the tools are missing; says what to do.
    """
    missing = [tool for tool in _TOOLS if _tool(tool) is None]
    if missing:
        raise Unavailable(
            f"emulation needs {', '.join(missing)}: apt-get install iproute2 util-linux; "
            f"or {_INSTEAD}"
        )
    held = _capabilities()
    if os.geteuid() != 0 or not all(held >> bit & 1 for bit in (_CAP_NET_ADMIN, _CAP_SYS_ADMIN)):
        raise Unavailable(
            f"emulation makes network namespaces, which needs root (CAP_NET_ADMIN and "
            f"CAP_SYS_ADMIN); {_INSTEAD}"
        )


def spaces() -> list[str]:
    """Return the names of all network namespaces."""
    try:
        return sorted(path.name for path in _FOLDER.iterdir())
    except OSError:
        return []


def add_space(name: str) -> None:
    """Make the namespace ``name``, its loopback device up.

    Raises:
        TucclError: it cannot be made.
    """
    _run(["ip", "netns", "add", name])
    _run(["ip", "-n", name, "link", "set", "lo", "up"])


def delete_space(name: str) -> None:
    """End the processes in the namespace ``name`` and remove it; does nothing if it is gone.

    Raises:
        TucclError: it cannot be removed.
    """
    if not (_FOLDER / name).exists():
        return
    until = time.monotonic() + _END_S
    while (pids := _processes(name)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    with contextlib.suppress(TucclError):
        _run(["ip", "netns", "delete", name])
    if (_FOLDER / name).exists():
        raise TucclError(f"network namespace {name} cannot be removed: try ip netns delete {name}")


def batch(tool: str, space: str, lines: Iterable[str]) -> None:
    """Run ``lines`` by ``tool`` (ip, tc, bridge) inside the namespace ``space``.

    Raises:
        TucclError: one of them fails; says which.
    """
    text = "".join(f"{line}\n" for line in lines)
    if text:
        _run([tool, "-n", space, "-batch", "-"], text)


def set_controls(space: str, values: dict[str, str]) -> None:
    """Set the kernel parameters ``values`` (``net/ipv4/ip_forward``) of the namespace ``space``.

    Raises:
        TucclError: there is no such parameter.
    """
    for name, value in values.items():
        _run(["ip", "netns", "exec", space, "tee", f"/proc/sys/{name}"], value)


def queues(space: str) -> dict[str, Queue]:
    """Return the token buckets of the namespace ``space`` by device, as the kernel has them.

    Raises:
        TucclError: they cannot be read.
    """
    rows = json.loads(_run(["tc", "-n", space, "-s", "-j", "qdisc", "show"]) or "[]")
    return {
        row["dev"]: Queue(
            8.0 * row["options"]["rate"], row["options"]["burst"], row["bytes"], row["drops"]
        )
        for row in rows
        if row["kind"] == "tbf"
    }


def _processes(space: str) -> list[int]:
    try:
        return [int(word) for word in _run(["ip", "netns", "pids", space]).split()]
    except TucclError:
        return []


def _run(command: Sequence[str], text: str = "") -> str:
    tool = _tool(command[0]) or command[0]
    try:
        finished = subprocess.run(
            [tool, *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
            start_new_session=True,  # a terminal's interrupt does not cut a step in half
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TucclError(f"{' '.join(command)}: {error}") from None
    if finished.returncode != 0:
        raise TucclError(f"{' '.join(command)}: {' '.join(finished.stderr.split())[:200]}")
    return finished.stdout


def _tool(name: str) -> str | None:
    """Return where ``name`` is; iproute2's place is not always on the PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def _capabilities() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return int(line.split()[1], 16)
