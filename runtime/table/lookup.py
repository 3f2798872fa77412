"""The lookup table in memory: its entries, and the check that each call has one."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from tuccl import __version__
from tuccl.runtime.nccl.versions import NCCL_VERSION
from tuccl.runtime.table.context import JobContext
from tuccl.runtime.table.entry import DATATYPE_CLASSES, ROOTED, Candidate, Entry

FORMAT = "tuccl-table/1"
# Dialects whose runtime calls a tuner plugin to choose what NCCL runs.
WITH_TUNER = frozenset({"nccl", "executor", "rccl"})
CREATED_BY = f"tuccl {__version__}"
Range = tuple[int, int]
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,120}")
_SIGNATURE = re.compile(r"[0-9a-f]{16}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LookupTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Entries for one topology, in the order in which files list them.

    ``signature``, ``ranks`` and ``hosts`` are the topology's, ``dialect`` the one that the program
    files are written in (``nccl``: there are none, and candidates are NCCL's own; ``executor`` and
    ``rccl`` may have both; ``mscclpp``: they are the executor's, timed as plans), ``tuned_on`` the
    executor's label ("simulated on ..."), ``baseline`` what the default candidates stand for
    ("nccl 2.19"), ``context`` what the ranks shared where real runs were timed (None: no matter).
    The three checksums are filled in by ``save_table``.
    """

    name: str
    signature: str
    ranks: int
    entries: tuple[Entry, ...]
    hosts: int = 1
    dialect: Literal["executor", "rccl", "fork", "nccl", "mscclpp"] = "executor"
    tuned_on: str = ""
    baseline: str = ""
    context: JobContext | None = None
    created_by: str = CREATED_BY
    format: Literal["tuccl-table/1"] = "tuccl-table/1"
    topology_sha256: str = ""
    text_sha256: str = ""
    checksum: str = ""

    @property
    def nccl_version(self) -> str:
        """The version of the NCCL whose choice the default candidates stand for."""
        name, _, version = self.baseline.partition(" ")
        return version if name == "nccl" and version else NCCL_VERSION

    def __post_init__(self) -> None:
        """Refuse entries that overlap or leave gaps, and roots that no rank has."""
        for field, text in (("name", self.name), ("created_by", self.created_by)):
            if not _NAME.fullmatch(text):
                raise ValueError(f"{field} {text[:40]!r}: expected 1 to 120 printable characters")
        if not _SIGNATURE.fullmatch(self.signature):
            raise ValueError("signature: expected 16 lower-case hexadecimal digits")
        if self.ranks < 1:
            raise ValueError("ranks: expected at least 1")
        if not 1 <= self.hosts <= self.ranks:
            raise ValueError(f"hosts {self.hosts}: expected 1 to {self.ranks}, the ranks")
        if bad_roots := [e.root for e in self.entries if (e.root or 0) >= self.ranks]:
            raise ValueError(f"root {bad_roots[0]}: expected a rank below {self.ranks}")
        check_entries(self.entries)
        self._check_programs()
        self._check_dialect()

    def _check_dialect(self) -> None:
        """NCCL runs no programs; of MSCCL's runtimes some have tuners, which know only so much."""
        is_nccl, has_tuner = self.dialect == "nccl", self.dialect in WITH_TUNER
        for entry in self.entries:
            for candidate in entry.candidates:
                known = has_tuner if candidate.nccl is not None else not is_nccl
                if not candidate.is_default and not known:
                    expected = "NCCL's own choices" if is_nccl else "programs"
                    raise ValueError(
                        f"{candidate.name}: dialect {self.dialect} has {expected} only"
                    )
            if not is_nccl and entry.root is None and entry.collective in ROOTED:
                raise ValueError(f"root of {entry.collective}: expected one, programs are for one")
            key = (entry.placement, entry.datatype_class, entry.root)
            if is_nccl and key != ("any", "any", None):
                raise ValueError(
                    f"{entry.collective}: NCCL's tuners get no placement, datatype or root; "
                    "expected any, any and none"
                )

    def _check_programs(self) -> None:
        """One file has one content, so that a checksum proves it."""
        checksums: dict[str, str] = {}
        for candidate in self.candidates:
            if candidate.program is None:
                continue
            if checksums.setdefault(candidate.program, candidate.sha256) != candidate.sha256:
                raise ValueError(f"{candidate.program}: two different checksums")

    @property
    def candidates(self) -> Iterator[Candidate]:
        """Every candidate of every entry."""
        return (candidate for entry in self.entries for candidate in entry.candidates)

    @property
    def programs(self) -> dict[str, str]:
        """Checksum of each program file by its path within the folder, sorted."""
        checksums = {c.program: c.sha256 for c in self.candidates if c.program is not None}
        return dict(sorted(checksums.items()))


def check_entries(entries: Iterable[Entry]) -> None:
    """Refuse two entries for one call, and gaps between the sizes of one collective.

    A collective may start above 0 bytes and end below infinity: outside, the default runs.

    Raises:
        ValueError: two entries overlap, or leave a gap; the message names both.
    """
    kinds: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        for kind in _kinds(entry):
            kinds[kind].append(entry)
    for members in kinds.values():
        members.sort(key=lambda e: e.min_bytes)
        for low, high in pairwise(members):
            _check_neighbours(low, high)


def _kinds(entry: Entry) -> Iterator[tuple[object, ...]]:
    """Every (collective, root, datatype, placement) that the entry answers for."""
    datatypes = DATATYPE_CLASSES if entry.datatype_class == "any" else (entry.datatype_class,)
    for datatype in datatypes:
        for in_place in (False, True):
            if entry.takes(in_place):
                yield entry.collective, entry.root, datatype, in_place


def _check_neighbours(low: Entry, high: Entry) -> None:
    end = math.inf if low.max_bytes is None else low.max_bytes
    if end != high.min_bytes:
        problem = "overlap" if end > high.min_bytes else "leave a gap"
        raise ValueError(
            f"{low.collective}: entries [{low.min_bytes}, {low.max_bytes}) and "
            f"[{high.min_bytes}, {high.max_bytes}) {problem}"
        )


def ranges_from_sizes(sizes: Sequence[int]) -> list[Range]:
    """Return the half-open size range in bytes that each tuned size answers for.

    Neighbours meet at their geometric mean. The ends reach out by half a step (a factor of
    two for a single size), no further: beyond them nothing was tried and the default runs.

    >>> ranges_from_sizes([1024, 4096, 16384])
    [(512, 2048), (2048, 8192), (8192, 32768)]

    Raises:
        ValueError: the sizes do not rise, or are not positive.
    """
    if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
        raise ValueError("sizes: expected at least one, positive and rising")
    middles = [math.isqrt(a * b - 1) + 1 for a, b in pairwise(sizes)]
    low_factor = _half_step(sizes[0], sizes[1]) if len(sizes) > 1 else 2.0
    high_factor = _half_step(sizes[-2], sizes[-1]) if len(sizes) > 1 else 2.0
    low = min(max(round(sizes[0] / low_factor), 1), sizes[0])
    high = max(round(sizes[-1] * high_factor), sizes[-1] + 1)
    edges = [low, *middles, high]
    return list(pairwise(edges))


def _half_step(low: int, high: int) -> float:
    return math.sqrt(high / low)
