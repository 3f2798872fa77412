"""``tuccl verify``: proves that a program computes its collective and cannot hang."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl._native import Program, parse_xml
from tuccl._native import verify as verify_program
from tuccl.cli.arguments import add_json, add_root, collectives_of
from tuccl.cli.output import print_json, warn
from tuccl.errors import InputError
from tuccl.units import format_bytes

HELP = "prove that a program computes the collective, cannot deadlock and loads"
EXAMPLE = "tuccl verify allgather.xml --dialect fork"
_MOST_BYTES = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("program", metavar="F.xml", help="MSCCL XML")
    parser.add_argument("-c", "--collective", metavar="COLL", help="what it must compute")
    parser.add_argument("--dialect", default="executor", help="executor (default), rccl or fork")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify and print; 1 where the proof failed."""
    program = parse_xml(read_bytes(args.program), args.program)
    if args.collective and collectives_of(args.collective) != [program.collective]:
        raise InputError(
            f"{args.program}: computes {program.collective}, expected {args.collective[:40]}"
        )
    report = verify_program(program, args.dialect, root=args.root)
    if args.json:
        print_json(
            {
                "ok": report.ok,
                "file": args.program,
                "collective": program.collective,
                "dialect": args.dialect,
                "errors": [{"code": e.code, "message": e.message} for e in report.errors],
                "warnings": [{"code": w.code, "message": w.message} for w in report.warnings],
                "max_safe_bytes": report.max_safe_bytes or None,
            }
        )
        return 0 if report.ok else 1
    warn(w.message for w in report.warnings)
    for error in report.errors:
        print(f"{error.code}: {error.message}")
    if report.ok:
        print(summary(args.program, program, args.dialect, report.max_safe_bytes))
    return 0 if report.ok else 1


def summary(path: str, program: Program, dialect: str, max_safe_bytes: int) -> str:
    """Return the line that says what was proved."""
    limit = f", safe up to {format_bytes(max_safe_bytes)}" if max_safe_bytes else ""
    return f"{path}: ok: {program.collective} on {program.ngpus} ranks, {dialect}{limit}"


def read_bytes(path: str) -> bytes:
    """Return the content of a file of a sane size.

    Raises:
        InputError: it is missing, a folder, or larger than any program.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: {'no regular file' if file.exists() else 'no such file'}")
    if file.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path}: larger than {format_bytes(_MOST_BYTES)}; no program is")
    return file.read_bytes()
