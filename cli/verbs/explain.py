"""``tuccl explain``: the decisions of a table and of the plugin that loads it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tuccl.cli.arguments import (
    add_collective,
    add_json,
    add_prefer,
    add_root,
    one_collective_of,
)
from tuccl.cli.layouts import ranks_text
from tuccl.cli.output import columns, print_json, print_json_lines, say, warn
from tuccl.cli.studies import add_study, studies_of
from tuccl.errors import InputError, Unavailable
from tuccl.groups.job import JobEntry, JobTables, is_job, load_job
from tuccl.runtime import Candidate, Entry, LookupTable, load_table, select, table_preferring
from tuccl.runtime import explain as explain_table
from tuccl.runtime.jobs import PluginAnswer, check_plugin
from tuccl.units import format_bytes, parse_size

if TYPE_CHECKING:
    from tuccl.runtime import Table
    from tuccl.sketches import Sketch
    from tuccl.tuning import StoredStudy

EXAMPLE = "tuccl explain table/; tuccl explain table/ -c allgather -s 64M"
DIMENSIONS = ("method", "protocol")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "table", metavar="TABLE", help="folder of a table, as `tuccl tune` writes it"
    )
    add_collective(parser, required=False)
    parser.add_argument("-s", "--size", metavar="SIZE", help="one call of this size only")
    parser.add_argument("--in-place", action="store_true", help="with -s: the call is in place")
    add_root(parser)
    add_prefer(parser, "default: the table's order, which the plugin follows too")
    parser.add_argument(
        "--rank", type=int, metavar="R", help="of a job's tables: the groups of this rank"
    )
    parser.add_argument("--group", metavar="KIND", help="of a job's tables: those of this kind")
    add_study(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the decisions; 1 where the plugin decides something else than the table."""
    if (args.size is None) != (args.collective is None):
        raise InputError("one call: expected -c COLL and -s SIZE together")
    if args.study is not None and args.size is None:
        raise InputError("--study: expected -c COLL and -s SIZE, one call")
    folder = Path(args.table)
    for option, value in (("--rank", args.rank), ("--group", args.group)):
        if value is not None and not is_job(folder):
            raise InputError(
                f"{option}: no job.json in {folder}; name a job's tables (tune --layout)"
            )
    if is_job(folder):
        return explain_rank(args, load_job(folder))
    loaded = load_table(folder)
    table = loaded.lookup
    if args.prefer is not None:
        table = table_preferring(table, args.prefer)
    if args.size is not None:
        return explain_call(args, table, loaded)
    answers = plugin_answers(folder, table, args.prefer is None)
    if args.json:
        print_json_lines(as_json(answer) for answer in answers)
    else:
        if table.tuned_on:
            print(f"# times {table.tuned_on}")
        print("# >: another choice than for the smaller sizes in the row above")
        print(as_columns(answers))
        print("\n".join(["", *switch_lines(answers), *plugin_lines(answers)]))
    disagreements = [answer for answer in answers if not answer.agrees]
    for answer in disagreements:
        sizes = " and ".join(str(n) for n in answer.sizes)
        row = f"{answer.row.collective} {answer.row.placement} of {sizes} bytes"
        say(f"{row}: the plugin chooses {answer.plugin}, the table {answer.row.candidate}")
    return 1 if disagreements else 0


def explain_rank(args: argparse.Namespace, job: JobTables) -> int:
    """Print the groups of a rank, or of all: who is in them, beside whom, what they run."""
    if args.rank is not None and not 0 <= args.rank < job.groups.ranks:
        raise InputError(f"--rank {args.rank}: the job has ranks 0 to {job.groups.ranks - 1}")
    if args.size is not None or args.prefer is not None:
        raise InputError(
            f"{args.table}: -c, -s and --prefer are for one table, as those in {args.table}/tables"
        )
    found = (
        [(entry, job.members(entry)) for entry in job.entries]
        if args.rank is None
        else job.of_rank(args.rank)
    )
    if args.group is not None:
        job.groups.kind(args.group)  # refuses a kind that is none
        found = [each for each in found if each[0].kind == args.group]
    rows = [group_facts(job, entry, members) for entry, members in found]
    if args.json:
        print_json(
            {"machine": job.topology.name, "rank": args.rank, "kind": args.group, "groups": rows}
        )
        return 0
    of = "tables" if args.rank is None else f"groups of rank {args.rank}"
    of += "" if args.group is None else f" of {args.group}"
    print(f"# {job.topology.name}: {of}; times of choices are simulated, all groups at once")
    for row in rows:
        print(f"{row['kind']}: ranks {ranks_text(row['members'])}; {row['company']}")
        print(f"  table {row['table']}, key {row['key']}, alike: {row['alike']} groups")
        for choice in row["choices"]:
            print(f"  {choice}")
    if not rows:
        say("no such group has a table")
    return 0


