"""Keeps the output of a benchmark in results/NAME.md: `python benchmarks/NAME.py --write [...]`."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tuccl.files import write_file

ROOT = Path(__file__).resolve().parents[1]


class _Tee(io.StringIO):
    """Keeps what is written and passes it on to ``stream``."""

    def __init__(self, stream: io.TextIOBase) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._stream.flush()


def publish(
    main: Callable[[], int | None], kind: str, *, name: str = "", markdown: bool = False
) -> None:
    """Run ``main`` and exit; with ``--write`` among the arguments keep what it prints.

    Args:
        main: Prints the benchmark's tables, and returns the exit status or None.
        kind: Source of the times: "Simulated", "Measured", or both with their places.
        name: Of the file under results/; empty: the script's.
        markdown: The output is Markdown already, else it is kept as it is printed.
    """
    write = "--write" in sys.argv
    script = Path(sys.argv[0]).resolve()
    sys.argv[1:] = [word for word in sys.argv[1:] if word != "--write"]
    if not write:
        sys.exit(main())
    circumstances = _circumstances(script)
    with contextlib.redirect_stdout(_Tee(sys.stdout)) as output:  # type: ignore[type-var]
        status = main()
    if not status:
        text = output.getvalue().strip("\n")
        body = text if markdown else f"```text\n{text}\n```"
        name = name or script.stem
        path = ROOT / "results" / f"{name}.md"
        write_file(path, f"# {name}\n\n{kind}. {circumstances}\n\n{body}\n".encode())
        print(f"written to {path.relative_to(ROOT)}", file=sys.stderr)
    sys.exit(status)


def _circumstances(script: Path) -> str:
    """Commit, date, machine and command."""
    commit = _output("git", "describe", "--always", "--exclude=*")
    # Results written by other benchmarks change nothing of what this one measures.
    if _output("git", "status", "--porcelain", "--untracked-files=no", ":!results"):
        commit += "-dirty"
    today = datetime.datetime.now(datetime.UTC).date()
    command = shlex.join([".venv/bin/python", str(script.relative_to(ROOT)), *sys.argv[1:]])
    return f"Commit {commit}, {today}, {os.cpu_count()} cores of {_processor()}.\n\n    {command}"


def _output(*command: str) -> str:
    return subprocess.run(
        command, check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or f"an {platform.machine()} machine"
