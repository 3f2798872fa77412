"""The calls in NCCL's log: algorithm and protocol of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tuccl.runtime.nccl.knobs import NcclKnobs

_NAMES = {
    "AllGather": "allgather",
    "AllReduce": "allreduce",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "ReduceScatter": "reduce-scatter",
}
_ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_LINE = re.compile(
    r"(?:\b([A-Z]\w+)(?: \[\w+\])?: +)?\b(\d+) Bytes -> "
    r"(?:Algo (\w+) proto (\w+)|Kernel (\S+))"
)


@dataclass(frozen=True)
class LoggedCall:
    """One call as NCCL logged it; ``collective`` is "" where the line does not name it.

    ``nbytes`` is the whole array or one rank's share of it, as the version counts. A kernel that
    is none of the tuners' has its name for an algorithm, and no protocol.
    """

    collective: str
    nbytes: int
    algorithm: str
    protocol: str

    def is_of(self, collective: str, nbytes: int, ranks: int) -> bool:
        """Return whether this may be a call of ``nbytes`` on ``ranks`` ranks.

        >>> LoggedCall("allgather", 128, "Ring", "LL").is_of("allgather", 1024, ranks=8)
        True
        """
        same = self.collective in ("", collective)
        return same and self.nbytes in (nbytes, nbytes // ranks)

    def obeys(self, knobs: NcclKnobs) -> bool:
        """Return whether algorithm and protocol are those of ``knobs``; channels may be fewer.

        >>> LoggedCall("", 1024, "Ring", "LL").obeys(NcclKnobs(algorithm="Tree", protocol="LL"))
        False
        """
        return (self.algorithm, self.protocol) == (knobs.algorithm, knobs.protocol)


def read_logged_calls(lines: Iterable[str]) -> tuple[LoggedCall, ...]:
    """Return the calls in an NCCL_DEBUG=INFO log with NCCL_DEBUG_SUBSYS=TUNING, in order.

    >>> read_logged_calls(["NCCL INFO AllReduce: 64 Bytes -> Algo RING proto LL channel{..}"])
    (LoggedCall(collective='allreduce', nbytes=64, algorithm='Ring', protocol='LL'),)
    >>> read_logged_calls(["NCCL INFO 64 Bytes -> Algo 0 proto 2 time 27.3"])
    (LoggedCall(collective='', nbytes=64, algorithm='Tree', protocol='Simple'),)

    Notes:
        NVIDIA/nccl src/enqueue.cc: older versions write numbers and no collective, later ones
        names. Rank 0 alone writes them.
    """
    matches = (match for line in lines if (match := _LINE.search(line)) is not None)
    return tuple(
        LoggedCall(
            _NAMES.get(match[1] or "", match[1] or ""),
            int(match[2]),
            match[5] or _canonical_name(match[3], _ALGORITHMS),
            "" if match[5] else _canonical_name(match[4], _PROTOCOLS),
        )
        for match in matches
    )


def _canonical_name(word: str, names: tuple[str, ...]) -> str:
    """The name that a number or another spelling (COLLNET_DIRECT, NVLS_TREE) stands for."""
    if word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    plain = word.replace("_", "").lower()
    return next((name for name in names if name.lower() == plain), word)
