"""The table for a machine whose hosts come and go: one of its present shape, else a derived one."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path

from tuccl.errors import InputError, TucclError
from tuccl.runtime.jobs.child_tree import run_to_end
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.store import JSON_NAME, TOPOLOGY_NAME, Table, load_table
from tuccl.topology import (
    Topology,
    differences,
    keep_gpus,
    load_topology,
    save_topology,
    signature,
)

__all__ = ["FoundTable", "is_table", "present_topology", "table_for"]

_MOST_CHOICES = 64  # of hosts under other names, that must all be alike
_NAME = "derived-"


@dataclass(frozen=True)
class FoundTable:
    """A table, and what to tell of how it came about: empty where it was there as it is."""

    table: Table
    note: str = ""


def is_table(folder: str | os.PathLike[str]) -> bool:
    """Return whether ``folder`` is one table, and not a folder that holds some."""
    return Path(folder, JSON_NAME).exists() or not Path(folder).is_dir()


def table_for(
    folder: str | os.PathLike[str],
    hosts: Sequence[str] = (),
    *,
    all_gpus: bool = False,
    whole: Topology | None = None,
    seconds: float = 0.0,
    usable: Callable[[LookupTable], bool] = lambda _: True,
) -> FoundTable:
    """Return the table of ``folder``, which holds several, for the machine as it is.

    The machine is the part of ``whole`` that is on ``hosts``; without ``whole`` a part of
    ``topology.json`` in ``folder``, else of what the tables there were tuned for. Where no table
    is for it, one is derived from the nearest, simulated, and kept in ``folder``.

    Args:
        folder: holds tables, each a folder.
        hosts: the host of each rank, or () where all of the machine is there.
        all_gpus: ``hosts`` are there once each, with all of their GPUs.
        whole: the machine with all of its hosts.
        seconds: what deriving may take; 0: only what is there is used.
        usable: which tables the job's runtime can load.

    Raises:
        InputError: there is none, nor could one be derived; or it cannot be told which part of
            which machine this is.
    """
    tables, bad = _tables(Path(folder), usable)
    if not tables:
        raise InputError(f"{folder}: {bad or 'holds no table that this job can load'}")
    wholes = _wholes(Path(folder), tables, whole)
    now = _present(Path(folder), wholes, hosts, all_gpus=all_gpus)
    alike = [t for t in tables if _is_for(t, now)]
    same = next((t for t in alike if not differences(t.topology, now)), None)
    if same is not None:
        return FoundTable(same)
    reason = f"no table is for {_shape(now)}: {folder}"
    if seconds > 0:
        try:
            return _derived(Path(folder), tables, now, seconds)
        except TucclError as error:
            reason += f" has none, and none could be derived: {error}"
    if alike:
        drift = differences(alike[0].topology, now)[0]
        return FoundTable(alike[0], f"{alike[0].folder}: of the same signature, but {drift}")
    raise InputError(reason)


def present_topology(whole: Topology, hosts: Sequence[str]) -> Topology | None:
    """Return the part of ``whole`` whose rank r is on ``hosts[r]``, () all; None: none, or unclear.

    Hosts of other names than those of ``whole`` must be as many and as large as some of it, all
    choices of which have the same shape.

    >>> from tuccl.topology import join, keep_gpus, load_profile
    >>> four = join(keep_gpus(load_profile("ndv2"), range(2)), 4)
    >>> present_topology(four, ["n0", "n0", "n3", "n3"]).hosts
    ('n0', 'n3')
    >>> present_topology(four, ["a", "a", "b", "b", "c", "c"]).ranks
    6
    """
    if not hosts:
        return whole
    counts = Counter(hosts)
    named = [_known(whole, host) for host in hosts]
    if set(named) <= set(whole.hosts) and len(set(named)) == len(counts):
        return _part(whole, named)
    if len(set(counts.values())) > 1:
        return None
    choices = list(islice(combinations(whole.hosts, len(counts)), _MOST_CHOICES + 1))
    parts = [
        _part(whole, [names[host] for host in hosts])
        for names in (dict(zip(counts, choice, strict=True)) for choice in choices)
    ]
    shapes = {None if part is None else signature(part) for part in parts}
    return parts[0] if len(shapes) == 1 and len(choices) <= _MOST_CHOICES else None


def _part(whole: Topology, hosts: Sequence[str]) -> Topology | None:
    """The first GPUs of each host as its ranks have them, or None where it has fewer."""
    left = {host: list(whole.gpus_of(host)) for host in set(hosts)}
    if any(len(left[host]) < count for host, count in Counter(hosts).items()):
        return None
    ranks = [left[host].pop(0) for host in hosts]
    return whole if ranks == list(range(whole.ranks)) else keep_gpus(whole, ranks)


def _tables(folder: Path, usable: Callable[[LookupTable], bool]) -> tuple[list[Table], str]:
    """The tables in ``folder`` that are whole, the newest first, and what is wrong with another."""
    tables, bad = [], ""
    try:
        files = sorted(folder.glob(f"*/{JSON_NAME}"), key=os.path.getmtime, reverse=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    for file in files:
        try:
            tables.append(load_table(file.parent))
        except InputError as error:
            bad = str(error)
    return [t for t in tables if usable(t.lookup)], bad


def _wholes(folder: Path, tables: Sequence[Table], whole: Topology | None) -> list[Topology]:
    """The machines that the hosts may be of."""
    if whole is None and (folder / TOPOLOGY_NAME).exists():
        whole = load_topology(folder / TOPOLOGY_NAME)
    return [t.topology for t in tables] if whole is None else [whole]


def _present(
    folder: Path, wholes: Sequence[Topology], hosts: Sequence[str], *, all_gpus: bool
) -> Topology:
    """The machine as it is, where all that is known of it agrees."""
    parts = [
        part
        for whole in wholes
        if (part := present_topology(whole, _by_rank(whole, hosts) if all_gpus else hosts))
    ]
    if len({signature(part) for part in parts}) == 1:
        return parts[0]
    names = ", ".join(dict.fromkeys(hosts))[:200] or "all hosts"
    why = "may be parts of several machines" if parts else "are no part of a machine"
    raise InputError(
        f"no table is for {names}: they {why} that {folder} knows; {TOPOLOGY_NAME} there says what "
        "the machine is"
    )


def _by_rank(whole: Topology, hosts: Sequence[str]) -> list[str]:
    """Each of ``hosts`` as often as it has GPUs; under another name, as the largest has."""
    counts = {host: len(whole.gpus_of(host)) for host in whole.hosts}
    most = max(counts.values())
    return [host for host in hosts for _ in range(counts.get(_known(whole, host), most))]


def _known(whole: Topology, host: str) -> str:
    """The name of a host as ``whole`` has it, perhaps without its domain."""
    return host if host in whole.hosts else host.partition(".")[0]


def _is_for(table: Table, now: Topology) -> bool:
    facts = (table.lookup.signature, table.lookup.ranks, table.lookup.hosts)
    return facts == (signature(now), now.ranks, len(now.hosts))


def _shape(now: Topology) -> str:
    return f"{now.ranks} ranks on {len(now.hosts)} host{'s' * (len(now.hosts) > 1)}"


def _distance(table: Table, now: Topology) -> tuple[int, int]:
    """How little a table has to give: fewer collectives, as one derived in haste, then ranks."""
    collectives = {entry.collective for entry in table.entries}
    return -len(collectives), abs(table.lookup.ranks - now.ranks)


def _derived(folder: Path, tables: Sequence[Table], now: Topology, seconds: float) -> FoundTable:
    """A table for ``now``, by a process that is ended when its time is up."""
    start = min(tables, key=lambda t: _distance(t, now))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tuccl-") as place:
        machine, made = Path(place, TOPOLOGY_NAME), Path(place, "table")
        save_topology(now, machine)
        words = [*map(str, (machine, start.folder, made)), f"{seconds:g}"]
        command = [sys.executable, "-m", "tuccl.tuning.derive", *words]
        ended = run_to_end(command, os.environ, seconds)
        if not made.exists():
            why = ended.err.strip().rpartition("\n")[2][:300] if ended.code == 1 else ""
            raise InputError(why or f"not done after {seconds:g} s")
        table = load_table(made)
        if not _is_for(table, now):
            raise InputError("it is of another machine")
        table = table.save(folder / f"{_NAME}{table.lookup.signature}")
    took = time.monotonic() - begin
    return FoundTable(
        table,
        f"{table.folder}: derived in {took:.1f} s (simulated) from {start.folder.name}, for "
        f"{_shape(now)}",
    )
