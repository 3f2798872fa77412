"""The sizes at which NCCL's own choice changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.topology import Topology

_LEAST_BYTES = 64
_MOST_BYTES = 1 << 33
_STEPS = 4  # sizes looked at an octave

_Kind = tuple[str, str]


class SwitchPoint(NamedTuple):
    """From ``nbytes`` on NCCL takes ``after``, below it ``before``, like ``Tree/LL``."""

    nbytes: int
    before: str
    after: str


def switch_points(
    topology: Topology, collective: str, version: str = NCCL_VERSION, *, nvls: bool = True
) -> tuple[SwitchPoint, ...]:
    """Return the sizes, to the byte, at which NCCL's algorithm or protocol changes.

    Args:
        topology: Of the machine.
        collective: The call.
        version: The version of NCCL.
        nvls: False as NCCL_NVLS_ENABLE=0.

    Raises:
        InputError: the version is not known, or has no such collective.

    Notes:
        From 64 B to 8 GiB, the choice looked at four times an octave: a choice that lasts for
        less than that may be passed over.

    >>> from tuccl.topology import load_profile
    >>> [s.after for s in switch_points(load_profile("dgx-a100"), "allgather", "2.19")]
    ['Ring/LL128', 'Ring/Simple']
    """

    def kind(nbytes: int) -> _Kind:
        choice = nccl_choice(topology, collective, nbytes, version, nvls=nvls)
        return choice.algorithm, choice.protocol

    return tuple(
        SwitchPoint(at, "/".join(before), "/".join(after)) for at, before, after in _changes(kind)
    )


def _changes(kind: Callable[[int], _Kind]) -> Iterator[tuple[int, _Kind, _Kind]]:
    octaves = (_MOST_BYTES // _LEAST_BYTES).bit_length() - 1
    sizes = [round(_LEAST_BYTES * 2 ** (n / _STEPS)) for n in range(octaves * _STEPS + 1)]
    low, before = sizes[0], kind(sizes[0])
    for high in sizes[1:]:
        while kind(high) != before:
            at, new = _first_change(kind, low, high, before)
            yield at, before, new
            low, before = at, new
        low = high


def _first_change(
    kind: Callable[[int], _Kind], low: int, high: int, before: _Kind
) -> tuple[int, _Kind]:
    """Bisect between a size of kind `before` and one of another."""
    while high - low > 1:
        middle = (low + high) // 2
        if kind(middle) == before:
            low = middle
        else:
            high = middle
    return high, kind(high)
