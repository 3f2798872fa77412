"""Sizes of calls that a plan can serve."""

from __future__ import annotations

from dataclasses import dataclass

_WORD = 1 << 32  # offsets have 32 bits
_SHARED_SCRATCH = 1 << 26  # bytes of half the scratch that plans share
_MOST_PIECES = 65535  # of a pipeline
_ALIGNMENT = 16  # bytes: a thread moves and adds up so many at once


@dataclass(frozen=True)
class Extent:
    """Chunks of a plan: of the whole array, of each rank's input and of its scratch.

    Attributes:
        packets: Scratch holds packets, twice the bytes, in two halves.
        shared: It is the scratch that all such plans of a process share.
    """

    nchunks: int
    inputs: int
    scratch: int
    packets: bool = False
    shared: bool = False

    @property
    def step(self) -> int:
        """Bytes of which every size is a multiple."""
        return self.nchunks * _ALIGNMENT

    def most_bytes(self, max_bytes: int, unit_bytes: int = 0, run: int = 1) -> int:
        """Return the largest size up to `max_bytes` whose offsets and scratch the loader can have.

        `unit_bytes` > 0: a pipeline moves runs of `run` chunks in such pieces.
        """
        chunk = _WORD - 1
        if self.scratch:
            chunk = _WORD // (self.scratch * (4 if self.packets else 1))
        inputs = self.inputs  # the loader takes the limit for the send buffer's
        if self.shared and self.scratch:
            chunk, inputs = min(chunk, _SHARED_SCRATCH // (2 * self.scratch)), self.nchunks
        most = min(max_bytes, _WORD - 1, chunk * inputs)
        if unit_bytes:
            most = min(most, _MOST_PIECES * unit_bytes // run * self.nchunks)
        return most // self.step * self.step
