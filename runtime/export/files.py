"""A table as the files that an unmodified runtime loads.

These are XML for MSCCL, CSV for NCCL's tuners, plans for MSCCL++.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from tuccl.errors import InputError
from tuccl.program import DIALECTS, Program, parse_xml, to_xml, verify
from tuccl.runtime.export.load import Load, load_of
from tuccl.runtime.export.mscclpp import (
    sources_of_program,
    sources_of_switch,
    sources_of_table,
)
from tuccl.runtime.export.nccl import CSV_FILES, csv_notes, csv_text
from tuccl.runtime.export.plan_files import PlanTable, plan_contents
from tuccl.runtime.export.rules import Rule, export_rules
from tuccl.runtime.table.atomic_dir import replace_directory
from tuccl.runtime.table.store import Table, load_table
from tuccl.runtime.table.supported_knobs import fork_threads
from tuccl.synth.lowering.limits import MOST_READ_GPUS
from tuccl.topology import Topology, signature

EXPORTS = (*DIALECTS, *CSV_FILES, "mscclpp")
_FORK_CONFIG = "msccl-config.xml"
_MOST_PATH_BYTES = 254
_OWN_FILE = re.compile(
    r"tuccl-[0-9a-f]*-?\d{3}-[a-z0-9-]+\.(xml|json)|msccl-config\.xml|ncclx?_tuner\.csv"
    r"|tuccl_plans\.py|selection\.json|__pycache__|nccl_communicators\.yaml"
)


@dataclass(frozen=True)
class Export:
    """The files written, in the order in which the runtime reads them, and what it cannot honour.

    ``buffers`` holds the buffer bytes of each protocol in use, ``channels`` the most channels of a
    program. ``config`` is the fork's list of the files, an alternative to naming each. ``load`` is
    what MSCCL programs take each rank to load.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...]
    buffers: Mapping[str, int]
    signature: str
    config: Path | None = None
    channels: int = 0
    load: Load | None = None


def export(
    source: Table | Program | str | os.PathLike[str],
    dialect: str,
    path: str | os.PathLike[str],
    *,
    prefer: str | None = None,
    share_scratch: bool = False,
    nodes: int = 1,
    root: int = 0,
) -> Export:
    """Write a table, or one program, as the folder ``path`` that a runtime loads, in one step.

    For any call at most one file fits; where the runtime's own default is the choice none does.
    Each program is proven in the dialect before it is written. An older export at ``path`` is
    replaced, anything else there is left alone and refused.

    Args:
        source: A table or its folder; for ``mscclpp`` also a program.
        dialect: ``executor``, ``rccl`` or ``fork``: XML of MSCCL; ``nccl`` (NVIDIA's example tuner)
            or ``ncclx``: a CSV file, of a table of NCCL's own choices; ``mscclpp``: execution
            plans with a Python module that selects them.
        path: The folder.
        prefer: speed or sms, instead of the table's own order.
        share_scratch: Let MSCCL++'s LL plans use one scratch (docs/howto/mscclpp.md).
        nodes: Hosts of a program's ranks.
        root: Of a program that is a broadcast or reduce.

    >>> import tempfile, tuccl
    >>> found = tuccl.synthesize(tuccl.profile("v100x4"), "allgather", "1M", method="ring")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plans = tuccl.export(found.best.program, "mscclpp", folder + "/plans")
    >>> "tuccl_plans.py" in [file.name for file in plans.files]
    True

    Raises:
        InputError: the table, dialect or preference is bad, or ``path`` holds something else.
        Infeasible: MSCCL++ cannot run the program.
    """
    if dialect not in EXPORTS:
        raise InputError(f"dialect {dialect[:20]!r}: expected one of {', '.join(EXPORTS)}")
    out = Path(path)
    _check_target(out)
    if isinstance(source, Program):
        if dialect != "mscclpp":
            raise InputError(f"dialect {dialect}: expected a table; write_program writes a program")
        return _export_program(source, out, nodes, root, share_scratch)
    stored = (source if isinstance(source, Table) else load_table(source)).preferring(prefer)
    _check_kind(stored, dialect)
    if dialect in CSV_FILES:
        return export_csv([stored], dialect, out)
    if dialect == "mscclpp":
        return _export_plans(stored, out, share_scratch)
    chosen = export_rules(stored, dialect)
    contents = {
        _name(number, rule): _written(rule, dialect, chosen.buffers[rule.knobs.protocol])
        for number, rule in enumerate(chosen.rules)
    }
    if (problem := double_match(contents, dialect)) is not None:
        raise InputError(f"{stored.folder}: {problem}")
    files = tuple(out / name for name in sorted(contents))
    notes = chosen.notes if files else (*chosen.notes, "no program: every call gets the default")
    config, listed = None, {}
    if dialect == "fork" and files:
        if (why := _unlistable(files)) is None:
            config = out / _FORK_CONFIG
            listed = {config.name: _fork_config(contents, out.resolve())}
        else:
            notes = (*notes, f"no {_FORK_CONFIG}: {why}; name the files in MSCCL_XML_FILES")
    _put(out, contents | listed)
    channels = max((rule.program.nchannels for rule in chosen.rules), default=0)
    if dialect == "executor" and channels > 1:
        variable = f"NCCL_MIN_NCHANNELS={channels}"
        note = (
            f"the executor's releases for NCCL 2.17 and 2.18 need {variable}; `tuccl run` sets it"
        )
        notes = (*notes, note)
    load = load_of(contents, [rule.program for rule in chosen.rules], dialect)
    return Export(files, notes, chosen.buffers, stored.lookup.signature, config, channels, load)


