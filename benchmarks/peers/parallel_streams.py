"""Compares several TCP sockets between two processes with one: time and processor time.

    .venv/bin/python benchmarks/peers/parallel_streams.py [--bytes 1G] [--rounds 5]

Over loopback, where only the processor limits: one thread a process, as in `tuccl.torch`, writes
the same bytes to 1, 2, 4 and 8 sockets by turns. A figure is the median of the rounds; `CPU` is
processor time of both ends, the kernel's too, and says more than time where other work runs too.
"""

from __future__ import annotations

import argparse
import os
import resource
import selectors
import socket
import time
from statistics import median

from tuccl.cli.output import columns
from tuccl.units import parse_size

COUNTS = (1, 2, 4, 8)
PIECE = 1 << 20


def cpu_ms(who: int) -> float:
    """Return processor time in ms of this process, or of the children that have ended."""
    used = resource.getrusage(who)
    return (used.ru_utime + used.ru_stime) * 1e3


def pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    """Return connected TCP sockets."""
    made = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(count):
            here = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
            made.append((here, there))
    return made


def moved(ends: list[socket.socket], total: int, writes: bool) -> None:
    """Write or read ``total`` bytes over all sockets, whichever is ready."""
    buffer = memoryview(bytearray(PIECE))
    ready = selectors.DefaultSelector()
    for end in ends:
        end.setblocking(False)
        ready.register(end, selectors.EVENT_WRITE if writes else selectors.EVENT_READ)
    while total > 0:
        for key, _ in ready.select():
            end = key.fileobj
            assert isinstance(end, socket.socket)
            piece = buffer[: min(PIECE, total)]
            total -= end.send(piece) if writes else end.recv_into(piece)
            if total == 0:
                return


def measured(count: int, total: int) -> tuple[float, float]:
    """Return the time and the processor time in ms of ``total`` bytes over ``count`` sockets."""
    joined = pairs(count)
    children, mine = cpu_ms(resource.RUSAGE_CHILDREN), cpu_ms(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    if (reader := os.fork()) == 0:
        moved([there for _, there in joined], total, writes=False)
        os._exit(0)
    moved([here for here, _ in joined], total, writes=True)
    os.waitpid(reader, 0)
    took = (time.perf_counter() - begin) * 1e3
    used = cpu_ms(resource.RUSAGE_CHILDREN) - children + cpu_ms(resource.RUSAGE_SELF) - mine
    for pair in joined:
        for end in pair:
            end.close()
    return took, used


def main() -> None:
    """Print a line for each number of sockets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", default="1G")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    total = parse_size(args.bytes)
    seen: dict[int, list[tuple[float, float]]] = {count: [] for count in COUNTS}
    for _ in range(args.rounds):
        for count in COUNTS:
            seen[count].append(measured(count, total))
    rows = []
    for count, samples in seen.items():
        took, used = (median(part) for part in zip(*samples, strict=True))
        rows.append([count, f"{took:.0f}", f"{total / took / 1e6:.2f}", f"{used:.0f}"])
    print(f"# {args.bytes} bytes over loopback TCP, measured, {os.cpu_count()} cores")
    print(columns(["sockets", "ms", "GB/s", "CPU ms"], rows))


if __name__ == "__main__":
    main()
