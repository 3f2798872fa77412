"""A job's tables: a folder with one for each set of groups that are alike."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded, write_file
from tuccl.groups.layout import ProcessGroups
from tuccl.program import DIALECTS
from tuccl.runtime import Table, load_table
from tuccl.runtime.jobs.launch import channel_variables, interpreter_variables
from tuccl.runtime.jobs.plugins import plugin_path
from tuccl.runtime.table.store import TEXT_NAME
from tuccl.topology import Topology, decode_topology, encode_topology, keep_gpus

FORMAT = "tuccl-job/1"
JOB_NAME, TOPOLOGY_NAME, TABLES_NAME = "job.json", "topology.json", "tables"
MEMBERS_NAME = "members.txt"
_MOST_BYTES = 1 << 28


class JobEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of groups that are alike.

    Attributes:
        kind: Of the groups.
        groups: Their numbers among the groups of the kind.
        key: `group_key` of the first.
        table: The folder's name under ``tables``.
        checksum: The table's, so that none stands there that was made for other groups.
        concurrent: The groups of the kind that share links with one call at once where its calls
            are timed: how many, itself counted; 1: alone.
        beside: Calls of other kinds that begin at the same time, as "tp:allreduce=20M".
        repeats: Its candidates are ordered while these begin again whenever they end.
    """

    kind: str
    groups: tuple[int, ...]
    key: str
    table: str
    checksum: str
    concurrent: int = 1
    beside: tuple[str, ...] = ()
    repeats: bool = False

    def __post_init__(self) -> None:
        """Refuse a table that is not in the job's folder."""
        if self.table in ("", ".", "..") or Path(self.table).name != self.table:
            raise ValueError(f"table {self.table[:60]!r}: expected the name of a folder")


class _File(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT
):
    groups: ProcessGroups
    topology_sha256: str
    entries: tuple[JobEntry, ...]

    def __post_init__(self) -> None:
        places: set[tuple[str, int]] = set()
        for entry in self.entries:
            kind = next((k for k in self.groups.kinds if k.name == entry.kind), None)
            known = range(len(kind.groups)) if kind else range(0)
            mine = {(entry.kind, number) for number in entry.groups}
            if not mine or places & mine or not all(number in known for number in entry.groups):
                raise ValueError(
                    f"table {entry.table[:60]!r}: expected groups of a kind of the job, each with "
                    "one table"
                )
            places |= mine


@dataclass(frozen=True)
class JobTables:
    """The groups of a job, the machine, and a table for each set of groups that are alike.

    Attributes:
        folder: It has ``job.json``, ``topology.json`` and the tables.
        groups: The job's groups.
        topology: The whole machine.
        entries: The tables.
    """

    folder: Path
    groups: ProcessGroups
    topology: Topology
    entries: tuple[JobEntry, ...]

    def members(self, entry: JobEntry) -> tuple[int, ...]:
        """Return the ranks of the first group of an entry, whose part its table is made for."""
        return self.groups.kind(entry.kind).groups[entry.groups[0]]

    def of_members(self, members: Sequence[int]) -> JobEntry | None:
        """Return the entry of the group with these ranks in this order, None without one.

        Of kinds with the same group the first one's: each member chooses alike.
        """
        return next((e for e, group in self.of_groups() if group == tuple(members)), None)

    def of_rank(self, rank: int) -> list[tuple[JobEntry, tuple[int, ...]]]:
        """Return the groups that a rank is in which have a table, each with its entry."""
        return [(entry, group) for entry, group in self.of_groups() if rank in group]

    def table(self, entry: JobEntry) -> Table:
        """Return an entry's table, after proving it.

        Raises:
            InputError: it is damaged, or not the one that the job names.
        """
        table = load_table(self.place(entry))
        if table.lookup.checksum != entry.checksum:
            raise InputError(
                f"{printable_path(self.place(entry))}: not the table of {JOB_NAME}; tune the job "
                "again"
            )
        return table

    def of_kind(self, kind: str) -> dict[Topology, tuple[JobEntry, Table]]:
        """Return the entries of a kind with their tables, by the part of each one's first group.

        Raises:
            InputError: a table is damaged, or groups of the kind have none.
        """
        entries = [entry for entry in self.entries if entry.kind == kind]
        if sum(len(entry.groups) for entry in entries) < len(self.groups.kind(kind).groups):
            place = printable_path(self.folder)
            raise InputError(f"{place}: some groups of kind {kind} have no table; tune it again")
        return {keep_gpus(self.topology, self.members(e)): (e, self.table(e)) for e in entries}

    def place(self, entry: JobEntry) -> Path:
        """Return the folder of an entry's table."""
        return self.folder / TABLES_NAME / entry.table

    def of_groups(self) -> Iterator[tuple[JobEntry, tuple[int, ...]]]:
        """Yield every group that has a table, with its entry."""
        for entry in self.entries:
            groups = self.groups.kind(entry.kind).groups
            yield from ((entry, groups[number]) for number in entry.groups)


