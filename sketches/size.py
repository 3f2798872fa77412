"""Effects of the size on a sketch: links that it prefers, and chunks."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.reachability import unreachable_pair
from tuccl.sketches.sketch import PrunedLink, Sketch

NVLINK_FIRST_BYTES = 10_000_000
"""From this size on NVLink paths go first (TuCCL III.B: "NVLink paths for gradients > 10 MB")."""

PACKET_BYTES = 256
"""Payload of a PCIe packet that chunks are aligned to; usual maximum payloads are 128 and 256 B."""


def prefer_links(sketch: Sketch, pairs: Iterable[tuple[int, int]], from_bytes: int) -> Sketch:
    """Return `sketch` with the links of `pairs` preferred for `from_bytes` and more."""
    preferred = frozenset(pairs)
    return replace(
        sketch,
        links=tuple(
            replace(link, prefer_from_bytes=from_bytes)
            if (link.src, link.dst) in preferred
            else link
            for link in sketch.links
        ),
    )


def for_size(sketch: Sketch, nbytes: int) -> Sketch:
    """Return what is left of `sketch` for a collective of `nbytes`: preferred links first.

    On every host some of whose links are preferred at that size, the other links inside the host
    go (stage "size"), if the preferred ones alone join the host's ranks both ways. Links between
    hosts stay.

    Notes:
        The guidance of TuCCL III.B. A pair of GPUs without NVLink between them (as on DGX-1)
        is then served over two NVLink hops instead of one that crosses PCIe and the CPUs.
    """
    intra = [link for link in sketch.links if not link.inter]
    preferred = {(link.src, link.dst) for link in intra if 0 < link.prefer_from_bytes <= nbytes}
    hosts = {sketch.hosts[src] for src, _ in preferred}
    joined_hosts = {host for host in hosts if _joins(sketch, host, preferred)}
    dropped = {
        (link.src, link.dst): PrunedLink(
            src=link.src,
            dst=link.dst,
            stage="size",
            reason=f"{nbytes} B go over preferred links, which join the host without it",
        )
        for link in intra
        if sketch.hosts[link.src] in joined_hosts and (link.src, link.dst) not in preferred
    }
    if not dropped:
        return sketch
    return replace(
        sketch,
        links=tuple(link for link in sketch.links if (link.src, link.dst) not in dropped),
        pruned=sketch.pruned + tuple(dropped.values()),
    )


def _joins(sketch: Sketch, host: int, pairs: Iterable[tuple[int, int]]) -> bool:
    local = {rank: index for index, rank in enumerate(sketch.ranks_of(host))}
    host_pairs = [(local[src], local[dst]) for src, dst in pairs if src in local and dst in local]
    return unreachable_pair(len(local), host_pairs) is None


def aligned_chunks(nbytes: int, nchunks: int, align_bytes: int = PACKET_BYTES) -> int:
    """Return how many equal chunks to cut `nbytes` into: at most `nchunks`, each aligned.

    The largest count up to `nchunks` whose chunks are whole multiples of `align_bytes`. Where no
    count gives that (`nbytes` itself is no multiple, or smaller), alignment steps down by halves
    to 16 B, the line of NCCL's protocols, and after that the largest count that divides `nbytes`.

    >>> aligned_chunks(1 << 20, 6, 256), aligned_chunks(1024, 8, 256), aligned_chunks(96, 4, 256)
    (4, 4, 3)

    Raises:
        InputError: a number is below 1.

    Notes:
        TuCCL III.B aligns chunks to PCIe packets, so that no transfer ends in a part-filled one.
    """
    if min(nbytes, nchunks, align_bytes) < 1:
        raise InputError(
            f"chunks of {nbytes} B in {nchunks} parts aligned to {align_bytes} B: "
            "expected numbers of at least 1"
        )
    align = align_bytes
    while align >= 16:
        if nbytes % align == 0:
            return _largest_divisor(nbytes // align, nchunks)
        align //= 2
    return _largest_divisor(nbytes, nchunks)


def _largest_divisor(number: int, most: int) -> int:
    return next(count for count in range(min(number, most), 0, -1) if number % count == 0)
