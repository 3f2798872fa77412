"""The entries and knobs that an unmodified runtime supports (docs/reference/msccl.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tuccl.program import default_buffer_bytes
from tuccl.runtime.table.entry import Entry, KnobValues
from tuccl.synth.model.collective import ROOTED
from tuccl.units import format_bytes

BUFFER_VARIABLES = {
    "Simple": "NCCL_BUFFSIZE",
    "LL": "NCCL_LL_BUFFSIZE",
    "LL128": "NCCL_LL128_BUFFSIZE",
}
_EXECUTOR_THREADS = {"Simple": 512, "LL": 640, "LL128": 640}  # docs/reference/msccl.md
FIXED_THREADS = {
    "executor": _EXECUTOR_THREADS,
    "rccl": dict.fromkeys(_EXECUTOR_THREADS, 256),
}


def exclusion_reason(entry: Entry) -> str | None:
    """Return why no unmodified runtime gets an entry's programs, or None where it does."""
    if entry.collective in ("gather", "scatter"):
        return "no unmodified runtime hands it to MSCCL"
    if entry.collective in ROOTED:
        return "the unmodified selectors ignore the root"
    if entry.datatype_class != "any":
        return "the unmodified selectors ignore the datatype"
    return None


def fork_threads(knobs: KnobValues) -> int | None:
    """Return the fork's ``nthreads`` for ``knobs``, or None where it would refuse it.

    Notes:
        Under Simple the fork adds a warp itself, and a slice must be cut into whole trips of 8
        bytes a thread (microsoft/msccl src/enqueue.cc; docs/reference/msccl.md).
    """
    if knobs.protocol == "Simple" and knobs.knobs.slice_bytes % (8 * knobs.threads):
        return None
    return knobs.threads


def hangs_between_hosts(collective: str, protocol: str, hosts: int) -> bool:
    """Return whether MSCCL's runtimes hang in a program of ``collective`` on so many hosts.

    Notes:
        Of a broadcast or reduce under Simple the kernel posts four slots where the proxy of a
        network serves one (docs/reference/msccl.md).
    """
    return collective in ("broadcast", "reduce") and protocol == "Simple" and hosts > 1


def changes_threads(knobs: KnobValues, dialect: str) -> bool:
    """Return whether ``dialect`` runs a program with other threads than it was tuned with."""
    if dialect == "fork":
        return fork_threads(knobs) is None
    return knobs.threads != FIXED_THREADS[dialect][knobs.protocol]


def process_buffers(knobs_in_use: Iterable[KnobValues]) -> dict[str, int]:
    """Return each protocol's buffer in bytes: that of its programs if they agree, else NCCL's."""
    sizes_by_protocol: dict[str, set[int]] = defaultdict(set)
    for knobs in knobs_in_use:
        sizes_by_protocol[knobs.protocol].add(knobs.buffer_bytes)
    buffers = {protocol: default_buffer_bytes(protocol) for protocol in _EXECUTOR_THREADS}
    return buffers | {
        p: next(iter(sizes)) for p, sizes in sizes_by_protocol.items() if len(sizes) == 1
    }


def unsupported_knobs(knobs: KnobValues, dialect: str, buffers: dict[str, int]) -> tuple[str, ...]:
    """Return the knobs that ``dialect`` does not honour, in words, where it has ``buffers``."""
    if dialect == "mscclpp":  # plans have them all
        return ()
    unsupported = []
    if changes_threads(knobs, dialect):
        fixed = FIXED_THREADS.get(dialect, {}).get(knobs.protocol)
        has = f", {dialect} has {fixed}" if fixed else ""
        unsupported.append(f"{knobs.threads} threads{has}")
    if (buffer_bytes := buffers[knobs.protocol]) != knobs.buffer_bytes:
        tuned, actual = format_bytes(knobs.buffer_bytes), format_bytes(buffer_bytes)
        unsupported.append(f"buffer of {tuned}, the process has {actual}")
    return tuple(unsupported)
