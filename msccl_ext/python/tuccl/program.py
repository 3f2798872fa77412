"""The program (MSCCL's XML as a value), the knobs that it runs with, its files and its proof."""

from __future__ import annotations

import os
from typing import Literal, get_args

from tuccl import _native
from tuccl._native import (
    Finding,
    Gpu,
    Knobs,
    Program,
    Step,
    ThreadBlock,
    VerifyReport,
    default_buffer_bytes,
    element_bytes,
    max_safe_bytes,
    max_threads,
    parse_xml,
    replicate,
    to_xml,
    whole,
    with_period,
)
from tuccl.errors import InputError
from tuccl.files import read_bounded, write_file

__all__ = [
    "DIALECTS",
    "Dialect",
    "Finding",
    "Gpu",
    "Knobs",
    "Program",
    "Step",
    "ThreadBlock",
    "VerifyReport",
    "default_buffer_bytes",
    "element_bytes",
    "max_safe_bytes",
    "max_threads",
    "parse_xml",
    "read_program",
    "replicate",
    "to_xml",
    "verify",
    "whole",
    "with_period",
    "write_program",
]

MOST_XML_BYTES = 1 << 30
"""Bytes of a program's file that its readers take at most."""

Dialect = Literal["executor", "rccl", "fork"]
"""Whose XML a program is, MSCCL's executor, RCCL (legacy), or the original fork of NCCL."""
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


def read_program(path: str | os.PathLike[str]) -> Program:
    """Return the program in the MSCCL XML file ``path``; `verify` says whether it is right.

    Raises:
        InputError: the file cannot be read, or a runtime would refuse, overrun or misread it.
    """
    return parse_xml(read_bounded(path, MOST_XML_BYTES), os.fspath(path))


def write_program(
    program: Program, path: str | os.PathLike[str], dialect: str = "executor"
) -> None:
    """Write ``program`` to ``path`` as XML that ``dialect`` loads, whole or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> program = lower(msccl_default(load_profile("v100x4"), Collective("allgather", 4)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_program(program, Path(folder, "p.xml"))
    ...     read_program(Path(folder, "p.xml")).collective
    'allgather'

    Raises:
        InputError: the dialect cannot express the program, or the file cannot be written.
    """
    write_file(path, xml_text(program, dialect).encode())


def xml_text(program: Program, dialect: str, *, compact: bool | None = None) -> str:
    """Return ``program`` as XML that ``dialect`` loads.

    With ``compact`` a program's ranks that repeat others are not written: tuccl's executors alone
    read that. None: where MSCCL's readers do not take as many ranks.

    Raises:
        InputError: the dialect cannot express it, or it is larger than readers take.
    """
    text = to_xml(program, dialect, compact)
    if len(text) > MOST_XML_BYTES:
        raise InputError(
            f"{program.name[:60]}: {len(text) / 1e6:.0f} MB of XML, ranks read at most "
            f"{MOST_XML_BYTES / 1e6:.0f} MB; expected fewer chunks or channels"
        )
    return text


def verify(
    program: Program | str | os.PathLike[str],
    dialect: str = "executor",
    root: int = 0,
    buffer_bytes: int = 0,
) -> VerifyReport:
    """Return a proof that ``program`` is right as ``dialect`` runs it, or what is wrong.

    Proven are the result on every rank, that nothing deadlocks, that no two steps race, and the
    limits of the dialect. A bad program raises nothing: ``report.ok`` is False and
    ``report.errors`` say where.

    Args:
        program: The program, or the path of its file.
        dialect: One of `DIALECTS`.
        root: The rank that a broadcast, reduce, gather or scatter starts or ends at.
        buffer_bytes: Bytes of a connection's buffer; 0: the protocol's default. With it
            ``report.max_safe_bytes`` is the largest whole array in bytes that cannot deadlock for
            want of buffers (0: every size is safe).

    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> program = lower(msccl_default(load_profile("v100x4"), Collective("allgather", 4)))
    >>> verify(program).ok
    True

    Raises:
        InputError: there is no such dialect.
    """
    proven = program if isinstance(program, Program) else read_program(program)
    return _native.verify(proven, dialect, root, buffer_bytes)
