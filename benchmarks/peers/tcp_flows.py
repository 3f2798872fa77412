"""The rates that TCP has of an emulated cluster's links, for the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, NamedTuple

from tuccl.emulation import Emulation
from tuccl.errors import TucclError

_PORT = 5001
_CATCHER = """
import socket, sys, time
port, nbytes, repeats = map(int, sys.argv[1:4])
listener = socket.create_server(("", port))
print("ready", flush=True)
listener.settimeout(20)
line, _ = listener.accept()
line.settimeout(300)
room = memoryview(bytearray(1 << 20))
for _ in range(repeats):
    sys.stdin.readline()
    begin, left = time.monotonic(), nbytes
    line.sendall(b"g")
    while left: left -= line.recv_into(room[: min(left, 1 << 20)])
    print(time.monotonic() - begin, flush=True)
"""
_THROWER = """
import socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
line.settimeout(300)
data = bytes(int(sys.argv[3]))
while line.recv(1): line.sendall(data)
"""


class LinkRate(NamedTuple):
    """The payload rate of a host in Mb/s: the better of its two directions."""

    host: int
    mbps: float


def link_rates(emulation: Emulation, nbytes: int, repeats: int = 3) -> list[LinkRate]:
    """Return what TCP gets of each host's links for ``nbytes`` bytes, all hosts busy both ways.

    Hosts exchange with the neighbour of their own rate, in connections that have carried data
    before; the best of ``repeats`` counts, since a bound on it must hold.

    Raises:
        TucclError: a flow does not come through.
    """
    hosts = range(len(emulation.cluster.hosts))
    flows = [(host, host ^ 1) for host in hosts if host ^ 1 in hosts]
    times = _times(emulation, flows, nbytes, repeats + 1)
    rate = {(src, dst): nbytes * 8e-6 / min(own[1:]) for (src, dst), own in times.items()}
    return [LinkRate(a, max(rate[a, b], rate[b, a])) for a, b in flows]


def _times(
    emulation: Emulation, flows: Sequence[tuple[int, int]], nbytes: int, repeats: int
) -> dict[tuple[int, int], list[float]]:
    """Return the seconds that each repeat of each flow took, all flows begun together."""
    address = [host.nics[0].address for host in emulation.cluster.hosts]
    with ExitStack() as stack:
        catchers = [
            stack.enter_context(python(emulation, dst, _CATCHER, _PORT + n, nbytes, repeats))
            for n, (_, dst) in enumerate(flows)
        ]
        for catcher in catchers:
            _line(catcher.stdout)
        for n, (src, dst) in enumerate(flows):
            where = (address[dst], _PORT + n, nbytes)
            stack.enter_context(python(emulation, src, _THROWER, *where))
        times: dict[tuple[int, int], list[float]] = {flow: [] for flow in flows}
        for _ in range(repeats):
            for catcher in catchers:
                _go(catcher.stdin)
            for flow, catcher in zip(flows, catchers, strict=True):
                times[flow].append(float(_line(catcher.stdout)))
        return times


def _go(pipe: IO[str] | None) -> None:
    if pipe is not None:
        pipe.write("go\n")
        pipe.flush()


def python(emulation: Emulation, host: int, script: str, *words: object) -> subprocess.Popen[str]:
    """Return a Python process on ``host`` that runs ``script``, its output in a pipe."""
    command = [*emulation.prefix(host), sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(output: IO[str] | None) -> str:
    line = output.readline() if output is not None else ""
    if not line:
        raise TucclError("a flow between emulated hosts does not come through")
    return line
