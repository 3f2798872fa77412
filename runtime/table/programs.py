"""Programs as files of a table: proven, named by their content."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import cached_property

import msgspec

from tuccl.errors import InputError
from tuccl.program import Knobs, Program, default_buffer_bytes, max_safe_bytes, parse_xml, xml_text
from tuccl.runtime.table.entry import Candidate, KnobValues, Source, Statistics
from tuccl.synth.lowering.limits import fork_end
from tuccl.synth.model.problem import ScheduleChoice

ALGORITHMS = "algorithms"
_NO_CHOICE = ScheduleChoice("", "", 0)


class ProgramFile(msgspec.Struct, frozen=True, dict=True):
    """A proven program as the table stores it: path within the folder, text, dialect.

    ``max_safe_bytes`` (0: every size) holds with the protocol's default buffer.
    """

    path: str
    xml: str
    dialect: str
    root: int
    max_safe_bytes: int

    @cached_property
    def program(self) -> Program:
        """The program that the text describes."""
        return parse_xml(self.content, self.path)

    @property
    def content(self) -> bytes:
        """The bytes of the file; comments of others may be no UTF-8."""
        return self.xml.encode("utf-8", "surrogateescape")

    @property
    def sha256(self) -> str:
        """Checksum of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def _safe(self) -> dict[int, int]:
        default = default_buffer_bytes(self.program.protocol, self.dialect)
        return {default: self.max_safe_bytes}

    def max_safe_at(self, buffer_bytes: int) -> int:
        """Return the largest size in bytes that is safe with a buffer; 0 is every size."""
        if buffer_bytes not in self._safe:
            safe = max_safe_bytes(self.program, self.dialect, self.root, buffer_bytes)
            self._safe[buffer_bytes] = safe
        return self._safe[buffer_bytes]


def program_dialect(dialect: str) -> str:
    """Return the dialect in which a table of `dialect` keeps its programs."""
    return "executor" if dialect == "mscclpp" else dialect


def program_file(program: Program, dialect: str = "executor", root: int = 0) -> ProgramFile:
    """Return ``program`` as a file of the table, proven, named by its collective and content.

    Equal programs get equal names, so that entries share files. The program's own name is
    dropped, its size range becomes all the sizes at which it is safe. For ``fork`` the program
    must claim one placement: see ``placements``.

    Raises:
        InputError: it fails to verify, or the dialect cannot express it.
    """
    if program.group_size:
        raise InputError("a program of groups: tables hold those of a communicator")
    dialect = program_dialect(dialect)
    safe = max_safe_bytes(program, dialect, root)
    top = safe
    if dialect == "fork":  # half open, and 0 is an empty range
        top = min(safe + 1 if safe else 1 << 40, fork_end(program, 1 << 29) or 1 << 40)
    plain = program.replace(name=program.collective, min_bytes=0, max_bytes=top)
    # Tuccl's executors read the ranks of a period, and the scheduler plugin writes all for MSCCL.
    xml = xml_text(plain, dialect, compact=dialect == "executor")
    checksum = hashlib.sha256(xml.encode()).hexdigest()
    path = f"{ALGORITHMS}/{program.collective}-{checksum[:16]}.xml"
    return ProgramFile(path, xml, dialect, root, safe)


def placements(program: Program, dialect: str) -> tuple[Program, ...]:
    """Return the programs whose files say in ``dialect`` what ``program`` claims.

    The fork knows in place or out of place, not both (docs/reference/msccl.md): two programs.
    """
    if dialect != "fork" or not (program.in_place and program.out_of_place):
        return (program,)
    return program.replace(in_place=False), program.replace(out_of_place=False)


def program_candidate(
    file: ProgramFile,
    knobs: Knobs,
    *,
    on: Source,
    stats: Statistics,
    name: str | None = None,
    choice: ScheduleChoice | None = None,
    notes: tuple[str, ...] = (),
) -> Candidate:
    """Return the candidate that runs ``file`` with ``knobs``, up to the size that is safe.

    Without a ``name`` it is made of the method, the program's checksum and the knobs.
    """
    program, choice = file.program, choice or _NO_CHOICE
    return Candidate(
        name=name or _candidate_name(choice.method, file, knobs),
        on=on,
        stats=stats,
        program=file.path,
        sha256=file.sha256,
        nchunks=program.nchunks,
        in_place=program.in_place,
        out_of_place=program.out_of_place,
        max_safe_bytes=file.max_safe_at(knobs.buffer_bytes),
        sketch=choice.sketch,
        method=choice.method,
        chunks_per_rank=choice.chunks_per_rank,
        sms=program.threadblocks,
        knobs=KnobValues.of(knobs),
        notes=notes,
    )


def _candidate_name(method: str, file: ProgramFile, knobs: Knobs) -> str:
    return (
        f"{method or 'program'}-{file.sha256[:8]}-{knobs.protocol}-c{knobs.channels}"
        f"-t{knobs.threads}-b{knobs.buffer_bytes}"
    )


def sent_chunks(program: Program, host_of: Mapping[int, str]) -> Counter[tuple[str, str]]:
    """Return the chunks that ``program`` sends from each host to each other one."""
    sent: Counter[tuple[str, str]] = Counter()
    for (src, dst), chunks in program.sent.items():
        if host_of[src] != host_of[dst]:
            sent[host_of[src], host_of[dst]] += chunks
    return sent
