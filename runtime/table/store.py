"""The table as a folder on disk: saved in one step, read whole or refused whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec

import tuccl
from tuccl.errors import InputError
from tuccl.program import MOST_XML_BYTES, Program, max_safe_bytes, parse_xml
from tuccl.runtime.table.atomic_dir import previous_directory, replace_directory
from tuccl.runtime.table.entry import Candidate, Entry
from tuccl.runtime.table.lookup import FORMAT, LookupTable
from tuccl.runtime.table.preference import table_preferring
from tuccl.runtime.table.programs import ProgramFile, program_dialect
from tuccl.runtime.table.selection import Choice, Explanation, explain, select
from tuccl.runtime.table.text import table_text
from tuccl.sketches import Sketch, load_sketch
from tuccl.synth.model.collective import Collective, collective_on
from tuccl.topology import Topology, decode_topology, encode_topology, signature
from tuccl.units import Size, size_bytes

JSON_NAME, TEXT_NAME, TOPOLOGY_NAME = "table.json", "table.txt", "topology.json"
LEARNED_NAME = "learned.txt"
_OWN_FILE = re.compile(
    r"table\.(json|txt)|topology\.json|learned\.(txt|txt\.new|lock)|use\.lock"
    r"|algorithms(/[\w.+-]+\.xml)?|sketches(/[\w.+-]+\.json)?"
)
_TRIES = 4
_BLANK = "0" * 64
_SEAL = re.compile(rb'"checksum": "([0-9a-f]{64})"')
_BLANK_SEAL = f'"checksum": "{_BLANK}"'.encode()


class _Format(msgspec.Struct):
    format: str


@dataclass(frozen=True, repr=False)
class Table:
    """A lookup table with its topology and programs, as they stand in ``folder``, proven whole.

    `tuccl.tune` makes one, `load_table` reads one.

    >>> import tuccl
    >>> options = tuccl.TuneOptions(budget=16)
    >>> table = tuccl.tune(tuccl.profile("v100x4"), "allgather", "1M", options=options)
    >>> len(table.entries), table.select("allgather", "1M").candidate.sms > 0
    (2, True)
    """

    folder: Path
    lookup: LookupTable
    topology: Topology
    programs: Mapping[str, Program]

    def __repr__(self) -> str:
        """Name the folder; candidates would fill pages."""
        return f"<{type(self).__name__} of {self.topology.name} in {self.folder}>"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """For each collective and range of sizes the candidates, best first."""
        return self.lookup.entries

    @property
    def files(self) -> list[ProgramFile]:
        """The program files, as they are in ``folder``."""
        return [
            ProgramFile(path, text.decode("utf-8", "surrogateescape"), self.lookup.dialect, 0, 0)
            for path in self.programs
            for text in [(self.folder / path).read_bytes()]
        ]

    def program(self, candidate: Candidate) -> Program | None:
        """Return the program of ``candidate``; None for the runtime's default."""
        return None if candidate.program is None else self.programs[candidate.program]

    def sketch(self, candidate: Candidate) -> Sketch | None:
        """Return the sketch of ``candidate`` as the tune used it; None: it is not stored.

        Raises:
            InputError: its file is damaged, or of another machine.
        """
        name = sketch_path(candidate.sketch)
        stored = _OWN_FILE.fullmatch(name) and (self.folder / name).is_file()
        return load_sketch(self.folder / name, self.topology) if stored else None

    def preferring(self, preference: str | None) -> Table:
        """Return this with its candidates in the order of `table_preferring`; None: as it is.

        Raises:
            InputError: there is no such preference.
        """
        if preference is None:
            return self
        return replace(self, lookup=table_preferring(self.lookup, preference))

    def select(
        self,
        collective: str | Collective,
        size: Size,
        *,
        in_place: bool = False,
        element_bytes: int = 4,
        reduction: str = "sum",
        prefer: str | None = None,
    ) -> Choice:
        """Return the candidate for a call whose whole array has ``size`` bytes, and why.

        Args:
            collective: Its name, or a `Collective` with a root.
            size: Bytes, or text like "16M".
            in_place: Whether output and input are the same memory.
            element_bytes: Bytes of an element: 1, 2, 4 or 8.
            reduction: sum, prod, min, max or avg.
            prefer: speed or sms, instead of the table's own order.

        Raises:
            InputError: there is no such collective, datatype or preference.
        """
        call = collective_on(self.lookup.ranks, collective)
        return select(
            self.lookup,
            call.name,
            size_bytes(size),
            in_place=in_place,
            root=call.root,
            element_bytes=element_bytes,
            reduction=reduction,
            prefer=prefer,
        )

    def explain(self) -> tuple[Explanation, ...]:
        """Return the choice for every collective, placement and range of sizes, and why."""
        return explain(self.lookup)

    def compare(
        self,
        on: str | Callable[[Topology], Any] = "sim",
        *,
        baselines: Sequence[str] | None = None,
        sizes: Size | Iterable[Size] | None = None,
        prefer: str | None = None,
    ) -> tuccl.Comparison:
        """Return the table against the defaults, both timed anew, as `tuccl.compare` does."""
        return tuccl.compare(
            cast("tuccl.Table", self), on, baselines=baselines, sizes=sizes, prefer=prefer
        )

    def export(
        self,
        dialect: str,
        path: str | os.PathLike[str],
        *,
        prefer: str | None = None,
        share_scratch: bool = False,
    ) -> tuccl.Export:
        """Write the table as a folder that a runtime loads, as `tuccl.export` does."""
        return tuccl.export(
            cast("tuccl.Table", self), dialect, path, prefer=prefer, share_scratch=share_scratch
        )

    def save(self, path: str | os.PathLike[str]) -> Table:
        """Write the table as the folder ``path``, in one step; return the table that is there.

        Raises:
            InputError: ``path`` holds something else than a table, or cannot be written.
        """
        folder = Path(path)
        held = _sketches_in(self.folder)
        lookup = save_table(self.lookup, folder, self.topology, self.files, sketches=held)
        return replace(self, folder=folder, lookup=lookup)


