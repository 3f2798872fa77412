"""Groups as init_process_group and new_group request them: table, connections, Gloo beneath."""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from tuccl.errors import TucclError
from tuccl.execution import Group, PeerListener
from tuccl.torch.agreement import NO_GROUP, Refusal, agree_on_table, present_tables, vote
from tuccl.torch.gpus import GpuCollectives
from tuccl.torch.group import TucclGroup
from tuccl.torch.options import added_latencies, interface, options_of
from tuccl.torch.programs import Meeting, TablePrograms
from tuccl.torch.work import progress_thread

BACKEND = "tuccl"


def create_group(
    options: dist.distributed_c10d._DistributedBackendOptions, given: object
) -> TucclGroup:
    """Return the group that torch.distributed requested.

    Where the ranks cannot agree on a table, or cannot reach each other, all of them leave all to
    Gloo, and rank 0 warns once.

    Raises:
        InputError: ``given`` (pg_options) says nothing of tables, or ``TUCCL_LATENCIES`` names no
            file for the job's ranks.
    """
    rank, size, limit = options.group_rank, options.group_size, options.timeout
    group_options = options_of(given)
    store = _store_of_this_start(options.store)
    gloo = _gloo(dist.PrefixStore("gloo/", store), rank, size, limit)
    members = tuple(options.global_ranks_in_group or range(size))
    world = dist.get_world_size() if dist.is_initialized() else size
    latency_us = added_latencies(members, world)
    ours = dist.PrefixStore("tuccl/", store)
    # Sub-groups take what is there: a job may make many.
    derive_s = min(group_options.elastic_s, limit.total_seconds() / 2) if size == world else 0.0
    tables, note = present_tables(ours, rank, members, world, group_options, derive_s)
    outcome = _programs(ours, rank, size, tables, note, latency_us, limit)
    programs, group = (None, None) if isinstance(outcome, Refusal) else outcome
    if (
        isinstance(outcome, Refusal)
        and rank == 0
        and _matters(outcome, options.global_ranks_in_group)
    ):
        warnings.warn(f"tuccl: all goes to Gloo: {outcome.reason}", stacklevel=2)
    elif note and tables and size == world:
        print(f"tuccl: torch: {note}", file=sys.stderr, flush=True)
    gpus = GpuCollectives(dist.PrefixStore("gpus/", store), rank, size, tables, note)
    return TucclGroup(rank, size, limit, gloo, programs, group, gpus)


def _store_of_this_start(
    store: dist.Store, environment: Mapping[str, str] = os.environ
) -> dist.Store:
    """Return the part of a store that no start of the job before this one wrote to.

    Notes:
        torchrun gives the ranks that it restarts the store of those that died, with their
        addresses (pytorch/pytorch#135712). Agents of several nodes may count starts differently.
    """
    shared = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not shared or environment.get("GROUP_WORLD_SIZE") != "1":
        return store
    return dist.PrefixStore(f"start{environment.get('TORCHELASTIC_RESTART_COUNT')}/", store)


def _matters(refusal: Refusal, members: list[int]) -> bool:
    """A sub-group that no table was made for is no matter for a warning, nor one of a job."""
    return not refusal.reason.startswith(NO_GROUP if not members else "no table is for")


def _gloo(store: dist.Store, rank: int, size: int, limit: timedelta) -> dist.ProcessGroupGloo:
    name = interface()
    if name is None or os.environ.get("GLOO_SOCKET_IFNAME"):  # which Gloo reads itself
        return dist.ProcessGroupGloo(store, rank, size, limit)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface=name)]
    options._timeout = limit
    return dist.ProcessGroupGloo(store, rank, size, options)


def _programs(
    store: dist.Store,
    rank: int,
    size: int,
    tables: Sequence[str | Path],
    note: str,
    latency_us: Sequence[float],
    limit: timedelta,
) -> tuple[TablePrograms, Group] | Refusal:
    stored = agree_on_table(store, rank, size, tables, note)
    if isinstance(stored, Refusal):
        return stored
    programs = TablePrograms(stored, rank, latency_us)
    group: Group | None = None
    message = "connected"
    try:
        meeting = _meet(store, rank, set(programs.peers()))
        native = progress_thread().native
        group = Group(rank, size, *meeting, limit.total_seconds(), native)
        if rank == 0:
            store.set("adapt", os.environ.get("TUCCL_ADAPT", ""))
        if store.get("adapt") == b"1" and size > 1:
            control = dist.PrefixStore("control/", store)
            meeting = _meet(control, rank, {0} if rank else set(range(1, size)))
            programs.adapt(group, meeting)
    except TucclError as error:
        message = str(error)
    reason = vote(store, "connections", rank, size, message, message == "connected")
    if group is None or reason is not None:
        return Refusal(reason or message)
    return programs, group


def _meet(store: dist.Store, rank: int, peers: set[int]) -> Meeting:
    """Return a listener, the addresses of ``peers``, and the secret that ranks leave in a store."""
    if rank == 0:
        store.set("secret", secrets.token_hex(16))
    try:
        listener = PeerListener(interface() or "")
    except TucclError:
        store.set(f"address/{rank}", "")  # nobody need wait for it
        raise
    store.set(f"address/{rank}", listener.address)
    secret = store.get("secret").decode()
    return listener, {peer: store.get(f"address/{peer}").decode() for peer in peers}, secret
