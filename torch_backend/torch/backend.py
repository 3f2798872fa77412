"""From what init_process_group or new_group says to a group: the table, the wires, Gloo beneath."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from tuccl._native import Group
from tuccl.errors import TucclError
from tuccl.torch.agreement import Refusal, agreed, agreed_table
from tuccl.torch.group import TucclGroup
from tuccl.torch.options import interface, options_of, shares_memory
from tuccl.torch.programs import Programs
from tuccl.torch.wires import Wires, connect
from tuccl.torch.work import hub

__all__ = ["BACKEND", "create_group"]

BACKEND = "tuccl"
_CONNECTING_S = 60.0


def create_group(
    options: dist.distributed_c10d._DistributedBackendOptions, given: object
) -> TucclGroup:
    """Return the group that torch.distributed asked for.

    Where the ranks cannot agree on a table, or cannot reach each other, all of them leave all to
    Gloo, and rank 0 warns once.

    Raises:
        InputError: ``given`` (pg_options) says nothing of tables.
    """
    rank, size, limit = options.group_rank, options.group_size, options.timeout
    wanted = options_of(given)
    gloo = _gloo(dist.PrefixStore("gloo/", options.store), rank, size, limit)
    made = _programs(dist.PrefixStore("tuccl/", options.store), rank, size, wanted.tables)
    programs, group = (None, None) if isinstance(made, Refusal) else made
    if isinstance(made, Refusal) and rank == 0 and _matters(made, options.global_ranks_in_group):
        warnings.warn(f"tuccl: all goes to Gloo: {made.reason}", stacklevel=2)
    return TucclGroup(rank, size, limit, gloo, programs, group)


def _matters(refusal: Refusal, members: list[int]) -> bool:
    """A sub-group that no table was made for is no matter for a warning."""
    return not members or not refusal.reason.startswith("no table is for")


def _gloo(store: dist.Store, rank: int, size: int, limit: timedelta) -> dist.ProcessGroupGloo:
    chosen = interface()
    if chosen is None or os.environ.get("GLOO_SOCKET_IFNAME"):  # which Gloo reads itself
        return dist.ProcessGroupGloo(store, rank, size, limit)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface=chosen)]
    options._timeout = limit
    return dist.ProcessGroupGloo(store, rank, size, options)


def _programs(
    store: dist.Store, rank: int, size: int, tables: Sequence[str | Path]
) -> tuple[Programs, Group] | Refusal:
    stored = agreed_table(store, rank, size, tables)
    if isinstance(stored, Refusal):
        return stored
    programs = Programs(stored, rank)
    wires: Wires | None = None
    word = "connected"
    try:
        peers = programs.peers()
        wires = connect(store, rank, size, peers, interface(), _CONNECTING_S, shares_memory())
    except (TucclError, OSError) as error:
        word = str(error)
    reason = agreed(store, "connections", rank, size, word, wires is not None)
    if wires is None or reason is not None:
        if wires is not None:
            wires.close()
        return Refusal(reason or word)
    return programs, Group(rank, wires.sockets, wires.memories, hub().native)
