"""Tools that make a cell: its namespaces, and a process in them that reads its input."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tuccl.errors import TucclError

_START_S = 20.0
# runc makes no container of a root that is mounted nowhere else; the mount ends with runc.
_BIND = """mount --rbind / "$1" && shift && exec runc "$@" """


def start_holder(command: Sequence[str], what: str) -> subprocess.Popen[bytes]:
    """Start what holds something until its input ends, and says that it is ready.

    Raises:
        TucclError: it does not.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _START_S)[0] or (
        process.stdout.readline() != b"ready\n"
    ):
        process.kill()
        try:
            said = process.communicate(timeout=_START_S)[1].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            said = "it does not end either"
        raise TucclError(f"{what} does not start: {' '.join(said.split())[:200]}")
    return process


def _unshare(own: Sequence[str], script: Sequence[str], _: Path) -> list[str]:
    flags = [f"--{name}" for name in own]
    proc = ["--mount-proc"] if "pid" in own else []
    return ["unshare", *flags, *proc, "--fork", "--kill-child", *script]


def _bwrap(own: Sequence[str], script: Sequence[str], _: Path) -> list[str]:
    flags = [f"--unshare-{name}" for name in own if name != "mount"]
    proc = ["--proc", "/proc"] if "pid" in own else []
    mounts = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", *proc]
    return ["bwrap", "--die-with-parent", *mounts, *flags, *script]


def _runc(own: Sequence[str], script: Sequence[str], bundle: Path) -> list[str]:
    root = bundle / "root"
    root.mkdir(mode=0o700, parents=True)
    kept = ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_CHOWN"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind"]},
    ]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(script),
            "env": [f"PATH={os.environ.get('PATH', '')}"],
            "cwd": "/",
            "capabilities": {s: kept for s in ("bounding", "effective", "permitted")},
        },
        "root": {"path": "root"},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": "network" if n == "net" else n} for n in own]},
    }
    (bundle / "config.json").write_bytes(msgspec.json.encode(config))
    where = ["--root", str(bundle / "state"), "run", "--bundle", str(bundle)]
    name = f"tuccl-{bundle.parent.name}-{bundle.name}"
    return ["unshare", "--mount", "sh", "-c", _BIND, "sh", str(root), *where, name]


TOOLS: dict[str, Callable[[Sequence[str], Sequence[str], Path], list[str]]] = {
    "unshare": _unshare,
    "bwrap": _bwrap,
    "runc": _runc,
}
PACKAGES = {
    "unshare": "util-linux",
    "bwrap": "bubblewrap",
    "runc": "runc",
    "linux.uml": "user-mode-linux",
}
