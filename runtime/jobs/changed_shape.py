"""The table for a machine whose hosts come and go: one of its present shape, else a derived one."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations
from math import comb
from pathlib import Path

from tuccl.errors import InputError, TucclError
from tuccl.runtime.jobs.child_tree import run_to_end
from tuccl.runtime.table.context import JobContext
from tuccl.runtime.table.store import JSON_NAME, TOPOLOGY_NAME, Table, load_table
from tuccl.topology import Topology, differences, keep_gpus, signature
from tuccl.topology.files import load_topology, save_topology

_DERIVED = "derived-"
_MOST_CHOICES = 64  # of hosts under other names, that must all be alike


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
    without: Collection[str] = (),
    here: JobContext | None = None,
) -> tuple[Table, str]:
    """Return the table of several in ``folder`` for the machine as it is, and what to say of it.

    The machine is the part of ``whole`` that is on ``hosts``; without ``whole`` a part of
    ``topology.json`` in ``folder``, else of what the tables there were tuned for. Where no table
    is for it, one is derived from the nearest, simulated, and kept in ``folder``.

    Args:
        folder: holds tables, each a folder.
        hosts: the host of each rank, or () where all of the machine is there.
        all_gpus: ``hosts`` are there once each, alike and with all of their GPUs.
        whole: the machine with all of its hosts.
        seconds: what deriving may take; 0: only what is there is used.
        without: dialects that the job's runtime cannot load.
        here: what the job's ranks share; tables that were tuned under another context are left out.

    Raises:
        InputError: there is none, or the machine cannot be determined.
        OSError: the folder cannot be read.
    """
    tables, bad = _tables(Path(folder), without, here)
    if not tables:
        raise InputError(f"{folder}: {bad or 'holds no table that this job can load'}")
    if whole is None and (probed := Path(folder, TOPOLOGY_NAME)).exists():
        whole = load_topology(probed)
    # What was derived here is for a part of the machine.
    tuned = [t for t in tables if not t.folder.name.startswith(_DERIVED)] or tables
    wholes = [table.topology for table in tuned] if whole is None else [whole]
    now = _present(Path(folder), wholes, hosts, all_gpus=all_gpus)
    alike = [t for t in tables if _is_for(t, now)]
    same = next((t for t in alike if not differences(t.topology, now)), None)
    if same is not None:
        return same, ""
    reason = f"no table is for {now.ranks} ranks on {len(now.hosts)} hosts: {folder}"
    if seconds > 0:
        try:
            return _derived(Path(folder), tables, now, min(seconds, 3600.0))
        except TucclError as error:
            reason += f" has none, and none could be derived: {error}"
    if alike:
        drift = differences(alike[0].topology, now)[0]
        return alike[0], f"{alike[0].folder}: of the same signature, but {drift}"
    raise InputError(reason)


def split_host(topology: Topology, hosts: Sequence[str]) -> str:
    """Return which ranks of one host of ``topology`` are on two of ``hosts``, by rank; empty: none.

    A program made for them sends between them as within a host. The reverse does no harm.

    >>> from tuccl.topology import load_profile
    >>> split_host(load_profile("v100x4"), ["a", "a", "a", "a"])
    ''
    """
    first: dict[str | None, int] = {}
    for rank, gpu in enumerate(topology.gpus):
        other = first.setdefault(gpu.host, rank)
        if hosts[rank] != hosts[other]:
            return (
                f"it was tuned for ranks {other} and {rank} on one host, and they are on "
                f"{hosts[other]} and {hosts[rank]}; tune for the machine as `tuccl doctor "
                "--transports --json` and `tuccl probe --cells` find it, or set one TUCCL_HOSTID "
                "on ranks that are on one host"
            )
    return ""


def present_topology(whole: Topology, hosts: Sequence[str]) -> Topology | None:
    """Return the part of ``whole`` whose rank r is on ``hosts[r]``, () all; None: none, or unclear.

    Hosts of other names than those of ``whole`` must be as many and as large as some of it, all
    choices of which have the same shape.

    >>> from tuccl.topology import join, keep_gpus, load_profile
    >>> four = join(keep_gpus(load_profile("ndv2"), range(2)), 4)
    >>> present_topology(four, ["n0", "n0", "n3", "n3"]).hosts
    ('n0', 'n3')
    """
    if not hosts:
        return whole
    counts = Counter(hosts)
    named = [h if h in whole.hosts else h.partition(".")[0] for h in hosts]  # less its domain
    if set(named) <= set(whole.hosts) and len(set(named)) == len(counts):
        return _part(whole, named)
    if len(set(counts.values())) > 1:
        return None
    if comb(len(whole.hosts), len(counts)) > _MOST_CHOICES:
        return None
    parts = [
        _part(whole, [dict(zip(counts, choice, strict=True))[host] for host in hosts])
        for choice in combinations(whole.hosts, len(counts))
    ]
    shapes = {part and signature(part) for part in parts}
    return parts[0] if len(shapes) == 1 else None


def _part(whole: Topology, hosts: Sequence[str]) -> Topology | None:
    """The first GPUs of each host as its ranks have them, or None where it has fewer."""
    left = {host: list(whole.gpus_of(host)) for host in set(hosts)}
    if any(len(left[host]) < count for host, count in Counter(hosts).items()):
        return None
    ranks = [left[host].pop(0) for host in hosts]
    return whole if ranks == list(range(whole.ranks)) else keep_gpus(whole, ranks)


def _tables(
    folder: Path, without: Collection[str], here: JobContext | None
) -> tuple[list[Table], str]:
    """The tables in ``folder`` that the job can use, the newest first, why it cannot another."""
    tables, bad = [], ""
    files = sorted(folder.glob(f"*/{JSON_NAME}"), key=os.path.getmtime, reverse=True)
    for file in files:
        try:
            tables.append(load_table(file.parent))
        except InputError as error:
            bad = str(error)
    fit = []
    for table in tables:
        context = table.lookup.context
        why = context.difference(here) if context and here else ""
        if why and here and table.lookup.ranks == len(here.quota_cpus):
            bad = f"{table.folder}: {why}"
        elif table.lookup.dialect not in without:
            fit.append(table)
    return fit, bad


def _present(
    folder: Path, wholes: Sequence[Topology], hosts: Sequence[str], *, all_gpus: bool
) -> Topology:
    """The machine as it is, where all that is known of it agrees."""
    each = [len(w.gpus_of(w.hosts[0])) if all_gpus else 1 for w in wholes]
    by_rank = [[h for h in hosts for _ in range(count)] for count in each]
    parts = [p for p in map(present_topology, wholes, by_rank) if p is not None]
    if len({signature(part) for part in parts}) == 1:
        return parts[0]
    names = ", ".join(dict.fromkeys(hosts))[:200] or "all hosts"
    why = "may be parts of several machines" if parts else "are no part of a machine"
    raise InputError(
        f"no table is for {names}: they {why} that {folder} knows; {TOPOLOGY_NAME} there says what "
        "the machine is"
    )


def _is_for(table: Table, now: Topology) -> bool:
    facts = (table.lookup.signature, table.lookup.ranks, table.lookup.hosts)
    return facts == (signature(now), now.ranks, len(now.hosts))


def _derived(
    folder: Path, tables: Sequence[Table], now: Topology, seconds: float
) -> tuple[Table, str]:
    """A table for ``now``, by a process that is ended when its time is up."""

    def distance(table: Table) -> tuple[int, int]:
        calls = {entry.collective for entry in table.entries}  # fewer in one derived in haste
        return -len(calls), abs(table.lookup.ranks - now.ranks)

    start = min(tables, key=distance)
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
        table = table.save(folder / f"{_DERIVED}{table.lookup.signature}")
    how = f"derived in {time.monotonic() - begin:.1f} s (simulated) from {start.folder.name}"
    return table, f"{table.folder}: {how}"
