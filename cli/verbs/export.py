"""``tuccl export``: the table as files that an unmodified runtime loads."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import (
    add_json,
    add_prefer,
    add_root,
    collectives_of,
    topology_of,
)
from tuccl.cli.output import print_json, say, warn
from tuccl.errors import InputError
from tuccl.groups.export import MEGATRON, export_job
from tuccl.groups.job import is_job, load_job
from tuccl.program import read_program
from tuccl.runtime.export import export, export_switch

EXAMPLE = "tuccl export table/ --dialect executor -o algorithms/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "table",
        metavar="TABLE",
        help="a table, or a job's tables (nccl, ncclx, megatron, mscclpp), or for mscclpp a "
        "program's XML",
    )
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default), rccl (legacy) or fork of a table of programs; "
        "nccl (NVIDIA's example tuner) or ncclx of one of NCCL's own choices; "
        "mscclpp: execution plans of MSCCL++, with a Python module that selects them; megatron: "
        "Megatron-LM's --nccl-communicator-config-path, of a job's tables with --share",
    )
    parser.add_argument(
        "--share",
        metavar="KIND=SMS,...",
        help="of a job's tables: choices that occupy at most so many SMs, by kind, as dp=4,tp=16",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="mscclpp: hosts that the ranks of a program are on (default 1)",
    )
    add_root(parser)
    parser.add_argument(
        "--share-scratch",
        action="store_true",
        help="mscclpp: LL plans share one scratch, whatever buffers calls have; only for jobs that "
        "run no other packet algorithms of MSCCL++",
    )
    parser.add_argument(
        "--switch",
        metavar="COLLECTIVES",
        help="mscclpp: TABLE is a topology of one host, whose NVLink switch adds up and multicasts "
        "(NVLS) for allreduce, allgather, reduce-scatter; no tuning is needed",
    )
    add_prefer(parser, "default: the table's order")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Export and print the files."""
    path, out, share_scratch = Path(args.table), Path(args.output), args.share_scratch
    if args.switch is not None:
        if args.dialect != "mscclpp":
            raise InputError("--switch is for --dialect mscclpp")
        collectives = collectives_of(args.switch)
        topology = topology_of(args.table)
        exported = export_switch(topology, collectives, out, share_scratch=share_scratch)
    elif is_job(path):
        if share_scratch:
            raise InputError("--share-scratch: expected one table; a job's groups may call at once")
        shares = shares_of(args.share)
        exported = export_job(load_job(path), args.dialect, out, prefer=args.prefer, shares=shares)
    elif args.share or args.dialect == MEGATRON:
        raise InputError(f"{path}: is no job's tables; expected what tune --layout writes")
    else:
        is_program = path.is_file() and args.dialect == "mscclpp"
        exported = export(
            read_program(path) if is_program else path,
            args.dialect,
            out,
            prefer=args.prefer,
            share_scratch=share_scratch,
            nodes=args.nodes,
            root=args.root,
        )
    warn(exported.notes)
    if args.json:
        config = None if exported.config is None else str(exported.config)
        files = [str(f) for f in exported.files]
        notes, load = list(exported.notes), exported.load
        print_json({"files": files, "config": config, "notes": notes, "load": load})
    else:
        for file in exported.files:
            print(file)
        if exported.config is not None:
            print(exported.config)
        if exported.load is not None:
            say(exported.load.text)
    return 0


def shares_of(text: str | None) -> dict[str, int]:
    """Return the SMs by kind of a text like "dp=4,tp=16".

    Raises:
        InputError: it is none.
    """
    shares = {}
    for word in text.split(",") if text else ():
        kind, _, sms = word.partition("=")
        if not kind or not sms.isdecimal() or kind in shares:
            raise InputError(f"--share {word[:40]!r}: expected KIND=SMS, each kind once, as dp=4")
        shares[kind] = int(sms)
    return shares
