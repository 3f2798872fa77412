"""Connections between the ranks of a group, set up with the help of its store."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch.distributed as dist

from tuccl.errors import InputError, TucclError

__all__ = ["Connections", "connect"]

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_GREETING = struct.Struct("!8s32sI")
_MAGIC = b"tuccl-2\n"
_SHARED, _PRIVATE = b"+", b"-"  # the answer to a greeting: whether the memory with it will be used
_TIMEOUT_S = 5.0  # with one who connects and says nothing
_HEAD_BYTES = 4096  # of shared memory, before its two rings
_MOST_RING, _LEAST_RING = 1 << 20, 64 << 10
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SHARED_BYTES = 64 << 20  # at most, of one rank's rings to all its peers, unless the least is more


class _Address(msgspec.Struct, frozen=True):
    """Address at which a rank listens: by a name within its host's network, and by an address."""

    namespace: str
    name: str
    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Connections:
    """Descriptors by rank, -1 where there is none: connected sockets, and memory shared with it."""

    sockets: tuple[int, ...]
    memories: tuple[int, ...]

    def close(self) -> None:
        """Close all."""
        for descriptor in (*self.sockets, *self.memories):
            if descriptor >= 0:
                os.close(descriptor)


@dataclass(frozen=True)
class _Connection:
    socket: socket.socket
    memory: int = -1

    def close(self) -> None:
        self.socket.close()
        if self.memory >= 0:
            os.close(self.memory)


def connect(
    store: dist.Store,
    rank: int,
    size: int,
    peers: Iterable[int],
    interface: str | None,
    limit: float,
    shares: bool = True,
) -> Connections:
    """Return the connections to ``peers``.

    Of two peers the higher rank connects; it proves itself by a secret that the lower one left in
    the store. On one host they meet by a Unix socket, else by TCP; over the first the higher rank
    passes memory that both will share, if it ``shares`` and the other does. It has no name, and is
    gone with the last of them.

    Raises:
        TucclError: a peer cannot be reached, or did not connect within ``limit`` seconds.
        InputError: there is no such interface.
    """
    expected = set(peers)
    deadline = time.monotonic() + limit
    connections: dict[int, _Connection] = {}
    with contextlib.ExitStack() as stack:
        listeners = [_unix_listener(stack), _tcp_listener(stack, interface)]
        host, port = listeners[1].getsockname()
        name = listeners[0].getsockname()[1:].decode()
        mine = _Address(_namespace(), name, host, port, secrets.token_hex(16))
        store.set(f"address/{rank}", msgspec.json.encode(mine))
        try:
            for peer in sorted(p for p in expected if p < rank):
                answer = msgspec.json.decode(store.get(f"address/{peer}"), type=_Address)
                memory = _memory(size) if shares and answer.namespace == mine.namespace else -1
                connections[peer] = _connect_to(rank, peer, mine, answer, memory, deadline)
            missing = {p for p in expected if p > rank}
            _accept_all(listeners, connections, missing, mine.token, shares, deadline)
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
    return Connections(
        tuple(connections[p].socket.detach() if p in connections else -1 for p in range(size)),
        tuple(connections[p].memory if p in connections else -1 for p in range(size)),
    )