def save_table(
    table: LookupTable,
    folder: Path,
    topology: Topology,
    files: Iterable[ProgramFile],
    learned: Callable[[LookupTable], bytes] | None = None,
    sketches: Mapping[str, bytes] | None = None,
) -> LookupTable:
    """Write ``table`` as ``folder`` in one step; return it with its checksums filled in.

    ``files`` holds at least the programs that the table names; others are not written.
    ``learned`` returns what jobs learned, for the table as it is written. ``sketches`` are files by
    `sketch_path`; of these and of an older table's at ``folder``, which is replaced, those stay
    that the table names. Whatever happens, the old or the new one is whole.

    Raises:
        InputError: ``folder`` holds something else than a table or cannot be written, a program
            is missing, or the topology is not the table's.
    """
    folder = folder.resolve()
    check_target(folder)
    sealed, contents = _contents(table, topology, {file.path: file for file in files})
    named = {sketch_path(c.sketch) for entry in sealed.entries for c in entry.candidates}
    held = _sketches_in(folder) | dict(sketches or {})
    own = {path for path in named if _OWN_FILE.fullmatch(path)}
    contents |= {path: data for path, data in held.items() if path in own}
    if learned is not None:
        contents[LEARNED_NAME] = learned(sealed)
    try:
        replace_directory(folder, contents)
    except OSError as error:
        raise InputError(f"{_cut(folder)}: cannot be written: {error.strerror}") from None
    return sealed


def sketch_path(name: str) -> str:
    """Return the file of the sketch ``name`` within the folder."""
    return f"sketches/{name}.json"


def _sketches_in(folder: Path) -> dict[str, bytes]:
    files = sorted(folder.glob("sketches/*.json"))
    return {sketch_path(file.stem): _bytes(file) for file in files}


