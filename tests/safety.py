"""Up to which size a program can run: one whose thread blocks send first may block above it."""

from __future__ import annotations

import math

from tuccl.program import Knobs, Program, verify

__all__ = ["safe_bytes"]


def safe_bytes(program: Program, knobs: Knobs, root: int = 0) -> float:
    """Return the largest size in bytes that is proven safe with ``knobs``, whatever it claims."""
    bare = program.replace(protocol=knobs.protocol, min_bytes=0, max_bytes=1)
    report = verify(bare, "executor", root, knobs.buffer_bytes)
    return (report.max_safe_bytes or math.inf) if report.ok else 0
