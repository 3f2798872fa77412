"""Connections between the ranks of a group, set up with the help of its store."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch.distributed as dist

from tuccl.errors import InputError, TucclError

__all__ = ["connect"]

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_GREETING = struct.Struct("!8s32sI")
_MAGIC = b"tuccl-1\n"
_PATIENCE_S = 5.0  # with one who connects and says nothing


class _Address(msgspec.Struct, frozen=True):
    """Where a rank listens: by a name within its host's network, and by an address."""

    place: str
    name: str
    host: str
    port: int
    token: str


def connect(
    store: dist.Store,
    rank: int,
    size: int,
    peers: Iterable[int],
    interface: str | None,
    limit: float,
) -> list[int]:
    """Return a connected socket's descriptor by rank, -1 for those that are no peers.

    Of two peers the higher rank connects; it proves itself by a secret that the lower one left in
    the store. On one host they meet by a Unix socket, else by TCP.

    Raises:
        TucclError: a peer cannot be reached, or did not connect within ``limit`` seconds.
        InputError: there is no such interface.
    """
    wanted = set(peers)
    deadline = time.monotonic() + limit
    found: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        listeners = [_unix_listener(stack), _tcp_listener(stack, interface)]
        host, port = listeners[1].getsockname()
        name = listeners[0].getsockname()[1:].decode()
        mine = _Address(_place(), name, host, port, secrets.token_hex(16))
        store.set(f"address/{rank}", msgspec.json.encode(mine))
        try:
            for peer in sorted(p for p in wanted if p < rank):
                answer = msgspec.json.decode(store.get(f"address/{peer}"), type=_Address)
                found[peer] = _called(rank, peer, mine, answer, deadline)
            _await(listeners, found, {p for p in wanted if p > rank}, mine.token, deadline)
        except BaseException:
            for wire in found.values():
                wire.close()
            raise
    return [found[p].detach() if p in found else -1 for p in range(size)]


def _place() -> str:
    """What two processes have in common whose abstract Unix sockets can meet."""
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


def _called(rank: int, peer: int, mine: _Address, its: _Address, deadline: float) -> socket.socket:
    """Connect to ``peer`` and greet it."""
    near = its.place == mine.place
    if its.place != mine.place and its.host.startswith("127."):
        raise TucclError(
            f"rank {peer} is on another host and listens on loopback only: name an interface "
            "by TUCCL_SOCKET_IFNAME"
        )
    wire = socket.socket(socket.AF_UNIX if near else socket.AF_INET)
    try:
        wire.settimeout(max(deadline - time.monotonic(), 0.1))
        wire.connect(b"\0" + its.name.encode() if near else (its.host, its.port))
        wire.sendall(_GREETING.pack(_MAGIC, its.token.encode(), rank))
        if _received(wire, len(_MAGIC)) != _MAGIC:
            raise OSError("it is no tuccl")
    except OSError as error:
        wire.close()
        raise TucclError(f"rank {rank} cannot connect to rank {peer}: {error}") from None
    return wire


def _await(
    listeners: Iterable[socket.socket],
    found: dict[int, socket.socket],
    missing: set[int],
    token: str,
    deadline: float,
) -> None:
    """Accept all of ``missing``; whoever has not the secret is sent away."""
    while missing:
        left = deadline - time.monotonic()
        ready, _, _ = select.select(list(listeners), [], [], max(left, 0))
        if not ready:
            raise TucclError(f"ranks {sorted(missing)[:8]} did not connect in time")
        wire, _ = ready[0].accept()
        peer = _greeted(wire, token)
        if peer in missing:
            missing.discard(peer)
            found[peer] = wire
        else:
            wire.close()


def _greeted(wire: socket.socket, token: str) -> int | None:
    """Return the rank of who connected, None for one who does not belong here."""
    wire.settimeout(_PATIENCE_S)
    try:
        magic, secret, peer = _GREETING.unpack(_received(wire, _GREETING.size))
        if magic != _MAGIC or not hmac.compare_digest(secret, token.encode()):
            return None
        wire.sendall(_MAGIC)
    except OSError:
        return None
    return int(peer)


def _received(wire: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = wire.recv(count - len(data))
        if not more:
            raise OSError("the other end closed")
        data += more
    return data
