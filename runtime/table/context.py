"""The context of a table that was tuned in real runs: what its ranks shared there."""

from __future__ import annotations

import msgspec

_LEAST_QUOTA = 0.9  # of the other: the same


class JobContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ranks share where they run, as far as it decides which transports there are.

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
                    shared, other = before < after, min(before, after)
                    were, are = ("shared", "do not") if shared else ("did not share", "do")
                    return f"ranks {other} and {rank} {were} {name} where it was tuned, and {are} here"
        for rank, (before, after) in enumerate(zip(self.quota_cpus, here.quota_cpus, strict=True)):
            if before != after and not (
                before and after and min(before, after) >= _LEAST_QUOTA * max(before, after)
            ):
                was, now = (f"{cpus:g}" if cpus else "no" for cpus in (before, after))
                return f"rank {rank} had a quota of {was} CPUs where it was tuned, and {now} here"
        return ""
