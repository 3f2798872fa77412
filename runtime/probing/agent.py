"""Program of a host or rank that is probed: timed messages to others' agents, answers to theirs.

It needs nothing but Python: its text is started as ``python3 -c`` on a host. It reads commands, a
JSON object a line, writes answers alike, and ends when its input does. It listens on the one
address it is given, and hangs up on whoever does not begin with the run's token.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKEN_BYTES = 32
_REQUEST = struct.Struct("!cQ")
_PIECE = 1 << 20
_TIMEOUT_S = 20.0
_ECHOES, _WARM_UP = 60, 8
_ECHO_S, _MOST_LOST = 2.0, 3
_PINGS = 30  # other users may send five a second
_PILOT_BYTES, _PILOT_S = 1 << 16, 0.03
_LONG_S = 0.1  # of the longest message that is timed
_REPEATS = 5
_MOST_BYTES = 1 << 32
_RATE_BYTES = 4 << 20
_NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")


class Agent:
    """The agent of one host: a listener, the flows it sends, and the bytes it received of each."""

    def __init__(self, token: bytes) -> None:
        """Keep the token that all agents of a run share."""
        self._token = token
        self._mark = os.urandom(TOKEN_BYTES // 2).hex()
        self._memory = ctypes.create_string_buffer(self._mark.encode(), TOKEN_BYTES)  # for `cma`
        self._received: dict[int, int] = {}
        self._ended: dict[int, threading.Event] = {}
        self._ways: list[Callable[[str, str, int], list[float]]] = [_icmp, _ping]

    def listen(self, address: str) -> int:
        """Listen on ``address``; return the port."""
        listener = socket.create_server((address, 0), family=_family(address))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def pair(self, address: str, port: int, source: str) -> dict[str, Any]:
        """Return round trips, and times of messages forth and back, in us."""
        trips, method = self.echoes(address, port, source, _ECHOES)
        with self._connected(address, port, source) as line:
            forth = _timed(lambda nbytes: _push(line, nbytes))
            trips += self.echoes(address, port, source, _ECHOES)[0]
            back = _timed(lambda nbytes: _pull(line, nbytes))
        trips += self.echoes(address, port, source, _ECHOES)[0]  # at three times: one may be bad
        method = f"latency by {method}, rate by TCP over one connection"
        return {"round_trips_us": trips, "forth": forth, "back": back, "method": method}

    def echoes(self, address: str, port: int, source: str, count: int) -> tuple[list[float], str]:
        """Return ``count`` round trips in us by ICMP, or where that is not allowed by TCP."""
        for way in tuple(self._ways):
            try:
                trips = way(address, source, count + _WARM_UP)[_WARM_UP:]
            except OSError:
                trips = []
            if trips:
                return trips, "ICMP echo"
            if way in self._ways:
                self._ways.remove(way)  # not allowed here, or on the path
        with self._connected(address, port, source) as line:
            return [_exchange(line) for _ in range(count + _WARM_UP)][_WARM_UP:], "TCP echo"

    def facts(self) -> dict[str, Any]:
        """Return the facts of this process, and where its memory has which mark."""
        return {**facts(), "mark": self._mark, "mark_at": ctypes.addressof(self._memory)}

    def tcp(self, address: str, port: int, source: str) -> dict[str, Any]:
        """Return round trip and rate to another process by TCP, or why there is none."""
        try:
            with self._connected(address, port, source) as line:
                trip_us = min(_exchange(line) for _ in range(_ECHOES))
                us = min(_push(line, _RATE_BYTES) for _ in range(_REPEATS))
        except OSError as error:
            return {"tcp": str(error)}
        return {"tcp": "", "tcp_us": trip_us, "tcp_gbs": _RATE_BYTES / us / 1e3}

    def cma(self, pid: int, mark: str, mark_at: int) -> str:
        """Return why cross-memory attach does not read the other's mark; empty where it does."""
        room = (ctypes.c_char * TOKEN_BYTES)()
        here = (ctypes.c_size_t * 2)(ctypes.addressof(room), TOKEN_BYTES)  # a struct iovec
        there = (ctypes.c_size_t * 2)(mark_at, TOKEN_BYTES)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.process_vm_readv(pid, here, 1, there, 1, 0) < 0:
            return os.strerror(ctypes.get_errno())
        return "" if room.raw == mark.encode() else "its number is another process's here"

    def send(self, address: str, port: int, source: str, flow: int) -> None:
        """Begin to send a flow, until `end`."""
        line = self._connected(address, port, source)
        line.sendall(_REQUEST.pack(b"s", flow))
        ended = self._ended[flow] = threading.Event()

        def run() -> None:
            data = bytes(_PIECE)
            with line:
                while not ended.is_set():
                    line.sendall(data[: _PIECE >> 4])

        threading.Thread(target=run, daemon=True).start()

    def end(self, flow: int) -> None:
        """End a flow that this host sends."""
        self._ended[flow].set()

    def received(self, flow: int) -> tuple[int, float]:
        """Return the bytes received of a flow so far, and the time in s."""
        return self._received.get(flow, 0), time.monotonic()

    def _connected(self, address: str, port: int, source: str) -> socket.socket:
        line = socket.create_connection((address, port), _TIMEOUT_S, (source, 0))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(self._token)
        return line

    def _accept(self, listener: socket.socket) -> None:
        while True:
            line, _ = listener.accept()
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        room = memoryview(bytearray(_PIECE))
        with line:
            line.settimeout(_TIMEOUT_S)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if bytes(_read(line, room, TOKEN_BYTES)) != self._token:
                    return
                line.settimeout(None)
                while True:
                    kind, number = _REQUEST.unpack(_read(line, room, _REQUEST.size))
                    if kind == b"s":
                        while nbytes := line.recv_into(room):
                            self._received[number] = self._received.get(number, 0) + nbytes
                        return
                    if kind == b"r":
                        _write(line, min(number, _MOST_BYTES))
                    else:
                        _skip(line, room, min(number, _MOST_BYTES))
                        line.sendall(b".")
            except OSError:
                return


