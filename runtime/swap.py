"""Replacing a folder in one step, so that a crash leaves the old or the new one whole."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

__all__ = ["previous", "swap_folders"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# File systems (NFS among them) and kernels that cannot exchange two names say one of these.
_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def swap_folders(new: Path, target: Path) -> Path | None:
    """Put the folder ``new`` at ``target``; return where the old folder lies now, or None.

    The exchange is one step where the file system can exchange two names. Elsewhere the old
    folder is renamed to ``previous(target)`` first: a crash between the two renames leaves it
    whole there, where readers look next.
    """
    aside = previous(target)
    if not target.exists():
        os.replace(new, target)  # noqa: PTH105 - one name for tests to break
        return aside if aside.exists() else None
    if _exchange(new, target):
        return new
    if aside.exists():  # left by a crash after the second rename: target is the newer one
        shutil.rmtree(aside)
    os.replace(target, aside)  # noqa: PTH105
    os.replace(new, target)  # noqa: PTH105
    return aside


def previous(target: Path) -> Path:
    """Return where an interrupted swap leaves the old folder of ``target``.

    >>> previous(Path("/a/table")).name
    '.table.tuccl-old'
    """
    return target.with_name(f".{target.name}.tuccl-old")


def _exchange(new: Path, target: Path) -> bool:
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
