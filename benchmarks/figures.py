"""Rebuilds the pages under results/, whole and from a commit: `make figures`.

    .venv/bin/python benchmarks/figures.py [--list | --check] [--stale] [--only NAME ...]
        [--minutes N]

A page is stale when its benchmark, a file of benchmarks/ that this imports or names, or a module of
tuccl from which these import computes otherwise since the page's commit (docstrings, comments and
import lines do not count), or when other options or hands made it. --stale takes these alone,
--minutes no more pages than their minutes (figures.toml) allow. --list prints each page's command,
what it lacks here and its age; --check fails for pages whose benchmark itself changed, other
options or hands, unless figures.toml lists them, and warns of modules.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

import pages
from pages import Page, git


def main() -> int:
    """Do what the arguments say; return 1 where a page failed or is stale, 2 without a commit."""
    parser = argparse.ArgumentParser(description="Rebuilds the pages under results/.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="print each page's command and age")
    action.add_argument("--check", action="store_true", help="fail for stale pages")
    parser.add_argument("--stale", action="store_true", help="only pages older than their code")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=pages.all_pages())
    parser.add_argument("--minutes", type=int, default=sys.maxsize, metavar="N", help="in all")
    args = parser.parse_args()
    chosen = [pages.all_pages()[name] for name in args.only or pages.all_pages()]
    if args.check:
        return check(chosen)
    if args.stale:
        chosen = [page for page in chosen if errors(page) or page.changed(page.modules)]
    if args.list:
        print("\n".join(map(row, chosen)))
        return 0
    return rebuild(chosen, args.minutes)


def errors(page: Page) -> list[str]:
    """Return why a page is not what its command would print, but for the modules of tuccl."""
    defect = page.defect()
    return ([defect] if defect else []) + [f"{name} changed" for name in page.changed(page.own)]


def check(chosen: Sequence[Page]) -> int:
    """Print pages that are stale, or listed as stale and are not; warn of older modules."""
    if git("rev-parse", "--is-shallow-repository") != "false\n":
        print("results: not checked: no checkout with all of its history")
        return 0
    found = {page.name: errors(page) for page in chosen}
    known = pages.listed() & set(found)
    wrong = [f"{n}: {'; '.join(e)}" for n, e in found.items() if e and n not in known]
    wrong += [f"{n}: not stale; take it out of figures.toml" for n in known if not found[n]]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    older = [page.name for page in chosen if not found[page.name] and page.behind()]
    print(
        f"results: {len(known)} pages to run again; older than modules they measure: "
        f"{', '.join(older) or 'none'} (make figures ARGS=--list)"
    )
    return bool(wrong)


def row(page: Page) -> str:
    """Return a page's command, what it lacks here and its age."""
    reasons = errors(page)
    modules = page.changed(page.modules)
    if modules:
        reasons.append(f"{len(modules)} of {len(page.modules)} modules changed")
    missing = page.missing()
    lack = f"; needs {', '.join(missing)}" if missing else ""
    return (
        f"{page.name} ({page.kind}): {page.minutes} min, {page.behind()} commits behind{lack}\n"
        f"    {' '.join(words(page)[-1])}\n    {'; '.join(reasons) or 'as its code'}"
    )


def words(page: Page) -> list[list[str]]:
    """Return the commands that make a page, from the repository's root."""
    last = [str(page.script.relative_to(pages.HERE)), *page.arguments.split(), "--write"]
    commands = [*(command.split() for command in page.before), last]
    return [["benchmarks/" + command[0], *command[1:]] for command in commands]


def rebuild(chosen: Sequence[Page], minutes: int) -> int:
    """Run each page's commands, whose output goes to build/figures/NAME.log."""
    dirty = git("status", "--porcelain", "--untracked-files=no", ":!results")
    if dirty or not git("for-each-ref", "--contains", "HEAD", "refs/heads", "refs/remotes"):
        fault = "there are changes without a commit" if dirty else "HEAD is on no branch"
        print(f"figures.py: {fault}, and pages name the commit that made them", file=sys.stderr)
        return 2
    failed = []
    for number, page in enumerate(chosen, 1):
        place = f"{number}/{len(chosen)} {page.name}:"
        missing = page.missing()
        if missing or page.minutes > minutes:
            print(place, f"skipped: needs {', '.join(missing) or f'{page.minutes} minutes'}")
            continue
        print(place, f"about {page.minutes} min", flush=True)
        minutes -= page.minutes
        start = time.monotonic()
        try:
            done = run(page)
        except KeyboardInterrupt:
            print(f"{page.name}: interrupted; the pages before it are written", file=sys.stderr)
            return 130
        state = "written" if done else f"failed, see build/figures/{page.name}.log"
        print(place, f"{state}, {(time.monotonic() - start) / 60:.1f} min", flush=True)
        failed += [] if done else [page.name]
    if failed:
        print(f"figures.py: failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def run(page: Page) -> bool:
    """Run a page's commands; whether all went well. A command that is interrupted may clean up."""
    logs = pages.ROOT / "build" / "figures"
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / f"{page.name}.log").open("w") as log:
        for command in words(page):
            line = [sys.executable, *command]
            process = subprocess.Popen(line, cwd=pages.ROOT, stdout=log, stderr=log)
            try:
                status = process.wait()
            except KeyboardInterrupt:
                process.wait()
                raise
            if status:
                return False
    return True


if __name__ == "__main__":
    sys.exit(main())
