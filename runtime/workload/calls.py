"""A job's calls, and the ones among them that a table for a machine can serve."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.synth.model.collective import COLLECTIVES, COUNTED_PER_RANK

_MOST_BYTES = 1 << 60
_VARIANTS = re.compile("base|into|tensor|coalesced|oop|perf")


@dataclass(frozen=True)
class Call:
    """Equal calls of a job: ``nbytes`` of the whole array, ``count`` of them.

    ``us`` is the measured mean time of one, None where none was; ``ranks`` the size of the group,
    None where the record does not say. A ``collective`` that is none of tuccl's keeps its name.
    """

    collective: str
    nbytes: int
    count: int = 1
    us: float | None = None
    ranks: int | None = None


@dataclass(frozen=True)
class LeftOut:
    """Calls that no table for the machine serves: why, how many, and their bytes together."""

    reason: str
    count: int
    nbytes: int


@dataclass(frozen=True)
class Workload:
    """The calls of a job that a table can serve, each kind once, and what was left out."""

    name: str
    calls: tuple[Call, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def count(self) -> int:
        """Number of calls, those left out not among them."""
        return sum(call.count for call in self.calls)

    def within(
        self, collectives: Collection[str], sizes: Sequence[int] = (0, _MOST_BYTES)
    ) -> Workload:
        """Return the calls of ``collectives`` whose sizes lie between the least and most bytes.

        The others are left out.

        Raises:
            InputError: no call is left.
        """
        low, high = min(sizes), max(sizes)
        calls = [c for c in self.calls if c.collective in collectives and low <= c.nbytes <= high]
        rest = [call for call in self.calls if call not in calls]
        if not calls:
            raise InputError(
                f"workload {self.name[:60]}: no call of {', '.join(collectives)} in these sizes; "
                "leave -c and -s out to tune it whole"
            )
        if not rest:
            return self
        nbytes = sum(call.count * call.nbytes for call in rest)
        others = LeftOut("not requested", sum(call.count for call in rest), nbytes)
        return Workload(self.name, tuple(calls), (*self.left_out, others))

    def left_out_text(self) -> str:
        """Return how much was left out and why, with its share of calls and bytes; "" for none."""
        if not self.left_out:
            return ""
        count, nbytes = (
            sum(getattr(one, field) for one in self.left_out) for field in ("count", "nbytes")
        )
        bytes_left = sum(call.count * call.nbytes for call in self.calls)
        reasons = ", ".join(f"{one.count:,} {one.reason}" for one in self.left_out)
        return (
            f"{count:,} of {count + self.count:,} calls "
            f"({nbytes / max(nbytes + bytes_left, 1):.1%} of the bytes) left out: {reasons}"
        )


def workload_of(name: str, calls: Iterable[Call], ranks: int) -> Workload:
    """Return the workload of ``calls`` on ``ranks`` ranks, equal calls added up.

    Calls of a group of another size, of no bytes, and of what is no collective are left out;
    a group of unknown size is taken for all ``ranks``.

    >>> workload_of("w", [Call("allreduce", 64), Call("send", 8)], 4).left_out
    (LeftOut(reason='send', count=1, nbytes=8),)
    """
    calls_by_kind: dict[tuple[str, int], list[Call]] = {}
    left_out: dict[str, list[Call]] = {}
    for call in calls:
        if reason := _reason(call, ranks):
            left_out.setdefault(reason, []).append(call)
        else:
            calls_by_kind.setdefault((call.collective, call.nbytes), []).append(call)
    return Workload(
        name,
        tuple(_added_up(equal, ranks) for _, equal in sorted(calls_by_kind.items())),
        tuple(
            LeftOut(reason, sum(c.count for c in each), sum(c.count * c.nbytes for c in each))
            for reason, each in sorted(left_out.items())
        ),
    )


def _reason(call: Call, ranks: int) -> str:
    """Why a table for ``ranks`` ranks does not serve ``call``; "" where it does."""
    if call.collective not in COLLECTIVES:
        return call.collective
    if call.ranks is not None and call.ranks != ranks:
        group = f"of {call.ranks} ranks" if call.ranks else "of a group whose size is not said"
        return f"{call.collective} {group}"
    if call.nbytes >= _MOST_BYTES:
        return f"{call.collective} of over {_MOST_BYTES >> 60} EiB"
    return "" if call.nbytes > 0 else f"{call.collective} of 0 bytes"


def _added_up(calls: list[Call], ranks: int) -> Call:
    count = sum(c.count for c in calls)
    times = [c.count * c.us for c in calls if c.us is not None]
    us = sum(times) / count if len(times) == len(calls) else None
    return Call(calls[0].collective, calls[0].nbytes, count, us, ranks)


def collective_name(text: str) -> str:
    """Return tuccl's name for a collective as NCCL, PyTorch, nccl-tests or AICB write it.

    What is none of them comes back in small letters.

    >>> [collective_name(t) for t in ("ReduceScatter", "_allgather_base", "alltoall_perf", "Send")]
    ['reduce-scatter', 'allgather', 'alltoall', 'send']
    """
    letters = "".join(c for c in text.lower() if c.isalpha())[:40]
    plain = _VARIANTS.sub("", letters)
    return next((name for name in COLLECTIVES if name.replace("-", "") == plain), letters)


def whole_bytes(collective: str, count: int, element_bytes: int, ranks: int) -> int:
    """Return the bytes of the whole array of a call with NCCL's ``count`` of elements.

    >>> whole_bytes("allreduce", 32, 4, 8), whole_bytes("allgather", 32, 4, 8)
    (128, 1024)
    """
    return count * element_bytes * (ranks if collective in COUNTED_PER_RANK else 1)
