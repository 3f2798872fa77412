"""The grid of backend knobs and which of its points are legal."""

from __future__ import annotations

from functools import cache

from tuccl._native import Knobs, default_buffer_bytes, max_threads

__all__ = ["BUFFERS", "CHANNELS", "PROTOCOLS", "THREADS", "legal_buffers", "legal_threads"]

PROTOCOLS = ("Simple", "LL", "LL128")
CHANNELS = (1, 2, 4, 8, 16)
THREADS = tuple(range(32, 641, 32))
BUFFERS = tuple(256 << i for i in range(16))


@cache
def legal_buffers(protocol: str) -> tuple[int, ...]:
    """Return the buffer sizes in bytes that ``protocol`` may use, rising.

    Powers of two from 256 B to 8 MiB and the protocol's default in NCCL; a buffer whose slot
    (an eighth) holds no line of the protocol is left out.

    >>> legal_buffers("LL128")[0], 4915200 in legal_buffers("LL128")
    (1024, True)
    """
    sizes = sorted({*BUFFERS, default_buffer_bytes(protocol)})
    most = max_threads(protocol)
    return tuple(b for b in sizes if Knobs(protocol, 1, most, b).illegal() is None)


@cache
def legal_threads(protocol: str, channels: int) -> tuple[int, ...]:
    """Return the thread counts that stay distinct after normalising, rising.

    >>> legal_threads("LL", 16)
    (512,)

    Notes:
        threads >= 32 x channels is the paper's thread-channel rule (TuCCL III.C); the native
        ``Knobs`` states it and the protocol's limit.
    """
    points = {Knobs(protocol, channels, threads).normalised() for threads in THREADS}
    return tuple(sorted(k.threads for k in points if k.illegal() is None))
