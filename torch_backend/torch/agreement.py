"""One table for all ranks of a group, or none: rank 0 reads it, each rank proves and votes."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch.distributed as dist

from tuccl.errors import InputError, TucclError
from tuccl.groups.job import is_job, load_job
from tuccl.runtime import Table, load_table
from tuccl.runtime.jobs import is_table, split_host, table_for
from tuccl.runtime.probing import RankFacts, context_of, local_facts
from tuccl.runtime.table.context import JobContext
from tuccl.torch.options import Options, host_name, namespaces

_LARGEST = 256 << 20
_YES, _NO = b"+", b"-"
NO_GROUP = "no table is for a group"
_TOPOLOGY = "topology.json"
_FILES = ("table.json", "table.txt", _TOPOLOGY)


@dataclass(frozen=True)
class Refusal:
    """Why the ranks of a group use no table."""

    reason: str


def present_tables(
    store: dist.Store,
    rank: int,
    members: Sequence[int],
    world: int,
    options: Options,
    derive_s: float,
) -> tuple[tuple[str | Path, ...], str]:
    """Return the tables for the hosts that are there, and what is to be said of them, on rank 0.

    In the place of a folder of tables stands that of these hosts, if need be one derived in
    ``derive_s`` seconds, and of a job's tables that of the group's ``members``, ranks of the
    ``world``; a table that has ranks on one host which are on two is left out, and one that was
    tuned where ranks shared other things. Other ranks only say where they are.

    Raises:
        dist.DistStoreError: a rank did not answer within the store's time.
    """
    # Where the user names hosts, what ranks share is not compared.
    facts = "" if os.environ.get("TUCCL_HOSTID") else msgspec.json.encode(local_facts()).decode()
    store.set(f"host/{rank}", f"{host_name()}\n{namespaces()}\n{facts}")
    if rank != 0:
        return options.tables, ""
    hosts, here = _hosts(store, len(members))
    tables: list[str | Path] = []
    notes = []
    for folder in options.tables:
        try:
            if is_job(folder):
                folder, note = _of_job(folder, members, world)
                notes += [note] * bool(note)
            if folder and is_table(folder):
                table = load_table(folder)
                if reason := _unfit(table, hosts, here):
                    notes.append(f"no table is for these hosts: {folder}: {reason}")
                else:
                    tables.append(folder)
            elif folder:
                found, note = table_for(
                    folder, hosts, seconds=derive_s, without=("nccl",), here=here
                )
                tables.append(found.folder)
                notes += [note] * bool(note)
        except (TucclError, OSError) as error:
            notes.append(str(error))
    return tuple(tables), "; ".join(notes)


def _of_job(folder: str | Path, members: Sequence[int], world: int) -> tuple[str | Path, str]:
    """The folder of a job's table for a group, or none and why."""
    job = load_job(folder)
    if job.groups.ranks != world:
        return "", f"{folder}: of a job of {job.groups.ranks} ranks; this one has {world}"
    entry = job.of_members(members)
    if entry is None:
        return "", f"{NO_GROUP} of these ranks in {folder}"
    job.table(entry)
    return job.place(entry), ""


def agree_on_table(
    store: dist.Store, rank: int, size: int, tables: Sequence[str | Path], note: str = ""
) -> Table | Refusal:
    """Return the table that every rank has proven to hold, or why there is none.

    Only rank 0 knows its folder.

    ``note`` is what rank 0 knows of a table that is not among ``tables``.

    Raises:
        dist.DistStoreError: a rank did not answer within the store's time.
    """
    folder = Path()
    if rank == 0:
        offer, folder = _offer(tables, size, note)
        store.set("table", offer)
    answer = store.get("table")
    if answer[:1] != _YES:
        return Refusal(answer[1:].decode(errors="replace"))
    try:
        stored, message = _unpack(answer[1:]), hashlib.sha256(answer).hexdigest()
    except InputError as error:
        stored, message = None, str(error)
    reason = vote(store, "digest", rank, size, message, stored is not None)
    if stored is None or reason is not None:
        return Refusal(reason or message)
    return replace(stored, folder=folder)


