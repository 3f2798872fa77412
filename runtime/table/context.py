"""The context of a table that was tuned in real runs: what its ranks shared there."""

from __future__ import annotations

import msgspec

_LEAST_QUOTA = 0.9  # of the other: the same


class JobContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts that ranks share where they run and that decide which transports there are.

    Attributes:
        shares: By name, as "/dev/shm", for each rank the lowest rank that shares it with it.
        quota_cpus: Processors that each rank's control group may use; None: all.

    >>> one = JobContext({"kernel": (0, 0), "/dev/shm": (0, 0)}, (None, None))
    >>> two = JobContext({"kernel": (0, 0), "/dev/shm": (0, 1)}, (None, None))
    >>> one.difference(two)
    'ranks 0 and 1 shared /dev/shm where it was tuned, and do not here'
    """

    shares: dict[str, tuple[int, ...]]
    quota_cpus: tuple[float | None, ...]

    def __post_init__(self) -> None:
        """Refuse what is no partition of the ranks."""
        ranks = len(self.quota_cpus)
        for name, first in self.shares.items():
            if len(first) != ranks or any(
                not 0 <= lowest <= rank or first[lowest] != lowest
                for rank, lowest in enumerate(first)
            ):
                raise ValueError(f"context, {name[:40]!r}: expected the lowest rank of each")

    def difference(self, here: JobContext) -> str:
        """Return why a table of this context is not for ranks ``here``; empty: it is.

        What one of the two does not know is not compared.
        """
        if len(self.quota_cpus) != len(here.quota_cpus):
            return f"it was tuned for {len(self.quota_cpus)} ranks, here are {len(here.quota_cpus)}"
        for name, tuned in self.shares.items():
            now = here.shares.get(name, tuned)
            for rank, (before, after) in enumerate(zip(tuned, now, strict=True)):
                if before != after:
                    ranks = f"ranks {min(before, after)} and {rank}"
                    were, are = ("shared", "do not") if before < after else ("did not share", "do")
                    return f"{ranks} {were} {name} where it was tuned, and {are} here"
        for rank, quotas in enumerate(zip(self.quota_cpus, here.quota_cpus, strict=True)):
            if not _is_as_much(*quotas):
                was, has = (f"{cpus:g} CPUs" if cpus else "all CPUs" for cpus in quotas)
                return f"rank {rank} had {was} where it was tuned, and has {has} here"
        return ""


def _is_as_much(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return min(before, after) >= _LEAST_QUOTA * max(before, after)
