"""``tuccl verify``: proves that a program computes its collective and cannot hang."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tuccl.cli.arguments import add_json, add_root, one_collective_of
from tuccl.cli.output import print_json, warn
from tuccl.errors import InputError, Stuck
from tuccl.mscclpp import ExecutionPlan, is_plan
from tuccl.program import MOST_XML_BYTES, Finding, Program, VerifyReport, parse_xml
from tuccl.program import verify as verify_program
from tuccl.units import format_bytes, parse_size

EXAMPLE = "tuccl verify allgather.xml --dialect fork"
_ORDERS = 3  # in which a plan is run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "program",
        metavar="FILE",
        help="MSCCL XML, or an MSCCL++ plan (JSON), recognized by content",
    )
    parser.add_argument(
        "-c",
        "--collective",
        metavar="COLL",
        help="collective that it must compute; exit 1 if it does another",
    )
    parser.add_argument(
        "--dialect",
        default="executor",
        help="dialect of the XML: executor (default), rccl (legacy) or fork",
    )
    parser.add_argument(
        "-s",
        "--size",
        metavar="SIZE",
        help="then run an MSCCL++ plan on the CPU with a call of this size",
    )
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify and print; 1 where the proof failed."""
    data = read_bytes(args.program)
    program: Program | ExecutionPlan
    if is_plan(data):
        program, dialect = ExecutionPlan.parse(data, args.program), "mscclpp"
        collective = program.collective.replace("reducescatter", "reduce-scatter")
        report = program.verify(root=args.root)
        line = f"{args.program}: ok: {collective} on {len(program.gpus)} ranks, {dialect}"
        if args.size and report.ok:
            nbytes = parse_size(args.size)
            if not program.min_message_size <= nbytes <= program.max_message_size:
                raise InputError(
                    f"{args.program}: -s {args.size}: the plan is for "
                    f"{program.min_message_size} to {program.max_message_size} bytes"
                )
            report = _run(program, nbytes, args.root)
            line += f", {args.size} runs right"
    elif args.size:
        raise InputError("-s: runs plans of MSCCL++; run a program with `tuccl bench --check`")
    else:
        program, dialect = parse_xml(data, args.program), args.dialect
        collective = program.collective
        report = verify_program(program, dialect, root=args.root)
        line = summary(args.program, program, dialect, report.max_safe_bytes)
    if args.collective and one_collective_of(args.collective) != collective:
        wrong = f"computes {collective}, expected {args.collective}"
        report = VerifyReport([Finding("wrong-collective", wrong), *report.errors], report.warnings)
    if args.json:
        print_json(_json(args.program, collective, dialect, report))
        return 0 if report.ok else 1
    warn(w.message for w in report.warnings)
    for error in report.errors:
        print(f"{error.code}: {error.message}")
    if report.ok:
        print(line)
    return 0 if report.ok else 1


def _run(plan: ExecutionPlan, nbytes: int, root: int) -> VerifyReport:
    """Run the plan in some orders of events; what goes wrong becomes an error."""
    errors = []
    for seed in range(_ORDERS):
        try:
            result = plan.run(nbytes, root=root, seed=seed)
        except Stuck as stuck:
            errors.append(Finding("deadlock", str(stuck)))
        else:
            if result.wrong:
                errors.append(Finding("wrong-result", f"wrong in a run: {result.first_wrong}"))
    return VerifyReport(errors)


def _json(path: str, collective: str, dialect: str, report: VerifyReport) -> dict[str, object]:
    return {
        "ok": report.ok,
        "file": path,
        "collective": collective,
        "dialect": dialect,
        "errors": [{"code": e.code, "message": e.message} for e in report.errors],
        "warnings": [{"code": w.code, "message": w.message} for w in report.warnings],
        "max_safe_bytes": report.max_safe_bytes or None,
    }


def summary(path: str, program: Program, dialect: str, max_safe_bytes: int) -> str:
    """Return the line that says what was proved."""
    limit = f", safe up to {format_bytes(max_safe_bytes)}" if max_safe_bytes else ""
    groups = f" in groups of {program.group_size}" if program.group_size else ""
    return f"{path}: ok: {program.collective} on {program.ngpus} ranks{groups}, {dialect}{limit}"


def read_bytes(path: str) -> bytes:
    """Return the content of a file of a sane size.

    Raises:
        InputError: it is missing, a folder, larger than any program, or another file of tuccl.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: {'no regular file' if file.exists() else 'no such file'}")
    if file.stat().st_size > MOST_XML_BYTES:
        raise InputError(f"{path}: larger than {format_bytes(MOST_XML_BYTES)}; no program is")
    data = file.read_bytes()
    if other := re.match(rb'\s*\{\s*"format":\s*"(tuccl-[a-z-]+)/', data):
        raise InputError(f"{path}: a {other[1].decode()} file; expected a program or a plan")
    return data
