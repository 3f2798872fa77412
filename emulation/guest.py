"""Program of a virtual machine's cell: starts commands there, and carries Unix sockets out of it.

It needs nothing but Python. All listeners are inside the cells' own network, and hang up on whoever
does not begin with the token in the file that is named.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

TOKEN_BYTES = 32
_COMMANDS, _SOCKETS = 7700, 7701  # ports
_LENGTH = struct.Struct("!I")
_MOST = 1 << 20
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
_ALIVE = 3  # seconds until a silent connection is tried, between tries, and how many
_NOT_STARTED = 127  # as a shell's
_ended: dict[int, int] = {}  # exit codes of the children of a virtual machine's first process
_START_S = 30.0
_PIECE = 1 << 16


def run_commands(address: str, token: bytes) -> None:
    """In a virtual machine: start what clients name, their connection as its streams."""
    # Kept: an object that is gone would have its child waited for by the next one.
    started: dict[object, subprocess.Popen[bytes]] = {}

    def start(line: socket.socket, order: dict[str, object]) -> None:
        if "words" not in order:  # a client wants the exit code of its command
            process = started.get(order["id"])
            while process and process.pid not in _ended:
                time.sleep(_POLL_S)
            line.sendall(bytes([_ended[process.pid] if process else _NOT_STARTED]))
            return
        try:
            process = subprocess.Popen(
                order["words"],  # type: ignore[call-overload]
                env=order["environment"],
                cwd="/",
                stdin=line,
                stdout=line,
                stderr=line,
            )
        except OSError as error:
            line.sendall(f"{error}\n".encode())
        else:
            started[order["id"]] = process

    threading.Thread(target=_reap, daemon=True).start()
    _serve(address, _COMMANDS, token, start)


def carry_sockets(address: str, token: bytes) -> None:
    """Outside: connect what comes in with the Unix socket that it names, until our input ends."""

    def end_with_input() -> None:
        while os.read(0, _PIECE):
            pass
        os._exit(0)

    threading.Thread(target=end_with_input, daemon=True).start()
    _serve(address, _SOCKETS, token, lambda line, order: _join(line, str(order["path"])))


def enter(address: str, token: bytes, words: list[str]) -> None:
    """Run a command in the virtual machine at ``address``, with our input and output.

    It ends with our parent, as what it runs does.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    number = secrets.token_hex(8)
    order: dict[str, object] = {"id": number, "words": words, "environment": dict(os.environ)}
    line = _connected(address, _COMMANDS, token, order)

    def send() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, _PIECE):
                line.sendall(data)
            line.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    try:
        while data := line.recv(_PIECE):
            os.write(1, data)
    except ConnectionResetError:
        pass  # it left input unread
    except OSError:
        os._exit(_NOT_STARTED)  # its kernel is gone
    code = _connected(address, _COMMANDS, token, {"id": number}).recv(1)
    os._exit(code[0] if code else _NOT_STARTED)


def with_socket(address: str, token: bytes, words: list[str]) -> None:
    """In a virtual machine: run a command whose last word is a Unix socket's path outside."""
    path = f"/dev/shm/tuccl-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    process = subprocess.Popen([*words[:-1], path], close_fds=False)  # launchers hand on some
    listener.settimeout(_POLL_S)
    while True:
        with contextlib.suppress(TimeoutError):
            line, _ = listener.accept()
            break
        if (code := process.poll()) is not None:
            os._exit(code)
    line.settimeout(None)
    outside = _connected(address, _SOCKETS, token, {"path": words[-1]})
    _couple(line, outside)
    os._exit(process.wait())


def _connected(address: str, port: int, token: bytes, order: dict[str, object]) -> socket.socket:
    until = time.monotonic() + _START_S
    while True:
        try:
            line = socket.create_connection((address, port), _START_S)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    line.settimeout(None)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A virtual machine that is killed says nothing more.
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
        line.setsockopt(socket.IPPROTO_TCP, option, _ALIVE)
    text = json.dumps(order).encode()
    line.sendall(token + _LENGTH.pack(len(text)) + text)
    return line


def _serve(
    address: str,
    port: int,
    token: bytes,
    act: Callable[[socket.socket, dict[str, object]], None],
) -> None:
    listener = socket.create_server((address, port))

    def take(line: socket.socket) -> None:
        with line:
            line.settimeout(_START_S)
            try:
                if not secrets.compare_digest(_read(line, TOKEN_BYTES), token):
                    return
                (length,) = _LENGTH.unpack(_read(line, _LENGTH.size))
                if length > _MOST:
                    return
                order = json.loads(_read(line, length))
            except (OSError, ValueError):
                return
            line.settimeout(None)
            act(line, order)

    while True:
        line, _ = listener.accept()
        threading.Thread(target=take, args=(line,), daemon=True).start()


def _join(line: socket.socket, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(OSError):
        other.connect(path)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _couple(line, other)


def _couple(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both ends have ended."""
    back = threading.Thread(target=_carry, args=(other, one), daemon=True)
    back.start()
    _carry(one, other)
    back.join()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            sink.sendall(data)
    for line in (source, sink):  # a worker ends when its socket does
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


def _reap() -> None:
    """Take the exit codes of children: the first process of a kernel has all orphans."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(ended[1])
                _ended[ended[0]] = code if code >= 0 else 128 - code
        time.sleep(_POLL_S)


def _read(line: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        if not (more := line.recv(nbytes - len(data))):
            raise ConnectionError("the other side hung up")
        data += more
    return data


def main() -> None:
    """Act as the first argument says."""
    what, address, file, *words = sys.argv[1:]
    token = Path(file).read_bytes()
    if what == "run-commands":
        run_commands(address, token)
    elif what == "carry-sockets":
        carry_sockets(address, token)
    elif what == "enter":
        enter(address, token, words)
    else:
        with_socket(address, token, words)


if __name__ == "__main__":
    main()
