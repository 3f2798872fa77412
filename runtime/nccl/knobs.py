"""Knobs that a table sets for unmodified NCCL: algorithm, protocol, channels, chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

NcclAlgorithm = Literal["Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"]
MOST_NCCL_CHANNELS = 64  # MAXCHANNELS, src/include/device.h of 2.27 on
_MOST_CHUNK = 1 << 30
# The kernels that exist: src/device/generate.py, algos_of_coll.
_SHARED: tuple[NcclAlgorithm, ...] = ("Ring", "CollnetDirect", "NVLS", "PAT")
_REDUCED: tuple[NcclAlgorithm, ...] = (
    "Tree",
    "Ring",
    "CollnetDirect",
    "CollnetChain",
    "NVLS",
    "NVLSTree",
)
ALGORITHMS: Mapping[str, tuple[NcclAlgorithm, ...]] = {
    "allgather": _SHARED,
    "reduce-scatter": _SHARED,
    "allreduce": _REDUCED,
    "broadcast": ("Ring",),
    "reduce": ("Ring",),
}
TUNED_COLLECTIVES = tuple(ALGORITHMS)


class NcclKnobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """NCCL's algorithm and protocol, with ``channels`` and ``chunk_bytes`` (0: NCCL's own).

    >>> NcclKnobs(algorithm="Tree", protocol="LL").illegal("allgather")
    'NCCL has no Tree for allgather'
    """

    algorithm: NcclAlgorithm
    protocol: Literal["LL", "LL128", "Simple"]
    channels: int = 0
    chunk_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse what no NCCL has."""
        if not 0 <= self.channels <= MOST_NCCL_CHANNELS:
            raise ValueError(f"channels {self.channels}: expected 0 to {MOST_NCCL_CHANNELS}")
        if not 0 <= self.chunk_bytes <= _MOST_CHUNK:
            raise ValueError(f"chunk_bytes {self.chunk_bytes}: expected 0 to {_MOST_CHUNK}")
        if self.protocol != "Simple" and self.algorithm not in ("Ring", "Tree"):
            raise ValueError(f"{self.algorithm} with {self.protocol}: expected Simple")

    def illegal(self, collective: str) -> str | None:
        """Return why NCCL has no such kernel for ``collective``, or None where it has."""
        if self.algorithm in ALGORITHMS.get(collective, ()):
            return None
        return f"NCCL has no {self.algorithm} for {collective}"

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that make NCCL run these knobs for every call.

        >>> NcclKnobs(algorithm="Ring", protocol="LL", channels=4).variables["NCCL_MAX_NCHANNELS"]
        '4'
        """
        variables: dict[str, str] = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol}
        if self.channels:
            count = str(self.channels)
            variables |= {"NCCL_MIN_NCHANNELS": count, "NCCL_MAX_NCHANNELS": count}
        return variables

    @property
    def name(self) -> str:
        """Return a name for a candidate.

        >>> NcclKnobs(algorithm="Ring", protocol="LL128", channels=8).name
        'nccl-Ring-LL128-c8'
        """
        parts = ["nccl", self.algorithm, self.protocol]
        parts += [f"c{self.channels}"] if self.channels else []
        parts += [f"k{self.chunk_bytes}"] if self.chunk_bytes else []
        return "-".join(parts)
