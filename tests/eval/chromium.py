"""Chromium without a window, by its DevTools protocol over a pipe: pages as readers see them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
_LOCAL = ("--disable-background-networking", "--no-first-run", "--disable-sync")


class Page:
    """A page in Chromium."""

    def __init__(self, to: int, back: int) -> None:
        """Attach to a new page."""
        self._to, self._back, self._number, self._rest = to, back, 0, b""
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """Return the browser's answer to a command."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._back, 1 << 20)
            assert data, "Chromium ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, path: Path) -> None:
        """Load a file, until it is whole."""
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.value(
            "new Promise(done => document.readyState == 'complete' ? done(1) : "
            "addEventListener('load', () => done(1)))"
        )

    def show(self, width: int, scheme: str = "light", medium: str = "screen") -> None:
        """Set the width in pixels, the colour scheme and the medium."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=medium, features=features)

    def value(self, script: str) -> Any:  # noqa: ANN401 - whatever the script's value is
        """Return the value of a script in the page."""
        params = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **params)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key: Tab or Enter."""
        code, text = {"Tab": (9, "\t"), "Enter": (13, "\r")}[name]
        about = {"key": name, "code": name, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, **about)

    def close(self) -> None:
        """End Chromium."""
        self.send("Browser.close")

    def pdf(self) -> bytes:
        """Return the page as printed."""
        answer = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(answer["data"])

    def picture(self) -> bytes:
        """Return all of the page as PNG, for a person to look at."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """Start Chromium with an empty profile in a folder; yield a page."""
    assert CHROMIUM
    (theirs_in, to), (back, theirs_out) = _pipe(), _pipe()
    nowhere = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    ends = (os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)
    arguments = [CHROMIUM, *_FLAGS, *_LOCAL, f"--user-data-dir={profile}"]
    process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=(*ends, nowhere))
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(to, back)
        yield page
        page.close()
    finally:
        os.close(to)  # which ends it, if nothing else did
        os.waitpid(process, 0)
        os.close(back)


def _pipe() -> list[int]:
    """A pipe whose ends are none of the numbers that Chromium's take."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high