def check_target(folder: Path) -> None:
    """Refuse a ``folder`` that a table must not replace: call it before a long search.

    Raises:
        InputError: it is no folder, or holds files that no table has.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{_cut(folder)}: a file stands there; expected a table's folder or none")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not _OWN_FILE.fullmatch(name):
            raise InputError(
                f"{_cut(folder)}: holds {name[:60]!r}, which no table has; "
                "name another folder or move that away"
            )


def _contents(
    table: LookupTable, topology: Topology, files: Mapping[str, ProgramFile]
) -> tuple[LookupTable, dict[str, bytes]]:
    """Every file of the folder by its path within it, the JSON sealed by its checksum."""
    if not _is_of(table, topology):
        raise InputError(f"table {table.name!r}: the topology to save with it is another one")
    contents: dict[str, bytes] = {}
    for path, sha256 in table.programs.items():
        if path not in files or files[path].sha256 != sha256:
            raise InputError(f"table {table.name!r}: program {path} is missing or another one")
        contents[path] = files[path].content
    contents[TOPOLOGY_NAME] = encode_topology(topology)
    contents[TEXT_NAME] = table_text(table)
    sealed = msgspec.structs.replace(
        table,
        topology_sha256=_sha256(contents[TOPOLOGY_NAME]),
        text_sha256=_sha256(contents[TEXT_NAME]),
        checksum=_BLANK,
    )
    blank = _encode(sealed)
    sealed = msgspec.structs.replace(sealed, checksum=_sha256(blank))
    contents[JSON_NAME] = _encode(sealed)
    return sealed, contents


def _is_of(table: LookupTable, topology: Topology) -> bool:
    facts = (table.signature, table.ranks, table.hosts)
    return facts == (signature(topology), topology.ranks, len(topology.hosts))


def _encode(table: LookupTable) -> bytes:
    return msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n"


def load_table(path: str | os.PathLike[str]) -> Table:
    """Return the table in the folder ``path``, after proving every file of it.

    A table that is replaced while it is read is read again.

    Raises:
        InputError: a file is missing, damaged, or says something that cannot be.
    """
    folder = Path(path)
    for _ in range(_TRIES):
        before = _identity(folder)
        try:
            return _read(folder if before is not None else previous_directory(folder), folder)
        except InputError:
            if before == _identity(folder):
                raise
    raise InputError(f"{_cut(folder)}: replaced again and again while it was read; try later")


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _read(source: Path, folder: Path) -> Table:
    if not source.is_dir():
        what = "not a folder" if source.exists() else "no such folder"
        raise InputError(f"{_cut(folder)}: {what}; expected one that `tuccl tune` wrote")
    table = _read_json(source / JSON_NAME)
    text = _proven(source / TEXT_NAME, table.text_sha256)
    if text != table_text(table):
        raise InputError(f"{_cut(source / TEXT_NAME)}: differs from table.json; expected the same")
    encoded = _proven(source / TOPOLOGY_NAME, table.topology_sha256)
    topology = decode_topology(encoded, source / TOPOLOGY_NAME)
    if not _is_of(table, topology):
        raise InputError(f"{_cut(source / TOPOLOGY_NAME)}: not the topology of table.json")
    programs = {
        path: parse_xml(_proven(source / path, sha256), str(source / path))
        for path, sha256 in table.programs.items()
    }
    _check_programs(source, table, programs)
    return Table(folder, table, topology, programs)


def _read_json(path: Path) -> LookupTable:
    data = _bytes(path)
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version != FORMAT:
            raise InputError(f"{_cut(path)}: format {version[:40]!r}, expected {FORMAT!r}")
        seals = _SEAL.findall(data)
        if len(seals) != 1 or _sha256(_SEAL.sub(_BLANK_SEAL, data)) != seals[0].decode():
            raise InputError(f"{_cut(path)}: damaged or edited, its checksum does not match")
        return msgspec.json.decode(data, type=LookupTable)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{_cut(path)}: {str(error)[:300]}") from None


def _check_programs(source: Path, table: LookupTable, programs: Mapping[str, Program]) -> None:
    """Refuse a JSON that says something else than its programs, of which each is proven again.

    A checksum says who wrote a program, not that it is right.
    """
    proofs: dict[tuple[str, int, int], int] = {}
    for entry, candidate in ((e, c) for e in table.entries for c in e.candidates):
        path, knobs = candidate.program, candidate.knobs
        if path is None or knobs is None:
            continue
        where, program = f"{_cut(source)}: candidate {candidate.name}", programs[path]
        claims = candidate.nchunks, candidate.in_place, candidate.out_of_place, entry.collective, 0
        facts = (
            *(program.nchunks, program.in_place, program.out_of_place),
            *(program.collective, program.group_size),
        )
        if claims != facts or program.ngpus != table.ranks:
            raise InputError(f"{where}: table.json and {path} disagree")
        plans = table.dialect == "mscclpp"  # whose groups have several thread blocks for one
        if not plans and candidate.sms not in (0, program.threadblocks):
            raise InputError(f"{where}: sms {candidate.sms}, {path} has {program.threadblocks}")
        if program.protocol != knobs.protocol:
            raise InputError(f"{where}: protocol {knobs.protocol}, its program {program.protocol}")
        key = (path, entry.root or 0, knobs.buffer_bytes)
        if key not in proofs:
            try:
                proofs[key] = max_safe_bytes(program, program_dialect(table.dialect), *key[1:])
            except InputError as error:
                raise InputError(f"{_cut(source / path)}: {str(error)[:300]}") from None
        if proofs[key] and not 0 < candidate.max_safe_bytes <= proofs[key]:
            raise InputError(
                f"{where}: max_safe_bytes {candidate.max_safe_bytes}, its program is safe up to "
                f"{proofs[key]} bytes only"
            )


def _proven(path: Path, sha256: str) -> bytes:
    data = _bytes(path)
    if _sha256(data) != sha256:
        raise InputError(f"{_cut(path)}: damaged, its checksum is not the one in table.json")
    return data


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError(f"{_cut(path)}: missing; expected a file of the table")
        if path.stat().st_size > MOST_XML_BYTES:
            raise InputError(f"{_cut(path)}: larger than {MOST_XML_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{_cut(path)}: {error.strerror}") from None


def _cut(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 160 else f"...{text[-157:]}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
