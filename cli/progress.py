"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from tuccl.cli.output import say

__all__ = ["Progress"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows how far long work is; ``update(done, total, what)`` may be called often."""

    def __init__(self) -> None:
        """Choose a bar or lines by what standard error is."""
        self._bar: Any = None
        self._task: Any = None
        self._start = self._last = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> Self:
        """Start the bar, on a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            parts = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*parts, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` are done and ``what`` is next, at which rate."""
        if self._first is None:
            self._start, self._first = time.monotonic(), done
        seconds, since = time.monotonic() - self._start, done - self._first
        rate = since / seconds if seconds > 1 else 0.0
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(what, total=total, rate="")
            self._bar.update(
                self._task,
                completed=done,
                total=total,
                description=what,
                rate=f"{rate:.3g}/s" if rate else "",
            )
        elif done == total or time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            left = f", {rate:.3g}/s, {(total - done) / rate:.0f} s left" if rate else ""
            say(f"{done}/{total} {what}{left if done < total else ''}")