def vote(
    store: dist.Store, topic: str, rank: int, size: int, message: str, yes: bool
) -> str | None:
    """Return None where all ranks said yes and the same ``message``; else a reason, equal on all.

    Raises:
        dist.DistStoreError: a rank did not answer within the store's time.
    """
    store.set(f"{topic}/{rank}", (_YES if yes else _NO) + message.encode()[:1000])
    votes = [store.get(f"{topic}/{other}") for other in range(size)]
    for other, vote in enumerate(votes):
        if vote[:1] != _YES:
            return f"rank {other}: {vote[1:].decode(errors='replace')}"
        if vote != votes[0]:
            return f"rank {other} and rank 0 do not have the same {topic}"
    return None


def _hosts(store: dist.Store, size: int) -> tuple[list[str], JobContext | None]:
    """Return the host of each rank, and what ranks share, None where that is not compared.

    Containers that share neither namespace are hosts.
    """
    answers = [store.get(f"host/{rank}").decode().split("\n", 2) for rank in range(size)]
    ranks = [(host, frozenset(names.split(" "))) for host, names, _ in answers]
    known = [msgspec.json.decode(facts, type=RankFacts) for _, _, facts in answers if facts]
    here = context_of(known) if len(known) == size else None
    parts: dict[str, list[frozenset[str]]] = {}
    for host, own in ranks:
        others = parts.get(host, [])
        joined = [part for part in others if part & own]
        parts[host] = [*(part for part in others if part not in joined), own.union(*joined)]

    def name(host: str, own: frozenset[str]) -> str:
        [number] = [i for i, part in enumerate(parts[host]) if own <= part]
        return f"{host} ({number})" if len(parts[host]) > 1 else host

    return [name(host, own) for host, own in ranks], here


def _unfit(table: Table, hosts: Sequence[str], here: JobContext | None) -> str:
    """Return why the table is not for ranks on ``hosts`` that share what is ``here``."""
    if table.lookup.ranks != len(hosts):
        return ""
    context = table.lookup.context
    return split_host(table.topology, hosts) or (
        context.difference(here) if context and here else ""
    )


def _offer(tables: Sequence[str | Path], size: int, note: str) -> tuple[bytes, Path]:
    """Rank 0's entry for the store, a table or why there is none, and the table's folder."""
    others: list[int] = []
    try:
        for folder in map(Path, tables):
            stored = load_table(folder)
            if stored.lookup.ranks == size:
                return _YES + _pack(stored, folder), folder.resolve()
            others.append(stored.lookup.ranks)
    except (InputError, OSError) as error:
        return _NO + str(error).encode()[:1000], Path()
    why = f"no table is for {size} ranks, only for {sorted(set(others))}" + f"; {note}" * bool(note)
    if not others:
        why = note or "no table is named (TUCCL_TABLE, or pg_options)"
    return _NO + why.encode()[:1000], Path()


def _pack(stored: Table, folder: Path) -> bytes:
    names = [*_FILES, *stored.lookup.programs]
    packed = msgspec.msgpack.encode({name: (folder / name).read_bytes() for name in names})
    return zlib.compress(packed, 1)


def _unpack(packed: bytes) -> Table:
    """Unpack a table and prove it whole, as if it had been read here."""
    try:
        unpacker = zlib.decompressobj()
        files = msgspec.msgpack.decode(unpacker.decompress(packed, _LARGEST), type=dict[str, bytes])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise InputError(f"the table in the store is damaged: {error}") from None
    with tempfile.TemporaryDirectory(prefix="tuccl-table-") as place:
        for name, data in files.items():
            target = Path(place, name)
            if not target.resolve().is_relative_to(Path(place).resolve()):
                raise InputError(f"the table in the store names {name[:60]!r}")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
        return load_table(Path(place))
