"""``tuccl explain``: what the table and the plugin that loads it decide, with switch points."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tuccl.cli.arguments import add_json
from tuccl.cli.output import columns, print_json_lines, say, warn
from tuccl.errors import Unavailable
from tuccl.runtime import explain as explain_table
from tuccl.runtime import load_table
from tuccl.runtime.jobs import PluginAnswer, check_plugin
from tuccl.units import format_bytes

HELP = "what the table decides for every size and why, asked of the built plugin too"
EXAMPLE = "tuccl explain table/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("table", metavar="TABLE")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the decisions; 1 where the plugin decides something else than the table says."""
    folder = Path(args.table)
    table = load_table(folder)
    try:
        asked = check_plugin(folder, table)
    except Unavailable as error:
        warn([f"the plugin is not asked: {error}"])
        asked = tuple(
            PluginAnswer(row, None, (), True, "not installed") for row in explain_table(table)
        )
    disagreeing = [each for each in asked if not each.agrees]
    if args.json:
        print_json_lines(as_json(each) for each in asked)
    else:
        if table.tuned_on:
            print(f"# times {table.tuned_on}")
        print(as_columns(asked))
        print("\n".join(["", *switch_lines(asked), *unasked_lines(asked)]))
    for each in disagreeing:
        sizes = " and ".join(str(n) for n in each.sizes)
        row = f"{each.row.collective} {each.row.placement} of {sizes} bytes"
        say(f"{row}: the plugin chooses {each.plugin}, the table {each.row.candidate}")
    return 1 if disagreeing else 0


def as_json(asked: PluginAnswer) -> dict[str, object]:
    """Return a row for ``--json``."""
    row: dict[str, object] = msgspec.to_builtins(asked.row)
    told = {"plugin": asked.plugin, "plugin_sizes": asked.sizes, "plugin_why": asked.why}
    return {**row, **told, "agrees": asked.agrees}


def as_columns(asked: Sequence[PluginAnswer]) -> str:
    """Return the rows as a table; a ``>`` marks another choice than just below."""
    header = ["", "collective", "root", "placement", "from", "below", "choice", "plugin"]
    return columns([*header, "gain", "why"], [_cells(each) for each in asked])


def _cells(asked: PluginAnswer) -> list[object]:
    row = asked.row
    same = asked.plugin == row.candidate
    return [
        ">" if row.switches else "",
        row.collective,
        "-" if row.root is None else str(row.root),
        row.placement,
        format_bytes(row.min_bytes),
        format_bytes(row.max_bytes) if row.max_bytes else "no limit",
        row.candidate,
        "same" if same else asked.plugin or "not asked",
        "-" if row.gain is None else f"{row.gain:.2f}x",
        f"{row.reason}; not honoured: {row.not_honoured}" if row.not_honoured else row.reason,
    ]


def switch_lines(asked: Sequence[PluginAnswer]) -> Iterator[str]:
    """Yield a line for each kind of call: its first choice, and every size where it changes."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for each in asked:
        row = each.row
        root = "" if row.root is None else f" root {row.root}"
        kind = (f"{row.collective}{root} {row.placement}", row.datatype_class)
        if kind not in kinds:
            kinds[kind] = [row.candidate]
        elif row.switches:
            kinds[kind].append(f"from {row.min_bytes} bytes {row.candidate}")
    for (call, datatype), choices in kinds.items():
        of = "" if datatype == "any" else f" ({datatype})"
        yield f"# {call}{of}: {'; '.join(choices)}"


def unasked_lines(asked: Sequence[PluginAnswer]) -> Iterator[str]:
    """Yield what was asked of which sizes, and why others were not."""
    sizes = sum(len(each.sizes) for each in asked)
    if sizes:
        yield f"# plugin asked for {sizes} calls, {sum(not a.agrees for a in asked)} rows disagree"
    yield from dict.fromkeys(f"# {a.row.collective}: {a.why}" for a in asked if a.why)