def _check_kind(stored: Table, dialect: str) -> None:
    """Programs run in MSCCL, choices of NCCL's own in NCCL."""
    is_nccl = stored.lookup.dialect == "nccl"
    if stored.lookup.dialect == "mscclpp" and dialect != "mscclpp":
        raise InputError(f"{stored.folder}: tuned for MSCCL++; expected --dialect mscclpp")
    if is_nccl != (dialect in CSV_FILES):
        holds = "choices of NCCL's own" if is_nccl else "MSCCL programs"
        expected = ", ".join(CSV_FILES if is_nccl else (*DIALECTS, "mscclpp"))
        raise InputError(f"{stored.folder}: holds {holds}; expected --dialect {expected}")


def export_csv(tables: Sequence[Table], dialect: str, path: str | os.PathLike[str]) -> Export:
    """Write tables of NCCL's own choices, each for its number of hosts and ranks, as one file.

    Args:
        tables: One for a shape.
        dialect: ``nccl`` or ``ncclx``, as for `export`.
        path: The folder.

    Raises:
        InputError: a table has programs, or ``path`` holds something else.
    """
    for stored in tables:
        _check_kind(stored, dialect)
    lookups, name = [stored.lookup for stored in tables], CSV_FILES[dialect]
    notes = dict.fromkeys(note for lookup in lookups for note in csv_notes(lookup, dialect))
    signature = lookups[0].signature if lookups else ""
    return export_text(name, csv_text(lookups, dialect), path, notes, signature)


def export_text(
    name: str, text: str, path: str | os.PathLike[str], notes: Iterable[str], signature: str
) -> Export:
    """Write one file ``name`` as the folder ``path``, in one step.

    Raises:
        InputError: ``path`` holds something else.
    """
    out = Path(path)
    _check_target(out)
    _put(out, {name: text.encode()})
    return Export((out / name,), tuple(notes), {}, signature)


def _export_plans(stored: Table, out: Path, share_scratch: bool) -> Export:
    notes: list[str] = []
    sources, lookup = sources_of_table(stored, notes), stored.lookup
    table = PlanTable(sources, lookup.ranks, lookup.hosts, lookup.signature[:8])
    exported = export_plans([table], out, table.ranks, notes, share_scratch=share_scratch)
    return replace(exported, signature=lookup.signature)


def export_plans(
    tables: Sequence[PlanTable],
    path: str | os.PathLike[str],
    ranks: int,
    notes: Sequence[str] = (),
    *,
    share_scratch: bool = False,
) -> Export:
    """Write the plans of tables as the folder ``path``, in one step.

    Args:
        tables: Each has communicators of its own.
        path: The folder.
        ranks: Of the job.
        notes: What has been left out so far.
        share_scratch: As in `export`.

    Raises:
        InputError: ``path`` holds something else.
        Infeasible: MSCCL++ cannot run the plans.
    """
    out = Path(path)
    _check_target(out)
    contents, more = plan_contents(tables, ranks, share_scratch=share_scratch)
    _put(out, contents)
    return Export(tuple(out / name for name in sorted(contents)), (*notes, *more), {}, "")


def _export_program(
    program: Program, out: Path, hosts: int, root: int, share_scratch: bool
) -> Export:
    """Write a plan for each placement that the program claims, in its protocol and sizes."""
    sources = sources_of_program(program, root)
    digest = hashlib.sha256(to_xml(program).encode()).hexdigest()
    table = PlanTable(sources, program.ngpus, hosts, digest[:8])
    return export_plans([table], out, table.ranks, share_scratch=share_scratch)


def export_switch(
    topology: Topology, collectives: Sequence[str], out: Path, *, share_scratch: bool = False
) -> Export:
    """Write plans of MSCCL++ in which the NVLink switch of one host adds up and multicasts (NVLS).

    Raises:
        InputError: ``out`` holds something else.
        Infeasible: the machine has no such switch, or it does not do a collective.
    """
    sources, name = sources_of_switch(topology, collectives), signature(topology)
    table = PlanTable(sources, topology.ranks, 1, name[:8])
    exported = export_plans([table], out, table.ranks, share_scratch=share_scratch)
    return replace(exported, signature=name)


