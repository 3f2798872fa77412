"""Groups of NCCL's versions that share their tuning constants."""

from __future__ import annotations

import re

from tuccl.errors import InputError
from tuccl.runtime.nccl.constants import tuning_constants

NCCL_VERSION = "2.19"  # of baselines by default

_NEWEST = (2, 30)  # whose constants are known
# Later releases that choose by the same formulas, but for what `nccl_caveats` names.
_NEWEST_ALIKE = (2, 32)
_FIRST_WITH_WINDOWS = (2, 27)
_LAST_PATCH = 10**6
_TEXT = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,5}))?(?:[-+.][\w.+-]{0,40})?", re.ASCII)


def nccl_versions() -> tuple[str, ...]:
    """Return the names of the groups of versions whose constants are known, oldest first.

    >>> "2.19" in nccl_versions()
    True
    """
    return tuple(tuning_constants())


def nccl_group(version: str) -> str:
    """Return the group of a version like ``2.18``, ``2.18.1`` or ``v2.18.1-1``.

    A version without a patch is the last release of its number. ``newest`` is the newest whose
    constants are known. The two releases after it are taken as it, with what that leaves out in
    `nccl_caveats`; newer ones are refused, since their constants would be a guess.

    >>> nccl_group("2.18.5"), nccl_group("2.18.1"), nccl_group("2.21"), nccl_group("newest")
    ('2.18', '2.18.1', '2.21', '2.30')

    Raises:
        InputError: no version, or one whose constants are not known.
    """
    number = _number(version)
    return [name for name, group in tuning_constants().items() if group.since <= number][-1]


def nccl_release(version: str) -> str:
    """Return how records name a version: ``2.18.3`` for ``v2.18.3-1``, ``2.30`` for ``newest``.

    >>> nccl_release("v2.18.3-1"), nccl_release("2.18"), nccl_release("newest")
    ('2.18.3', '2.18', '2.30')

    Raises:
        InputError: as `nccl_group`.
    """
    *number, patch = _number(version)
    return ".".join(map(str, number if patch == _LAST_PATCH else (*number, patch)))


def nccl_caveats(version: str) -> tuple[str, ...]:
    """Return what of NCCL ``version`` the model leaves out, a sentence each; none up to 2.26.

    >>> nccl_caveats("2.26"), len(nccl_caveats("2.27")), len(nccl_caveats("2.32"))
    ((), 1, 2)

    Raises:
        InputError: as `nccl_group`.

    Notes:
        NVIDIA/nccl src/sym_kernels.cc (2.27 on), src/ce_coll.cc (2.28 on), src/tuning/ring.cc,
        src/tuning/platforms/rubin.h.
    """
    number = _number(version)
    if number[:2] < _FIRST_WITH_WINDOWS:
        return ()
    windows = (
        f"NCCL {nccl_release(version)}: buffers of ncclCommWindowRegister run symmetric kernels, "
        "AllGather and AlltoAll without SMs by copy engines: neither is modelled"
    )
    caveats = [windows]
    if number[:2] > _NEWEST:
        caveats.append(
            f"NCCL {nccl_release(version)} is taken as {nccl_group(version)}: Rubin's own cost "
            "model and the plateau of rings on one Blackwell host are not modelled"
        )
    return tuple(caveats)


def _number(version: str) -> tuple[int, int, int]:
    if version == "newest":
        return (*_NEWEST, _LAST_PATCH)
    match = _TEXT.fullmatch(version)
    last = ".".join(map(str, _NEWEST_ALIKE))
    range_text = f"known are {nccl_versions()[0]} to {last}"
    if not match:
        raise InputError(
            f"NCCL version {version[:20]!r}: expected one like 2.19 or 2.18.3; {range_text}"
        )
    major, minor, patch = match[1], match[2], match[3]
    number = int(major), int(minor), int(patch) if patch else _LAST_PATCH
    if number[:2] > _NEWEST_ALIKE:
        raise InputError(
            f"NCCL version {version[:20]!r}: {range_text}; use 'newest' to take those of the newest"
        )
    if number < next(iter(tuning_constants().values())).since:
        raise InputError(f"NCCL version {version[:20]!r}: {range_text}")
    return number
