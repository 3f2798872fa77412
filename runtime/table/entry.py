"""The rows of a lookup table: what was tuned for which calls (docs/reference/table.md)."""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from tuccl.program import Knobs
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.synth.model.collective import REDUCING, ROOTED, CollectiveName
from tuccl.synth.model.problem import ScheduleChoice

__all__ = [
    "DATATYPE_CLASSES",
    "DEFAULT_NAME",
    "ROOTED",
    "Candidate",
    "Entry",
    "KnobValues",
    "Statistics",
    "datatype_class",
    "default_candidate",
    "reduction_class",
]

DatatypeClass = Literal["any", "1-byte", "2-byte", "4-byte", "8-byte"]
ReductionClass = Literal["none", "plain"]
Placement = Literal["in-place", "out-of-place", "any"]
Source = Literal["sim", "mpi", "cuda", "nccl-tests", "mscclpp"]

DATATYPE_CLASSES = ("1-byte", "2-byte", "4-byte", "8-byte")
DEFAULT_NAME = "default"
_PLAIN = frozenset({"sum", "prod", "min", "max"})
_WORD = re.compile(r"[A-Za-z0-9._+-]{1,120}")
_PROGRAM = re.compile(r"algorithms/[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,119}\.xml")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def datatype_class(element_bytes: int) -> str:
    """Return the class of a datatype of ``element_bytes`` bytes.

    >>> datatype_class(4)
    '4-byte'

    Raises:
        ValueError: no datatype has that size.
    """
    if (name := f"{element_bytes}-byte") not in DATATYPE_CLASSES:
        raise ValueError(f"a datatype of {element_bytes} bytes: expected 1, 2, 4 or 8")
    return name


def reduction_class(collective: str, reduction: str = "sum") -> str | None:
    """Return the class of a reduction, or None where only the runtime's default computes it.

    Notes:
        The MSCCL executors refuse average and the pre-multiplied sum (docs/reference/msccl.md).

    >>> reduction_class("allgather"), reduction_class("allreduce"), reduction_class("reduce", "avg")
    ('none', 'plain', None)
    """
    if collective not in REDUCING:
        return "none"
    return "plain" if reduction in _PLAIN else None