def main() -> None:
    """Answer commands until the input ends."""
    agent = Agent(sys.stdin.readline().strip().encode())
    writing = threading.Lock()

    def answer(command: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": command.pop("id")}
        try:
            reply["result"] = getattr(agent, command.pop("op"))(**command)
        except (OSError, AttributeError, KeyError, TypeError, ValueError, struct.error) as error:
            reply["error"] = f"{type(error).__name__}: {error}"[:300]
        with writing:
            print(json.dumps(reply), flush=True)

    for text in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(text),), daemon=True).start()
    os._exit(0)


def facts() -> dict[str, Any]:
    """Return what libraries see of this process: names, namespaces, limits, addresses."""
    shm = Path("/dev/shm")
    room = os.statvfs(shm) if shm.is_dir() else None
    return {
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
        "namespaces": {name: _link(f"/proc/self/ns/{name}") for name in _NAMESPACES},
        "shm_device": shm.stat().st_dev if room else None,
        "shm_bytes": room.f_bavail * room.f_frsize if room else 0,
        "ptrace_scope": int(_text("/proc/sys/kernel/yama/ptrace_scope") or 0),
        "cpus": len(os.sched_getaffinity(0)),
        "quota_cpus": _quota(),
        "rdma": sorted(_folder("/sys/class/infiniband")),
        "addresses": _addresses(),
    }


def ping_times(text: str) -> list[float]:
    """Return the round trips in us that the program ``ping`` printed.

    >>> ping_times("64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.045 ms")
    [45.0]
    """
    return [float(ms) * 1e3 for ms in re.findall(r"time[=<]([0-9]+(?:\.[0-9]+)?) ?ms", text)]