def _namespace() -> str:
    """Return a name that processes share whose abstract Unix sockets can connect."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"  # noqa: PTH116


def _unix_listener(stack: contextlib.ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(b"\0tuccl-" + secrets.token_hex(8).encode())
    listener.listen(128)
    return listener


def _tcp_listener(stack: contextlib.ExitStack, interface: str | None) -> socket.socket:
    listener = stack.enter_context(socket.socket(socket.AF_INET))
    listener.bind(("127.0.0.1" if interface is None else _address_of(interface), 0))
    listener.listen(128)
    return listener


def _address_of(interface: str) -> str:
    """Return the IPv4 address of a network interface."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise InputError(
                f"network interface {interface[:15]!r}: {error.strerror}; expected one with an "
                "IPv4 address"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def _memory(ranks: int) -> int:
    """Return a descriptor of memory for two rings, -1 where the kernel gives none."""
    ring = min(max(_SHARED_BYTES // (2 * ranks), _LEAST_RING), _MOST_RING)
    try:
        memory = os.memfd_create("tuccl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return -1
    try:
        os.ftruncate(memory, _HEAD_BYTES + 2 * ring)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(memory)
        return -1
    return memory


def _is_usable(memory: int) -> bool:
    """Return whether it is of a size that stays, and can be mapped."""
    try:
        sealed = fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        with mmap.mmap(memory, 0):
            return sealed and os.fstat(memory).st_size > _HEAD_BYTES
    except (OSError, ValueError):
        return False


def _connect_to(
    rank: int, peer: int, mine: _Address, its: _Address, memory: int, deadline: float
) -> _Connection:
    """Connect to ``peer`` and greet it, offering ``memory`` unless it is -1."""
    near = its.namespace == mine.namespace
    if its.namespace != mine.namespace and its.host.startswith("127."):
        raise TucclError(
            f"rank {peer} is on another host and listens on loopback only: name an interface "
            "by TUCCL_SOCKET_IFNAME"
        )
    connection = socket.socket(socket.AF_UNIX if near else socket.AF_INET)
    try:
        connection.settimeout(max(deadline - time.monotonic(), 0.1))
        connection.connect(b"\0" + its.name.encode() if near else (its.host, its.port))
        greeting = _GREETING.pack(_MAGIC, its.token.encode(), rank)
        if memory >= 0:
            socket.send_fds(connection, [greeting], [memory])
        else:
            connection.sendall(greeting)
        answer = _receive(connection, len(_MAGIC) + 1)
        if answer[:-1] != _MAGIC:
            raise OSError("it is no tuccl")
    except OSError as error:
        _Connection(connection, memory).close()
        raise TucclError(f"rank {rank} cannot connect to rank {peer}: {error}") from None
    if memory >= 0 and answer[-1:] != _SHARED:
        os.close(memory)
        return _Connection(connection)
    return _Connection(connection, memory)


def _accept_all(
    listeners: Iterable[socket.socket],
    connections: dict[int, _Connection],
    missing: set[int],
    token: str,
    shares: bool,
    deadline: float,
) -> None:
    """Accept all of ``missing``; whoever has not the secret is sent away."""
    while missing:
        left = deadline - time.monotonic()
        ready, _, _ = select.select(list(listeners), [], [], max(left, 0))
        if not ready:
            raise TucclError(f"ranks {sorted(missing)[:8]} did not connect in time")
        accepted, _ = ready[0].accept()
        peer, connection = _receive_greeting(accepted, token, shares)
        if peer in missing:
            missing.discard(peer)
            connections[peer] = connection
        else:
            connection.close()


def _receive_greeting(accepted: socket.socket, token: str, shares: bool) -> tuple[int, _Connection]:
    """Return the rank that connected, -1 for a stranger, and the connection to it."""
    accepted.settimeout(_TIMEOUT_S)
    connection = _Connection(accepted)
    try:
        data, given, _, _ = socket.recv_fds(accepted, _GREETING.size, 1)
        connection = _Connection(accepted, given[0] if given else -1)
        data += _receive(accepted, _GREETING.size - len(data)) if data else b""
        magic, secret, peer = _GREETING.unpack(data)
        if magic != _MAGIC or not hmac.compare_digest(secret, token.encode()):
            return -1, connection
        if connection.memory >= 0 and not (shares and _is_usable(connection.memory)):
            os.close(connection.memory)
            connection = _Connection(accepted)
        accepted.sendall(_MAGIC + (_SHARED if connection.memory >= 0 else _PRIVATE))
    except (OSError, struct.error):
        return -1, connection
    return int(peer), connection


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("the other end closed")
        data += more
    return data
