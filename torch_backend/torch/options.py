"""Options of a group: the tables it may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError

__all__ = ["Options", "interface", "options_of", "shares_memory"]

TABLES = "TUCCL_TABLE"
NO_SHARING = "TUCCL_SHM_DISABLE"
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


def shares_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ranks of one host may share memory: so unless ``TUCCL_SHM_DISABLE`` is 1.

    >>> shares_memory({}), shares_memory({"TUCCL_SHM_DISABLE": "1"})
    (True, False)
    """
    return environment.get(NO_SHARING, "0").strip() in ("", "0")
