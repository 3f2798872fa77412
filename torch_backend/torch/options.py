"""Options of a group: the tables it may use."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.errors import InputError

TABLES = "TUCCL_TABLE"
ELASTIC = "TUCCL_ELASTIC"
LATENCIES = "TUCCL_LATENCIES"
_INTERFACES = ("TUCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True)
class Options:
    """Options that ``pg_options`` may hold: the folders of tables.

    The group uses the one with as many ranks as it has, of a job's tables that of its members, and
    of a folder of tables that of its hosts; the whole job's is derived in ``elastic_s`` seconds if
    need be. Only rank 0 reads them.

    >>> Options(("tables/world", "tables/pairs")).tables
    ('tables/world', 'tables/pairs')
    """

    tables: tuple[str | Path, ...] = ()
    elastic_s: float = 0.0


def options_of(given: object, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a group: those given, or ``TUCCL_TABLE`` and ``TUCCL_ELASTIC``.

    >>> options_of(None, {"TUCCL_TABLE": "a:b"}).tables
    ('a', 'b')

    Raises:
        InputError: what was given says nothing of tables, or the time is none.
    """
    if given is None:
        named = environment.get(TABLES, "").split(os.pathsep)
        return Options(tuple(name for name in named if name), _elastic_s(environment))
    if isinstance(given, Options):
        return given
    if isinstance(given, str | Path):
        return Options((given,), _elastic_s(environment))
    raise InputError(
        f"pg_options of type {type(given).__name__[:40]}: expected tuccl.torch.Options, or the "
        "path of a table"
    )


def _elastic_s(environment: Mapping[str, str]) -> float:
    text = environment.get(ELASTIC) or "0"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{ELASTIC}={text[:40]!r}: expected seconds") from None


def interface(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the network interface that ranks on other hosts reach this one by, or None.

    >>> interface({"GLOO_SOCKET_IFNAME": "eth0"})
    'eth0'
    """
    for name in _INTERFACES:
        # Gloo takes a list; the first of it is as good as any.
        if chosen := environment.get(name, "").split(",")[0].strip():
            return chosen
    return None


def host_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this rank's host: ``TUCCL_HOSTID``, or the system's."""
    return environment.get("TUCCL_HOSTID") or socket.gethostname()


def namespaces(environment: Mapping[str, str] = os.environ) -> str:
    """Return a line of the boot id with the network and the process namespace.

    Ranks of one network namespace have Unix sockets, those of one process namespace can map each
    other's memory. Where ``TUCCL_HOSTID`` names hosts, the line is empty.
    """
    if environment.get("TUCCL_HOSTID"):
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return " ".join(f"{boot}/{Path('/proc/self/ns', n).readlink()}" for n in ("net", "pid"))
    except OSError:
        return ""


def added_latencies(
    members: Sequence[int], ranks: int, environment: Mapping[str, str] = os.environ
) -> tuple[float, ...]:
    """Return how long messages are held back in us, by sender and receiver; none: ().

    Args:
        members: the ranks of a job that make up a group.
        ranks: the job's.
        environment: where ``TUCCL_LATENCIES`` names the file of an emulated cluster.

    Raises:
        InputError: the file cannot be read, or is for another number of ranks.
    """
    path = environment.get(LATENCIES, "")
    if not path:
        return ()
    try:
        by_sender = msgspec.json.decode(Path(path).read_bytes(), type=list[list[float]])
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{LATENCIES}={path[:200]}: {error}") from None
    if len(by_sender) != ranks or any(len(row) != ranks for row in by_sender):
        raise InputError(
            f"{LATENCIES}={path[:200]}: is for {len(by_sender)} ranks, the job has {ranks}; start "
            "one for each GPU of the emulated cluster, or emulate without --latency"
        )
    return tuple(by_sender[src][dst] for src in members for dst in members)