def is_job(folder: str | os.PathLike[str]) -> bool:
    """Return whether ``folder`` has the tables of a job's groups."""
    return Path(folder, JOB_NAME).exists()


def save_job(job: JobTables) -> None:
    """Write a job's index, machine and groups' members beside its tables.

    The index, last, makes them valid; plugins and communicators read the members.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    topology = encode_topology(job.topology)
    write_file(job.folder / TOPOLOGY_NAME, topology)
    write_file(job.folder / MEMBERS_NAME, members_text(job))
    file = _File(job.groups, hashlib.sha256(topology).hexdigest(), job.entries)
    write_file(job.folder / JOB_NAME, msgspec.json.format(msgspec.json.encode(file), indent=1))


def members_text(job: JobTables) -> bytes:
    """Return the ranks' GPUs and the groups of a job as text for plugins and communicators."""
    lines: dict[tuple[int, ...], str] = {}
    for entry, group in job.of_groups():
        text = read_bounded(job.place(entry) / TEXT_NAME, _MOST_BYTES)
        checksum = text.split()[-1].decode()
        ranks = " ".join(map(str, group))
        lines.setdefault(group, f"group {entry.table} {checksum} {ranks}\n")
    for group in (group for kind in job.groups.kinds for group in kind.groups):
        lines.setdefault(group, f"group - - {' '.join(map(str, group))}\n")
    machine = job.topology
    hosts = {host: number for number, host in enumerate(machine.hosts)}
    head = f"tuccl-members 2\njob {job.groups.ranks} {len(lines)}\n"
    places = [
        f"rank {hosts[machine.host_of(rank)]} {gpu.busid or '-'}\n"
        for rank, gpu in enumerate(machine.gpus)
    ]
    body = (head + "".join((*places, *lines.values()))).encode()
    return body + f"end {hashlib.sha256(body).hexdigest()}\n".encode()


def job_environment(job: JobTables, *, cuda: bool = False) -> dict[str, str]:
    """Return the variables by which communicators get their groups' tables.

    NCCL's tuner plugin reads tables of NCCL's own choices. Those of programs are read by tuccl's
    library in NCCL's place (``cuda``) or by its MSCCL scheduler, which knows no more of a
    communicator than how many ranks it has.

    Raises:
        InputError: a table is damaged, or not for what would read it.
        Unavailable: this installation was built without the plugins, or without that library.
    """
    tables = [job.table(entry) for entry in job.entries]
    dialects = {table.lookup.dialect for table in tables}
    able = DIALECTS if cuda else ("nccl", "executor")
    if len(dialects) != 1 or not dialects <= set(able):
        raise InputError(
            f"{printable_path(job.folder)}: tables of dialect {', '.join(sorted(dialects))}; "
            f"expected one of {', '.join(able)} (tuccl tune --dialect)"
            + ("" if cuda else ", which NCCL's tuner and MSCCL's scheduler load, or --cuda")
        )
    text = read_bounded(job.folder / MEMBERS_NAME, _MOST_BYTES)
    if text != members_text(job):
        raise InputError(
            f"{printable_path(job.folder / MEMBERS_NAME)}: not of this job's tables; tune the job "
            "again"
        )
    if cuda:
        return interpreter_variables(job.folder)[0]
    plugins: dict[str, str] = {
        "NCCL_TUNER_PLUGIN": str(plugin_path("tuner")),
        "NCCL_PROFILER_PLUGIN": str(plugin_path("profiler")),
    }
    if dialects == {"executor"}:
        channels = max((p.nchannels for t in tables for p in t.programs.values()), default=0)
        plugins = {
            "NCCL_MSCCL_ENABLE": "1",
            "MSCCL_SCHEDULER": str(plugin_path("scheduler")),
            **channel_variables(channels, "executor"),
        }
    return {
        **plugins,
        "TUCCL_TABLE": str(job.folder.resolve()),
        "TUCCL_TABLE_SHA256": text.split()[-1].decode(),
    }


def load_job(path: str | os.PathLike[str]) -> JobTables:
    """Return the tables of a job's groups in the folder ``path``; each is proven when it is read.

    Raises:
        InputError: the index or the machine is missing, damaged, or contradicts itself.
    """
    folder = Path(path)
    place = folder / JOB_NAME
    try:
        file = msgspec.json.decode(read_bounded(place, _MOST_BYTES), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = decode_reason(error, _File)
        raise InputError(f"{printable_path(place)}: {reason}; tune the job again") from None
    encoded = read_bounded(folder / TOPOLOGY_NAME, _MOST_BYTES)
    if hashlib.sha256(encoded).hexdigest() != file.topology_sha256:
        raise InputError(
            f"{printable_path(folder / TOPOLOGY_NAME)}: not the machine of {JOB_NAME}; tune the "
            "job again"
        )
    topology = decode_topology(encoded, folder / TOPOLOGY_NAME)
    if topology.ranks != file.groups.ranks:
        raise InputError(f"{printable_path(place)}: its groups and its machine differ in ranks")
    return JobTables(folder, file.groups, topology, file.entries)
