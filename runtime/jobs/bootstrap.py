"""The rendezvous of a job's ranks, whose plugins agree on a table there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tuccl.errors import InputError
from tuccl.execution import RendezvousServer

BOOTSTRAP_VARIABLES = ("TUCCL_BOOTSTRAP", "TUCCL_TOKEN")
# Of a block for documentation (RFC 5737): looking up the route there sends nothing.
_ANYWHERE = ("192.0.2.1", 9)


def rendezvous_address(text: str | None, hosts: int) -> tuple[str, int] | None:
    """Return the IPv4 address and port (0: any) to meet at; None where there is to be no meeting.

    ``text`` is ADDRESS, ADDRESS:PORT or ``none``. Without it: the loopback for a table of one of
    ``hosts``, else the address of this host by which others reach it, if it has one.

    >>> rendezvous_address(None, 1), rendezvous_address("127.0.0.1:4711", 2)
    (('127.0.0.1', 0), ('127.0.0.1', 4711))

    Raises:
        InputError: ``text`` names no host, or no port.
    """
    if text == "none":
        return None
    if text is None:
        return ("127.0.0.1", 0) if hosts == 1 else _reachable()
    host, colon, port = text.partition(":")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InputError(f"--bootstrap {text[:60]!r}: expected ADDRESS, ADDRESS:PORT or none")
    try:
        return socket.gethostbyname(host), int(port or 0)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--bootstrap {text[:60]!r}: {error}") from None


def _reachable() -> tuple[str, int] | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
        except OSError:
            return None
        return probe.getsockname()[0], 0


@contextmanager
def rendezvous_server(address: tuple[str, int] | None) -> Iterator[dict[str, str]]:
    """Yield the variables by which ranks find a meeting point at ``address`` while it is open.

    The job's token is made up, or TUCCL_TOKEN. Where ``address`` is another host's, ``tuccl run``
    there opens it: its port and the token must be given.

    >>> with rendezvous_server(("127.0.0.1", 0)) as variables:
    ...     sorted(variables)
    ['TUCCL_BOOTSTRAP', 'TUCCL_TOKEN']

    Raises:
        InputError: it cannot be opened, or the token is too short.
    """
    if address is None:
        yield {}
        return
    host, port = address
    token = os.environ.get("TUCCL_TOKEN", "")
    secret = token or secrets.token_hex(16)
    if not _is_here(host):
        if not (token and port):
            raise InputError(
                f"--bootstrap {host}:{port}: no address of this host; if `tuccl run` there opens "
                "it, give its port, and set TUCCL_TOKEN to the same on both"
            )
        yield {"TUCCL_BOOTSTRAP": f"{host}:{port}", "TUCCL_TOKEN": token}
        return
    point = RendezvousServer(host, port, secret)
    try:
        yield {"TUCCL_BOOTSTRAP": f"{host}:{point.port}", "TUCCL_TOKEN": secret}
    finally:
        point.close()


def _is_here(host: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