def group_facts(job: JobTables, entry: JobEntry, members: Sequence[int]) -> dict[str, Any]:
    """Return a group's table, its company and what it runs by size."""
    company = f"timed with {entry.concurrent} groups of the kind at once"
    if entry.concurrent == 1:
        company = "timed alone: it shares no link with others of its kind"
    beside = ", ".join(entry.beside)
    beside = f", chosen beside {beside} over and over" if entry.repeats else f", beside {beside}"
    return {
        "kind": entry.kind,
        "members": list(members),
        "company": company + (beside if entry.beside else ""),
        "table": str(job.place(entry)),
        "key": entry.key,
        "alike": len(entry.groups),
        "choices": [
            f"{row.collective} from {format_bytes(row.min_bytes)}, {row.placement}: {row.candidate}"
            + (f", {row.gain:.2f}x the default" if row.gain else "")
            for row in explain_table(job.table(entry).lookup)
        ],
    }


def plugin_answers(folder: Path, table: LookupTable, same_order: bool) -> tuple[PluginAnswer, ...]:
    """Return the rows with the plugin's answers, where it reads the same order and is there."""
    why = "another order than the table's"
    if same_order:
        try:
            return check_plugin(folder, table)
        except Unavailable as error:
            warn([f"the plugin is left out: {error}"])
            why = "not installed"
    return tuple(PluginAnswer(row, None, (), True, why) for row in explain_table(table))


def explain_call(args: argparse.Namespace, table: LookupTable, loaded: Table) -> int:
    """Print the choice for one call."""
    from tuccl.eval.choice_analysis import sketch_of

    collective = one_collective_of(args.collective)
    nbytes = parse_size(args.size)
    choice = select(table, collective, nbytes, in_place=args.in_place, root=args.root)
    candidates = () if choice.entry is None else choice.entry.candidates
    study = None if choice.entry is None else study_of(args, table, choice.entry)
    sketch = sketch_of(choice.candidate, loaded, nbytes)
    if args.json:
        row = {"candidate": choice.candidate, "sms": choice.candidate.sms, "reason": choice.reason}
        tried = None if study is None else study_json(study)
        known = {"candidates": candidates, "study": tried, "tuned_on": table.tuned_on}
        print_json({**row, "sketch": None if sketch is None else sketch_json(sketch), **known})
        return 0
    print(f"{choice.candidate.name}: {choice.reason}")
    if candidates:
        print(f"# times {table.tuned_on}" if table.tuned_on else "#")
        print("# >: the choice")
        print(candidate_columns(choice.candidate, candidates))
    if sketch is not None:
        print("\n".join(sketch_lines(sketch)))
    if study is not None:
        print("\n".join(study_lines(study)))
    return 0


def sketch_json(sketch: Sketch) -> dict[str, object]:
    """Return what the sketch leaves of the full mesh for ``--json``."""
    from tuccl.cli.verbs.sketch import facts

    return facts(sketch, None)


def sketch_lines(sketch: Sketch) -> Iterator[str]:
    """Yield what the sketch leaves of the full mesh, and an example of each reason to prune."""
    from tuccl.cli.verbs.sketch import stages

    yield f"# sketch {sketch.name}: {len(sketch.links)} links; pruned {stages(sketch)}"
    first = {p.stage: p for p in reversed(sketch.pruned)}
    for stage, pruned in sorted(first.items()):
        yield f"#   {stage}, like {pruned.src} to {pruned.dst}: {pruned.reason}"


def study_of(args: argparse.Namespace, table: LookupTable, entry: Entry) -> StoredStudy | None:
    """Return what the search tried at the size at which ``entry`` was tuned, if that is known."""
    from tuccl.tuning import tuned_sizes

    sizes = [n for n in tuned_sizes(table, entry.collective, entry.root) if entry.covers(n)]
    studies = studies_of(args.study, Path(args.table), table)
    return next(
        (s for s in studies if s.collective == entry.collective and s.nbytes in sizes), None
    )


def study_json(study: StoredStudy) -> dict[str, object]:
    """Return what the search tried for ``--json``."""
    from tuccl.tuning import importances

    best = study.best_so_far
    return {
        "size": study.nbytes,
        "evaluations": len(study.evaluations),
        "failed": sum(not evaluation.samples_us for evaluation in study.evaluations),
        "best_us": best[-1][2] if best else None,
        "best_after": best[-1][0] if best else None,
        "best_by": {name: study.best_by(name) for name in DIMENSIONS},
        "importances": importances(study),
    }


