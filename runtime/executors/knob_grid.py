"""The grid of backend knobs and which of its points are legal."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from tuccl.program import Knobs, default_buffer_bytes, max_threads

PROTOCOLS = ("Simple", "LL", "LL128")
CHANNELS = (1, 2, 4, 8, 16)
THREADS = tuple(range(32, 641, 32))
BUFFERS = tuple(256 << i for i in range(16))


@cache
def _legal_buffers(buffers: tuple[int, ...], protocol: str) -> tuple[int, ...]:
    sizes = sorted({*buffers, default_buffer_bytes(protocol)})
    most = max_threads(protocol)
    return tuple(b for b in sizes if Knobs(protocol, 1, most, b).illegal() is None)


@cache
def _legal_threads(threads: tuple[int, ...], protocol: str, channels: int) -> tuple[int, ...]:
    points = {Knobs(protocol, channels, count).normalised() for count in threads}
    return tuple(sorted(k.threads for k in points if k.illegal() is None))


@dataclass(frozen=True)
class KnobGrid:
    """The values of each knob that are worth a try on some executor, each rising."""

    protocols: tuple[str, ...] = PROTOCOLS
    channels: tuple[int, ...] = CHANNELS
    threads: tuple[int, ...] = THREADS
    buffers: tuple[int, ...] = BUFFERS

    def without(self, protocols: Collection[str], most_threads: int) -> KnobGrid:
        """Return the grid without ``protocols`` and without what takes more threads."""
        return KnobGrid(
            tuple(p for p in self.protocols if p not in protocols),
            tuple(c for c in self.channels if 32 * c <= most_threads),
            tuple(t for t in self.threads if t <= most_threads),
            self.buffers,
        )

    def restrictions(self) -> tuple[str, ...]:
        """Return a phrase for each knob of which fewer values than the whole grid's are here.

        >>> WHOLE_GRID.without(("LL128",), 256).restrictions()
        ('protocols Simple, LL', 'channels 1 to 8', 'threads 32 to 256')
        """
        phrases = []
        if len(self.protocols) < len(PROTOCOLS):
            phrases.append(f"protocols {', '.join(self.protocols)}")
        for name, values, every in (
            ("channels", self.channels, CHANNELS),
            ("threads", self.threads, THREADS),
            ("buffers", self.buffers, BUFFERS),
        ):
            if len(values) < len(every):
                span = f"{values[0]} to {values[-1]}" if len(values) > 1 else f"{values[0]} alone"
                phrases.append(f"{name} {span}")
        return tuple(phrases)

    def legal_threads(self, protocol: str, channels: int) -> tuple[int, ...]:
        """Return the grid's thread counts that stay distinct after normalising, rising.

        >>> WHOLE_GRID.legal_threads("LL", 16)
        (512,)

        Notes:
            threads >= 32 x channels is the paper's thread-channel rule (TuCCL III.C); the native
            ``Knobs`` states it and the protocol's limit.
        """
        return _legal_threads(self.threads, protocol, channels)

    def legal_buffers(self, protocol: str) -> tuple[int, ...]:
        """Return the grid's buffer sizes in bytes that ``protocol`` may use, and its default.

        A buffer whose slot (an eighth) holds no line of the protocol is left out.

        >>> WHOLE_GRID.legal_buffers("LL128")[0], 4915200 in WHOLE_GRID.legal_buffers("LL128")
        (1024, True)
        """
        return _legal_buffers(self.buffers, protocol)


WHOLE_GRID = KnobGrid()
