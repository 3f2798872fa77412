"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from tuccl.cli.output import say

_FIRST_LINE_S = 2.0
_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows how far long work is; ``update(done, total, what)`` may be called often."""

    def __init__(self) -> None:
        """Choose a bar or lines by what standard error is."""
        self._bar: Any = None
        self._task: Any = None
        self._start = self._last = self._last_advance = time.monotonic()
        self._first: int | None = None
        self._state = (0, 0, "preparing")
        self._estimated = False  # in some line
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._beats, daemon=True)

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
        else:
            self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away; after an interrupt say how far the work was."""
        self._ended.set()
        if self._bar is not None:
            self._bar.stop()
        else:
            self._beat.join()
        if kind is KeyboardInterrupt and self._first is not None:
            say(self._line())

    def _beats(self) -> None:
        """Say how far the work is after two seconds, and whenever it was silent for long."""
        wait = _FIRST_LINE_S
        while not self._ended.wait(wait):
            if wait == _FIRST_LINE_S or time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
                self._last = time.monotonic()
                say(self._line())
            wait = _SECONDS_BETWEEN_LINES / 4

    def _line(self) -> str:
        """The state in words. What takes long now leaves at least as long to go."""
        done, total, what = self._state
        now = time.monotonic()
        seconds, since = now - self._start, done - (self._first or 0)
        if done == total:
            return f"{f'{done}/{total} ' if total else ''}{what}, {seconds:.0f} s"
        rate = since / seconds if seconds > 1 else 0.0
        self._estimated = self._estimated or rate > 0
        left = max((total - done) / rate, now - self._last_advance) if rate else 0.0
        return f"{done}/{total} {what}" + (f", {rate:.3g}/s, {left:.0f} s left" if rate else "")

    def update(self, done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` are done and ``what`` is next, at which rate."""
        if self._first is None or done < self._state[0]:  # another table of a job begins
            self._start, self._first = time.monotonic(), done
        if done > self._state[0]:
            self._last_advance = time.monotonic()
        self._state = (done, total, what)
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
        elif (
            done == total
            or time.monotonic() - self._last > _SECONDS_BETWEEN_LINES
            or (rate and not self._estimated and seconds > _FIRST_LINE_S)
        ):
            self._last = time.monotonic()
            say(f"{done}/{total} {what}" if done == total else self._line())
