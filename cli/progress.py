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
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Start the bar, on a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            parts = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
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
        """Show that ``done`` of ``total`` are done and ``what`` is next."""
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(what, total=total)
            self._bar.update(self._task, completed=done, total=total, description=what)
        elif done == total or time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            say(f"{done}/{total} {what}")