class KnobValues(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The backend knobs of a candidate as the table stores them."""

    protocol: Literal["Simple", "LL", "LL128"]
    channels: int
    threads: int
    buffer_bytes: int

    def __post_init__(self) -> None:
        """Refuse knobs that no executor accepts."""
        if self.buffer_bytes >= 1 << 62 or max(self.channels, self.threads) >= 1 << 31:
            raise ValueError("knobs out of range: expected channels <= 32, threads <= 640")
        if (why := self.knobs.illegal()) is not None:
            raise ValueError(f"illegal knobs: {why}")

    @property
    def knobs(self) -> Knobs:
        """The native knobs."""
        return Knobs(self.protocol, self.channels, self.threads, self.buffer_bytes)

    @classmethod
    def of(cls, knobs: Knobs) -> KnobValues:
        """Return the stored form of native ``knobs``.

        >>> KnobValues.of(Knobs("LL", 2)).channels
        2
        """
        return cls(
            protocol=knobs.protocol,  # type: ignore[arg-type]
            channels=knobs.channels,
            threads=knobs.threads,
            buffer_bytes=knobs.buffer_bytes,
        )


class Statistics(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Latency in us over ``count`` calls; ``recent_us`` is what selection goes by.

    ``scenarios_us`` are the times under the scenarios of cross traffic that it was tuned for, which
    the others reduce to one.
    """

    count: int
    median_us: float
    p10_us: float
    p99_us: float
    recent_us: float
    scenarios_us: dict[str, float] = {}

    def __post_init__(self) -> None:
        """Refuse counts below one and times that are no times."""
        times = [self.median_us, self.p10_us, self.p99_us, self.recent_us]
        times += self.scenarios_us.values()
        if self.count < 1 or not all(math.isfinite(t) and t >= 0 for t in times):
            raise ValueError("statistics: expected count >= 1 and finite times >= 0")
        if not self.p10_us <= self.median_us <= self.p99_us:
            raise ValueError("statistics: expected p10_us <= median_us <= p99_us")

    @classmethod
    def of(
        cls, samples_us: tuple[float, ...], scenarios_us: tuple[tuple[str, float], ...] = ()
    ) -> Statistics:
        """Return the statistics of ``samples_us`` (nearest rank), newest sample last.

        >>> Statistics.of((3.0, 1.0, 2.0)).median_us
        2.0

        Raises:
            ValueError: there is no sample.
        """
        ordered = sorted(samples_us)

        def rank(share: float) -> float:
            return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

        if not ordered:
            raise ValueError("statistics of no samples")
        return cls(
            count=len(ordered),
            median_us=rank(0.5),
            p10_us=rank(0.1),
            p99_us=rank(0.99),
            recent_us=rank(0.5),
            scenarios_us=dict(scenarios_us),
        )


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One method to run a call: a program with its knobs, NCCL's own with knobs, or its default.

    ``nchunks``, the placements and ``max_safe_bytes`` (0: every size) repeat what the program
    file says, so that a selector need not read it. ``sms`` is the SMs that it occupies: the
    thread blocks of the GPU that has most, of NCCL's own the channels; 0: not known. ``notes`` say
    what was chosen or what a runtime cannot honour.
    """

    name: str
    on: Source
    stats: Statistics | None = None
    program: str | None = None
    sha256: str = ""
    nchunks: int = 0
    in_place: bool = True
    out_of_place: bool = True
    max_safe_bytes: int = 0
    sketch: str = ""
    method: str = ""
    chunks_per_rank: int = 0
    sms: int = 0
    knobs: KnobValues | None = None
    nccl: NcclKnobs | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that the text form cannot hold and half-described programs."""
        if not _WORD.fullmatch(self.name):
            raise ValueError(f"name {self.name[:40]!r}: expected letters, digits and . _ + -")
        without_program = self.program is None and self.nccl is None
        if without_program != (self.name == DEFAULT_NAME):
            raise ValueError(f"the name {DEFAULT_NAME!r} and only it goes without a program")
        if not 0 <= self.sms < 1 << 31:
            raise ValueError(f"sms {self.sms}: expected 0 (not known) or more")
        if self.program is not None and self.nccl is not None:
            raise ValueError(f"candidate {self.name}: expected a program or NCCL's own, not both")
        if self.program is not None:
            self._check_program(self.program)

    def _check_program(self, program: str) -> None:
        if not _PROGRAM.fullmatch(program):
            raise ValueError(f"program {program[:60]!r}: expected algorithms/NAME.xml")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError("sha256: expected 64 lower-case hexadecimal digits")
        if self.nchunks < 1 or self.knobs is None or self.max_safe_bytes < 0:
            raise ValueError("a program needs nchunks >= 1, knobs and max_safe_bytes >= 0")
        if not (self.in_place or self.out_of_place):
            raise ValueError("a program must run in place, out of place or both")

    @property
    def choice(self) -> ScheduleChoice:
        """The method, sketch and chunks that its schedule was made by."""
        return ScheduleChoice(self.sketch, self.method, self.chunks_per_rank)

    @property
    def is_default(self) -> bool:
        """True for the runtime's own choice."""
        return self.program is None and self.nccl is None

    def refusal(self, nbytes: int, in_place: bool) -> str | None:
        """Return why this candidate cannot run calls of a size and placement, or None."""
        if self.program is None:
            return None
        if not (self.in_place if in_place else self.out_of_place):
            return "runs out of place only" if in_place else "runs in place only"
        if self.max_safe_bytes and nbytes > self.max_safe_bytes:
            return f"is safe only up to {self.max_safe_bytes} bytes"
        return None

    def call_refusal(self, nbytes: int, in_place: bool, element_bytes: int) -> str | None:
        """Return why this candidate cannot run a call, or None where it can.

        Notes:
            A program runs only where the elements of the whole array divide by its chunks
            (docs/reference/msccl.md).
        """
        if (why := self.refusal(nbytes, in_place)) is not None or self.program is None:
            return why
        if not self._divides(nbytes, element_bytes):
            return f"cuts the array into {self.nchunks} chunks, which its elements do not divide by"
        return None

    def padded(self, nbytes: int, element_bytes: int) -> int:
        """Return the size in bytes that ``nbytes`` is filled up to, so that its elements divide.

        >>> default_candidate("sim").padded(10, 4)
        10
        """
        if self.is_default:
            return nbytes
        elements = -(-nbytes // element_bytes)
        return -(-elements // self.nchunks) * self.nchunks * element_bytes

    def _divides(self, nbytes: int, element_bytes: int) -> bool:
        elements, rest = divmod(nbytes, element_bytes)
        return elements > 0 and rest == 0 and elements % self.nchunks == 0


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The candidates for calls of one collective with sizes in [min_bytes, max_bytes).

    ``max_bytes`` None has no limit. ``candidates`` stand in the order of preference; the
    runtime's default is always among them, and what stands after it never runs. A ``root`` of
    None holds for every root where there is one.
    """

    collective: CollectiveName
    min_bytes: int
    max_bytes: int | None
    candidates: tuple[Candidate, ...]
    datatype_class: DatatypeClass = "any"
    reduction_class: ReductionClass
    placement: Placement = "any"
    root: int | None = None

    def __post_init__(self) -> None:
        """Refuse empty ranges, a missing default and a root where there is none to have."""
        if self.min_bytes < 0 or self.min_bytes >= _top(self.max_bytes):
            raise ValueError(f"range [{self.min_bytes}, {self.max_bytes}): expected min < max")
        if max(self.min_bytes, self.max_bytes or 0) >= 1 << 62:
            raise ValueError("range: expected sizes below 2**62")
        if sum(c.is_default for c in self.candidates) != 1:
            raise ValueError("candidates: expected the runtime's default exactly once")
        if len({c.name for c in self.candidates}) != len(self.candidates):
            raise ValueError("candidates: two have the same name")
        if self.reduction_class != ("plain" if self.collective in REDUCING else "none"):
            raise ValueError(f"reduction class {self.reduction_class!r} of {self.collective}")
        if not self._root_fits():
            raise ValueError(f"root of {self.collective}: expected one where it has one, only")
        for candidate in self.candidates:
            if candidate.nccl is not None and (why := candidate.nccl.illegal(self.collective)):
                raise ValueError(f"candidate {candidate.name}: {why}")

    def _root_fits(self) -> bool:
        """Programs are for one root; NCCL's own choices and the default hold for all or one."""
        if self.root is None:
            return self.collective not in ROOTED or not any(c.program for c in self.candidates)
        return self.collective in ROOTED and self.root >= 0

    @property
    def default(self) -> Candidate:
        """The runtime's own choice."""
        return next(c for c in self.candidates if c.is_default)

    def without_algorithms(self) -> Entry:
        """Return the entry for runtimes that cannot set NCCL's own algorithms."""
        left = tuple(c for c in self.candidates if c.nccl is None)
        return msgspec.structs.replace(self, candidates=left)

    def covers(self, nbytes: int) -> bool:
        """Return whether a call of ``nbytes`` bytes falls into this entry's range."""
        return self.min_bytes <= nbytes < _top(self.max_bytes)

    def takes(self, in_place: bool) -> bool:
        """Return whether this entry holds for the placement."""
        return self.placement in ("any", "in-place" if in_place else "out-of-place")

    def choices(self, in_place: bool) -> list[tuple[int, int | None, Candidate]]:
        """Return (min_bytes, max_bytes, candidate) over the entry's range, half open and rising.

        The candidate is the first that has the placement and is safe at every size of the range.
        Divisibility is a call's matter and not looked at.
        """
        ends = {c.max_safe_bytes + 1 for c in self.candidates if c.max_safe_bytes}
        edges = sorted(end for end in ends if self.min_bytes < end < _top(self.max_bytes))
        highs: list[int | None] = [*edges, self.max_bytes]
        ranges: list[tuple[int, int | None, Candidate]] = []
        for low, high in zip((self.min_bytes, *edges), highs, strict=True):
            candidate = next(c for c in self.candidates if c.refusal(low, in_place) is None)
            if ranges and ranges[-1][2] == candidate:
                low = ranges.pop()[0]
            ranges.append((low, high, candidate))
        return ranges


def _top(max_bytes: int | None) -> float:
    return math.inf if max_bytes is None else max_bytes


def default_candidate(
    on: Source, stats: Statistics | None = None, notes: tuple[str, ...] = (), sms: int = 0
) -> Candidate:
    """Return the runtime's own default as a candidate, with its SMs (0: not known).

    >>> default_candidate("sim").is_default
    True
    """
    return Candidate(name=DEFAULT_NAME, on=on, stats=stats, notes=notes, sms=sms)
