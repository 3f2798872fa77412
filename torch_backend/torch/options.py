"""Options of a group: the tables it may use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.errors import InputError

__all__ = ["Options", "added_latencies", "interface", "options_of"]

TABLES = "TUCCL_TABLE"
LATENCIES = "TUCCL_LATENCIES"
_INTERFACES = ("TUCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True)
class Options:
    """Options that ``pg_options`` may hold: the folders of tables.

    The group uses the one with as many ranks as it has. Only its rank 0 reads them.

    >>> Options(("tables/world", "tables/pairs")).tables
    ('tables/world', 'tables/pairs')
    """

    tables: tuple[str | Path, ...] = ()


def options_of(given: object, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a group: those given, or what ``TUCCL_TABLE`` names.

    >>> options_of(None, {"TUCCL_TABLE": "a:b"}).tables
    ('a', 'b')

    Raises:
        InputError: what was given says nothing of tables.
    """
    if given is None:
        named = environment.get(TABLES, "").split(os.pathsep)
        return Options(tuple(name for name in named if name))
    if isinstance(given, Options):
        return given
    if isinstance(given, str | Path):
        return Options((given,))
    raise InputError(
        f"pg_options of type {type(given).__name__[:40]}: expected tuccl.torch.Options, or the "
        "path of a table"
    )


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