def _timed(message: Callable[[int], float]) -> list[tuple[int, float]]:
    """Return repeats of two long messages, as (bytes, us), after a warm-up that finds the rate."""
    nbytes = _PILOT_BYTES
    while (us := message(nbytes)) < _PILOT_S * 1e6 and nbytes < _MOST_BYTES:
        nbytes *= 2
    us = message(nbytes)
    long = min(max(int(nbytes * _LONG_S * 1e6 / us), 2 * _PILOT_BYTES), _MOST_BYTES)
    return [(size, message(size)) for _ in range(_REPEATS) for size in (long // 2, long)]


def _push(line: socket.socket, nbytes: int) -> float:
    begin = time.perf_counter()
    line.sendall(_REQUEST.pack(b"w", nbytes))
    _write(line, nbytes)
    _read(line, memoryview(bytearray(1)), 1)
    return (time.perf_counter() - begin) * 1e6


def _pull(line: socket.socket, nbytes: int) -> float:
    room = memoryview(bytearray(_PIECE))
    begin = time.perf_counter()
    line.sendall(_REQUEST.pack(b"r", nbytes))
    _skip(line, room, nbytes)
    return (time.perf_counter() - begin) * 1e6


def _exchange(line: socket.socket) -> float:
    begin = time.perf_counter()
    line.sendall(_REQUEST.pack(b"w", 0))
    _read(line, memoryview(bytearray(1)), 1)
    return (time.perf_counter() - begin) * 1e6


def _read(line: socket.socket, room: memoryview, nbytes: int) -> memoryview:
    done = 0
    while done < nbytes:
        got = line.recv_into(room[done:nbytes])
        if got == 0:
            raise ConnectionError("the other host hung up")
        done += got
    return room[:nbytes]


def _skip(line: socket.socket, room: memoryview, nbytes: int) -> None:
    while nbytes:
        nbytes -= len(_read(line, room, min(nbytes, len(room))))


def _write(line: socket.socket, nbytes: int) -> None:
    data = memoryview(bytes(min(nbytes, _PIECE)))
    while nbytes:
        line.sendall(data[: min(nbytes, len(data))])
        nbytes -= min(nbytes, len(data))


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _folder(path: str) -> list[str]:
    try:
        return [each.name for each in Path(path).iterdir()]
    except OSError:
        return []


def _quota() -> float | None:
    """Return the CPUs that the control group may use, of version 2 or 1; None: all."""
    words = _text("/sys/fs/cgroup/cpu.max").split() or [
        _text(f"/sys/fs/cgroup/cpu/cpu.cfs_{part}_us") for part in ("quota", "period")
    ]
    return int(words[0]) / int(words[1]) if words[0].isdigit() and words[1].isdigit() else None


def _addresses() -> dict[str, str]:
    """Return the IPv4 address of each interface that has one, loopback last."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        for _, name in socket.if_nameindex():
            try:  # SIOCGIFADDR
                answer = fcntl.ioctl(line, 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return dict(sorted(found.items(), key=lambda each: each[1].startswith("127.")))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _icmp(address: str, source: str, count: int) -> list[float]:
    """Return round trips of ICMP echoes in us; OSError where this user may not send them."""
    if ":" in address:
        raise OSError("IPv6")
    try:
        line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    except PermissionError:
        line = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    mark = os.urandom(16)
    trips: list[float] = []
    lost = 0
    with line:
        line.bind((source, 0))
        for number in range(count):
            head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, number)
            packet = head[:2] + struct.pack("!H", _checksum(head + mark)) + head[4:] + mark
            begin = time.perf_counter()
            line.sendto(packet, (address, 0))
            ending = struct.pack("!H", number) + mark
            while True:
                left = begin + _ECHO_S - time.perf_counter()
                if not select.select([line], [], [], max(left, 0.0))[0]:
                    lost += 1
                    if not trips or lost > _MOST_LOST:
                        raise OSError("no echo")
                    break
                answer = line.recv(1 << 12)
                begins = 20 if answer[0] >> 4 == 4 and len(answer) >= 44 else 0  # a raw socket's
                if answer[begins] == 0 and answer.endswith(ending):
                    trips.append((time.perf_counter() - begin) * 1e6)
                    break
    return trips


def _ping(address: str, source: str, count: int) -> list[float]:
    """Return what the system's ``ping`` says, which may send echoes for any user."""
    program = shutil.which("ping")
    if program is None:
        raise OSError("no ping")
    few = str(min(count, _PINGS))
    command = [program, "-n", "-c", few, "-i", "0.2", "-w", "10", "-I", source, address]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise OSError("ping takes too long") from None
    return ping_times(done.stdout)


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return int(~(total + (total >> 16)) & 0xFFFF)


if __name__ == "__main__":
    main()
