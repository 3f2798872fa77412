"""The page of the command line, written from the parsers: ``python -m tuccl.cli.reference FILE``.

With ``--check`` the file is compared and not written; the exit code is 1 where it is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tuccl.cli.output import write_text
from tuccl.cli.parser import VERBS, build_parser, verb_parsers

__all__ = ["reference_page"]


def reference_page() -> str:
    """Return the page as Markdown: verbs, then the options of each."""
    whole = build_parser()
    rows = [f"| [`{verb}`](#{verb}) | {_escaped(text)} |" for verb, text in VERBS.items()]
    head = ["# Command line", "", f"{whole.description} {whole.epilog}", ""]
    head += ["| verb | what it does |", "|---|---|", *rows]
    parts = [_part(verb, parser) for verb, parser in verb_parsers().items()]
    return "\n".join([*head, *(line for part in parts for line in part)]) + "\n"


def _part(verb: str, parser: argparse.ArgumentParser) -> list[str]:
    text = f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}."
    lines = ["", f"## {verb}", "", text, "", "```sh", str(parser.epilog), "```"]
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if _is_shown(a)]
        if not actions:
            continue
        title = "" if group.title in ("positional arguments", "options") else group.title
        lines += ["", f"### {verb}: {title}"] if title else []
        lines += ["", "| argument | meaning |", "|---|---|"]
        lines += [f"| {_names(a)} | {_escaped(_help(parser, a))} |" for a in actions]
    return lines


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and action.dest != "help"


def _names(action: argparse.Action) -> str:
    """Return the spellings of an argument, and what stands for its value."""
    metavar = action.metavar or ""
    value = " ".join(metavar) if isinstance(metavar, tuple) else str(metavar)
    if not value and action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value or action.dest}`"
    takes = action.nargs != 0
    spellings = ", ".join(action.option_strings)
    return f"`{spellings}{' ' + (value or action.dest.upper()) if takes else ''}`"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    values = {**vars(action), "prog": parser.prog}
    return str(action.help or "") % values


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(prog="python -m tuccl.cli.reference")
    parser.add_argument("file", type=Path, help="the page, like docs/reference/cli.md")
    parser.add_argument("--check", action="store_true", help="compare it; exit 1 if out of date")
    args = parser.parse_args()
    page = reference_page()
    if not args.check:
        write_text(args.file, page)
        return 0
    return 0 if args.file.is_file() and args.file.read_text() == page else 1


if __name__ == "__main__":
    sys.exit(main())