def _unlistable(files: Sequence[Path]) -> str | None:
    """Return why the fork cannot read the files' paths from its list, None where it can."""
    longest = max(len(str(file.resolve()).encode()) for file in files)
    if longest > _MOST_PATH_BYTES:
        return f"a path has {longest} bytes, and the fork's array holds {_MOST_PATH_BYTES}"
    if any(c == '"' or not c.isprintable() for c in str(files[0].parent.resolve())):
        return "the folder's name has a quote or a control character"
    return None


def _fork_config(contents: Mapping[str, bytes], out: Path) -> bytes:
    """The fork's MSCCL_CONFIG: the files with their sizes and protocol (docs/reference/msccl.md).

    Paths stand as they are: its reader knows no escapes.
    """
    loads = []
    for name, text in sorted(contents.items()):
        program = parse_xml(text, name)
        sizes = f'minbytes="{program.min_bytes}" maxbytes="{program.max_bytes}"'
        loads.append(f'  <load path="{out / name}" {sizes} proto="{program.protocol}"/>\n')
    return f"<msccl_algos>\n{''.join(loads)}</msccl_algos>\n".encode()


def _name(number: int, rule: Rule) -> str:
    top = "max" if rule.max_bytes is None else str(rule.max_bytes - 1)
    placement = {(True, True): "any", (True, False): "in", (False, True): "out"}
    where = placement[rule.in_place, rule.out_of_place]
    return f"tuccl-{number:03d}-{rule.collective}-{where}-{rule.min_bytes}-{top}.xml"


def _written(rule: Rule, dialect: str, buffer_bytes: int) -> bytes:
    """The program's text with the rule's calls in its first line, proven as it stands."""
    program = _program(rule, dialect)
    if program.ngpus > MOST_READ_GPUS:
        raise InputError(
            f"{rule.text}: {program.ngpus} GPUs, and MSCCL's readers take {MOST_READ_GPUS}; "
            "tuccl's own communicators load the table"
        )
    text = to_xml(program, dialect).encode()
    report = verify(parse_xml(text, rule.text), dialect, 0, buffer_bytes)
    if not report.ok:
        raise InputError(f"{rule.text}: {report.errors[0].message}; not exported")
    return text


def _program(rule: Rule, dialect: str) -> Program:
    if dialect == "fork":
        max_bytes, threads = rule.max_bytes or 0, fork_threads(rule.knobs) or 0
    else:  # the last size that fits; 0 is no limit
        max_bytes, threads = 0 if rule.max_bytes is None else rule.max_bytes - 1, 0
    return rule.program.replace(
        name=f"tuccl {rule.candidate.name}"[:63],
        in_place=rule.in_place,
        out_of_place=rule.out_of_place,
        min_bytes=rule.min_bytes,
        max_bytes=max_bytes,
        nthreads=threads,
    )


def double_match(contents: Mapping[str, bytes], dialect: str) -> str | None:
    """Return which two files fit one call, or None: read back from what is to be written."""
    programs = {name: parse_xml(text, name) for name, text in sorted(contents.items())}
    for (a, first), (b, second) in combinations(programs.items(), 2):
        if first.collective == second.collective and _meet(first, second, dialect):
            return f"{a} and {b} fit the same calls"
    return None


def _meet(a: Program, b: Program, dialect: str) -> bool:
    placed = (a.in_place and b.in_place) or (a.out_of_place and b.out_of_place)
    (a_low, a_high), (b_low, b_high) = _sizes(a, dialect), _sizes(b, dialect)
    return placed and a_low <= b_high and b_low <= a_high


def _sizes(program: Program, dialect: str) -> tuple[float, float]:
    """First and last size that a program's own attributes claim (docs/reference/msccl.md)."""
    low, high = program.min_bytes or 0, program.max_bytes or 0
    if dialect == "fork":
        return low, high - 1
    return low, high or float("inf")


def _check_target(out: Path) -> None:
    """One stray file makes the built-in scheduler give up the folder (docs/reference/msccl.md)."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: a file stands there; expected a folder or none")
    for path in sorted(out.iterdir()):
        if not _OWN_FILE.fullmatch(path.name):
            raise InputError(
                f"{out}: holds {path.name[:60]!r}, no export of tuccl's, and a stray file breaks "
                "MSCCL's scheduler; name an empty folder"
            )


def _put(out: Path, contents: Mapping[str, bytes]) -> None:
    """Write the folder in one step; leave it alone where it already is what it should be."""
    out = out.resolve()
    try:
        if (
            out.is_dir()
            and {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == contents
        ):
            return
        replace_directory(out, contents)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
