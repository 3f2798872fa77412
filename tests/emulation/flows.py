"""TCP between hosts of an emulated cluster, to see what its links carry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO

from tuccl.emulation import Emulation
from tuccl.errors import TucclError

_PORT = 5001
_FILL_S = 0.3  # TCP needs a moment to find the rate
_RECEIVER = """
import socket, sys, time
port, fill, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
listener = socket.create_server(("", port))
print("ready", flush=True)
listener.settimeout(20)
line, _ = listener.accept()
line.settimeout(20)
line.recv(1 << 16)
begin = time.monotonic()
while time.monotonic() < begin + fill: line.recv(1 << 16)
begin, nbytes = time.monotonic(), 0
while time.monotonic() < begin + seconds: nbytes += len(line.recv(1 << 16))
print(nbytes * 8 / (time.monotonic() - begin) / 1e6)
"""
_SENDER = """
import socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
try:
    while True: line.sendall(bytes(1 << 16))
except OSError: pass
"""


def received_mbps(
    emulation: Emulation, flows: Sequence[tuple[int, int]], seconds: float = 1.0
) -> list[float]:
    """Return what each flow's receiver gets in Mb/s, payload alone, while all flows run.

    Args:
        emulation: a cluster that is up.
        flows: (sending host, receiving host) by their places in the plan; over their first NICs.
        seconds: how long is measured.

    Raises:
        TucclError: a flow does not come through.
    """
    address = [host.nics[0].address for host in emulation.cluster.hosts]
    with ExitStack() as stack:
        receivers = [
            stack.enter_context(python(emulation, dst, _RECEIVER, _PORT + n, _FILL_S, seconds))
            for n, (_, dst) in enumerate(flows)
        ]
        for receiver in receivers:
            _line(receiver.stdout)
        for n, (src, dst) in enumerate(flows):
            stack.enter_context(python(emulation, src, _SENDER, address[dst], _PORT + n))
        return [float(_line(receiver.stdout)) for receiver in receivers]


def python(emulation: Emulation, host: int, script: str, *words: object) -> subprocess.Popen[str]:
    """Return a Python process on ``host`` that runs ``script``, its output in a pipe."""
    command = [*emulation.prefix(host), sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(output: IO[str] | None) -> str:
    line = output.readline() if output is not None else ""
    if not line:
        raise TucclError("a flow between emulated hosts does not come through")
    return line