def study_lines(study: StoredStudy) -> Iterator[str]:
    """Yield what the search tried, the best of each method and protocol, what mattered."""
    from tuccl.tuning import importances

    failed = sum(not evaluation.samples_us for evaluation in study.evaluations)
    size = f"{study.collective} of {format_bytes(study.nbytes)}"
    yield f"# study: {len(study.evaluations)} evaluations of {size}, {failed} could not run"
    if not study.best_so_far:
        return
    number, seconds, best_us = study.best_so_far[-1]
    yield f"# its best program, {best_us:.2f} us, was evaluation {number}, after {seconds:.1f} s"
    rows = [
        [name, value, us, f"{us / best_us:.2f}x"]
        for name in DIMENSIONS
        for value, us in study.best_by(name).items()
    ]
    yield columns(["", "best of", "us", "us / best"], rows)
    if shares := importances(study):
        text = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        yield f"# importance (PED-ANOVA, of the points tried): {text}"


def candidate_columns(chosen: Candidate, candidates: Sequence[Candidate]) -> str:
    """Return an entry's candidates as a table: time, SMs, and both against the default's."""
    default = next(c for c in candidates if c.is_default)
    header = ["", "candidate", "us", "SMs", "us / default", "SMs / default"]
    rows = [
        [
            ">" if candidate == chosen else "",
            candidate.name,
            None if candidate.stats is None else candidate.stats.recent_us,
            candidate.sms or None,
            quotient(recent_us(candidate), recent_us(default)),
            quotient(candidate.sms, default.sms),
        ]
        for candidate in candidates
    ]
    return columns(header, rows)


def recent_us(candidate: Candidate) -> float:
    """Return the recent time of ``candidate`` in us, 0 where it has none."""
    return 0.0 if candidate.stats is None else candidate.stats.recent_us


def quotient(value: float, default: float) -> str:
    """Return ``value`` over ``default`` as a factor, or a dash where either is not known."""
    return f"{value / default:.2f}x" if value and default else "-"


def as_json(answer: PluginAnswer) -> dict[str, object]:
    """Return a row for ``--json``."""
    return {
        **msgspec.to_builtins(answer.row),
        "sms": answer.row.chosen.sms,
        "plugin": answer.plugin,
        "plugin_sizes": answer.sizes,
        "plugin_why": answer.why,
        "agrees": answer.agrees,
    }


def as_columns(answers: Sequence[PluginAnswer]) -> str:
    """Return the rows as a table; a ``>`` marks another choice than at smaller sizes."""
    header = ["", "collective", "root", "placement", "from", "below", "choice", "plugin"]
    return columns([*header, "us", "SMs", "gain", "why"], [_cells(answer) for answer in answers])


def _cells(answer: PluginAnswer) -> list[object]:
    row = answer.row
    same = answer.plugin == row.candidate
    return [
        ">" if row.switches else "",
        row.collective,
        "-" if row.root is None else str(row.root),
        row.placement,
        format_bytes(row.min_bytes),
        format_bytes(row.max_bytes) if row.max_bytes else "no limit",
        row.candidate,
        "same" if same else answer.plugin or "-",
        None if row.chosen.stats is None else row.chosen.stats.recent_us,
        row.chosen.sms or None,
        "-" if row.gain is None else f"{row.gain:.2f}x",
        f"{row.reason}; not honoured: {row.not_honoured}" if row.not_honoured else row.reason,
    ]


def switch_lines(answers: Sequence[PluginAnswer]) -> Iterator[str]:
    """Yield a line for each kind of call: its first choice, and every size where it changes."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for answer in answers:
        row = answer.row
        root = "" if row.root is None else f" root {row.root}"
        kind = (f"{row.collective}{root} {row.placement}", row.datatype_class)
        if kind not in kinds:
            kinds[kind] = [row.candidate]
        elif row.switches:
            kinds[kind].append(f"from {row.min_bytes} bytes {row.candidate}")
    for (call, datatype), choices in kinds.items():
        of = "" if datatype == "any" else f" ({datatype})"
        yield f"# {call}{of}: {'; '.join(choices)}"


def plugin_lines(answers: Sequence[PluginAnswer]) -> Iterator[str]:
    """Yield how many calls the plugin answered, and why others were not put to it."""
    calls = sum(len(answer.sizes) for answer in answers)
    if calls:
        disagreements = sum(not answer.agrees for answer in answers)
        yield f"# the plugin answered {calls} calls, {disagreements} rows disagree"
    lines = (f"# {answer.row.collective}: {answer.why}" for answer in answers if answer.why)
    yield from dict.fromkeys(lines)
