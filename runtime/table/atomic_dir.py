"""Replacing a folder in one step, so that a crash leaves the old or the new one whole."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# File systems (NFS among them) and kernels that cannot exchange two names say one of these.
_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def replace_directory(target: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files ``contents`` by their path within it as the folder ``target``, in one step.

    What stood there is replaced. A failure leaves it as it was.

    Raises:
        OSError: the disk refuses.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    mine = _staging_prefix(target)
    _clear_leftovers(target, mine)
    staging = Path(tempfile.mkdtemp(prefix=f"{mine}{os.getpid()}-", dir=target.parent))
    try:
        _write(staging, contents)
        replaced = swap_directories(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def _staging_prefix(target: Path) -> str:
    """The beginning of names of folders that this host's processes stage for ``target``."""
    return f".{target.name}.tuccl-new-{socket.gethostname()[:40]}-"


def _clear_leftovers(target: Path, prefix: str) -> None:
    """Remove what processes of this host left that were killed while they wrote."""
    for folder in target.parent.iterdir():
        pid, _, rest = folder.name.removeprefix(prefix).partition("-")
        is_staged = folder.name.startswith(prefix) and rest and pid.isdecimal()
        if is_staged and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write and flush every file, so that the rename that follows never outruns the data."""
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    directories = {folder}
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        directories.add(path.parent)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    for directory in sorted(directories):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def swap_directories(new: Path, target: Path) -> Path | None:
    """Put the folder ``new`` at ``target``; return where the old folder lies now, or None.

    The exchange is one step where the file system can exchange two names. Elsewhere the old
    folder is renamed to ``previous_directory(target)`` first: a crash between the two renames
    leaves it whole there, where readers look next.
    """
    backup = previous_directory(target)
    if not target.exists():
        os.replace(new, target)  # noqa: PTH105 - one name for tests to break
        return backup if backup.exists() else None
    if exchange_names(new, target):
        return new
    if backup.exists():  # left by a crash after the second rename: target is the newer one
        shutil.rmtree(backup)
    os.replace(target, backup)  # noqa: PTH105
    os.replace(new, target)  # noqa: PTH105
    return backup


def previous_directory(target: Path) -> Path:
    """Return where an interrupted swap leaves the old folder of ``target``.

    >>> previous_directory(Path("/a/table")).name
    '.table.tuccl-old'
    """
    return target.with_name(f".{target.name}.tuccl-old")


def exchange_names(new: Path, target: Path) -> bool:
    """Exchange two names in one step (renameat2); False where that cannot be done."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    args = (_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE)
    if renameat2(*args) == 0:
        return True
    if (code := ctypes.get_errno()) in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(target))
