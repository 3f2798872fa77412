"""Merging the times that jobs measured with a table into the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuccl.runtime.table.entry import Candidate, Entry
from tuccl.runtime.table.lock import exclusive_use
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.store import Table, load_table, save_table
from tuccl.runtime.table.text import table_text
from tuccl.selection import Selector

_REMARK = "in service: "


@dataclass(frozen=True)
class ObservedTiming:
    """Times of one candidate in jobs, in us of the executor's clock; ``tuned_us`` is the table's.

    ``place`` is where it stands in its entry, ``moves_to`` where it would after `merge_observed`.
    ``gain`` is its recent time over the shortest one measured in its entry: of the first candidate
    what the entry gains at least if it is ordered, or tuned, anew.
    """

    entry: int
    collective: str
    min_bytes: int
    max_bytes: int | None
    candidate: str
    tuned_us: float | None
    calls: int
    median_us: float
    p10_us: float
    p99_us: float
    recent_us: float
    place: int
    moves_to: int
    gain: float

    @property
    def drift(self) -> float | None:
        """The recent time over the tuned one."""
        return self.recent_us / self.tuned_us if self.tuned_us else None


def observed_timings(folder: Path) -> tuple[tuple[ObservedTiming, ...], str]:
    """Return what jobs measured with the table in ``folder``, and why some was left aside, if so.

    Raises:
        InputError: the table is bad.
    """
    return _rows(load_table(folder))


def _rows(stored: Table) -> tuple[tuple[ObservedTiming, ...], str]:
    selector = Selector(table_text(stored.lookup))
    observations, left_aside = selector.observed(str(stored.folder))
    orders, _ = selector.observed_ranking(str(stored.folder))
    rows = []
    for observation in observations:
        in_entry = [other.recent_us for other in observations if other.entry == observation.entry]
        entry = stored.lookup.entries[observation.entry]
        candidate = entry.candidates[observation.place]
        rows.append(
            ObservedTiming(
                entry=observation.entry,
                collective=entry.collective,
                min_bytes=entry.min_bytes,
                max_bytes=entry.max_bytes,
                candidate=candidate.name,
                tuned_us=None if candidate.stats is None else candidate.stats.median_us,
                calls=observation.count,
                median_us=observation.median_us,
                p10_us=observation.p10_us,
                p99_us=observation.p99_us,
                recent_us=observation.recent_us,
                place=observation.place,
                moves_to=orders[observation.entry].index(observation.place),
                gain=observation.recent_us / min(in_entry),
            )
        )
    return tuple(rows), left_aside


def merge_observed(folder: Path) -> bool:
    """Write what jobs measured into the table in ``folder``; return whether that changed it.

    Candidates come in the order of their recent times, and ``recent_us`` becomes what the tuning
    would measure now: times of the GPU's clock and of the tuning are not mixed. Medians stay, and
    what was measured goes on counting, so that merging twice is merging once. The table is
    replaced in one step; whatever happens, the old or the new one is whole.

    Raises:
        InputError: the table is bad, a job uses it, or the disk refuses.
    """
    with exclusive_use(folder):
        stored = load_table(folder)
        rows, _ = _rows(stored)
        if not rows:
            return False
        selector = Selector(table_text(stored.lookup))
        orders, recents = selector.observed_ranking(str(folder))
        table, positions = _merged(stored.lookup, rows, orders, recents)
        if table == stored.lookup:
            return False

        def learned(sealed: LookupTable) -> bytes:
            return selector.renumbered(str(folder), table_text(sealed), positions)

        save_table(table, folder, stored.topology, stored.files, learned)
    return True


def _merged(
    table: LookupTable,
    rows: Sequence[ObservedTiming],
    orders: Sequence[Sequence[int]],
    recents: Sequence[float],
) -> tuple[LookupTable, list[int]]:
    """The table with its candidates in their new order, and where each of them now stands."""
    measured = {(row.entry, row.place): row for row in rows}
    entries: list[Entry] = []
    positions: list[int] = []
    for number, (entry, order) in enumerate(zip(table.entries, orders, strict=True)):
        first = len(positions)
        updated = [
            _with_observation(candidate, measured.get((number, k)), recents[first + k])
            for k, candidate in enumerate(entry.candidates)
        ]
        positions += [first + order.index(k) for k in range(len(updated))]
        candidates = tuple(updated[k] for k in order)
        entries.append(msgspec.structs.replace(entry, candidates=candidates))
    return msgspec.structs.replace(table, entries=tuple(entries)), positions


def _with_observation(
    candidate: Candidate, row: ObservedTiming | None, recent_us: float
) -> Candidate:
    if row is None:
        return candidate
    remark = (
        f"{_REMARK}{row.calls} times, median {row.median_us:.4g} us, p99 {row.p99_us:.4g} us, "
        f"recently {row.recent_us:.4g} us of the GPU's clock"
    )
    notes = (*(n for n in candidate.notes if not n.startswith(_REMARK)), remark)
    stats = candidate.stats
    if stats is not None:
        stats = msgspec.structs.replace(stats, recent_us=recent_us)
    return msgspec.structs.replace(candidate, stats=stats, notes=notes)
