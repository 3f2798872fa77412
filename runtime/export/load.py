"""Costs of loading an export of MSCCL programs, for each rank."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tuccl.program import Program, parse_xml
from tuccl.runtime.export.rules import FORK_FILES
from tuccl.synth.lowering.limits import limits_of

# Of a program of any size, on the host and again on the GPU: sizeof(mscclAlgo) of 64 steps
# (msccl_struct.h); mscclAlgorithm (msccl.h), of which each of the fork's communicators has four.
_KEPT_BYTES = {"executor": 2_605_392, "fork": 7_242_112}


@dataclass(frozen=True)
class Load:
    """Costs of an export for each rank, and the most that one of its programs has.

    Attributes:
        file_bytes: Of all files, which each rank reads whole.
        parse_s: CPU seconds of tuccl's own reader for them, measured here.
        kept_bytes: What the runtime keeps, on the host and again on the GPU; None: not known.
        most: By word for it, the most of a program and the dialect's limit.
    """

    file_bytes: int
    parse_s: float = field(compare=False)
    kept_bytes: int | None
    most: Mapping[str, tuple[int, int]]

    @property
    def text(self) -> str:
        """Return one line for people."""
        kept = self.kept_bytes and f", keeps {self.kept_bytes / 1e6:.1f} MB on host and GPU"
        most = ", ".join(f"{most} of {limit} {word}" for word, (most, limit) in self.most.items())
        return (
            f"each rank reads {self.file_bytes / 1e6:.1f} MB ({self.parse_s * 1e3:.1f} ms of CPU, "
            f"measured with tuccl's reader){kept or ''}; programs have at most {most}"
        )


def load_of(
    contents: Mapping[str, bytes], programs: Collection[Program], dialect: str
) -> Load | None:
    """Return what a rank loads of the files ``contents`` of ``programs``; None without files."""
    if not contents:
        return None
    begun = time.process_time()
    for name, text in contents.items():
        parse_xml(text, name, rank=0)
    seconds = time.process_time() - begun
    limits, kept = limits_of(dialect), _KEPT_BYTES.get(dialect)
    places = FORK_FILES if dialect == "fork" else len(contents)
    return Load(
        file_bytes=sum(map(len, contents.values())),
        parse_s=seconds,
        kept_bytes=kept and kept * places,
        most={
            "thread blocks": (max(p.threadblocks for p in programs), limits.threadblocks),
            "steps": (max(p.max_steps for p in programs), limits.steps),
            "channels": (max(p.nchannels for p in programs), limits.channels),
        },
    )
