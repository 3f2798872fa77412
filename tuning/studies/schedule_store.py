"""Schedules that take long to make, in a folder that all processes of a tune share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from tuccl import __version__
from tuccl.errors import Infeasible, InputError
from tuccl.files import read_bounded, write_file
from tuccl.synth import Problem, Schedule
from tuccl.synth.model.certificate import verify_schedule

SCHEDULE = ".schedule"
"""Suffix of the files, whose names are hashes of all that their schedules depend on."""
_MOST_BYTES = 256 << 20
_EDITION = 3  # of the methods: changes with what they make for equal problems


class _Stored(msgspec.Struct, frozen=True):
    """A schedule, or why there is none."""

    schedule: Schedule | None
    refusal: str = ""


def stored_schedule(
    folder: Path, key: object, problem: Problem, make: Callable[[], Schedule]
) -> Schedule:
    """Return the schedule of ``problem`` that is in ``folder`` under ``key``, else a new one.

    A file that is damaged, or whose schedule is wrong, is replaced.

    Raises:
        Infeasible: there is none.
    """
    name = hashlib.sha256(repr((__version__, _EDITION, key)).encode()).hexdigest()
    path = folder / f"{name}{SCHEDULE}"
    stored = _read(path, problem)
    if stored is None:
        try:
            stored = _Stored(make())
        except Infeasible as error:
            stored = _Stored(None, str(error))
        write_file(path, msgspec.msgpack.encode(stored))
    if stored.schedule is None:
        raise Infeasible(stored.refusal)
    return stored.schedule


def _read(path: Path, problem: Problem) -> _Stored | None:
    try:
        stored = msgspec.msgpack.decode(read_bounded(path, _MOST_BYTES), type=_Stored)
        right = stored.schedule is None or _is_right(stored.schedule, problem)
    except (InputError, msgspec.DecodeError, TypeError, ValueError):  # numbers beyond 32 bits, too
        return None
    return stored if right else None


def _is_right(schedule: Schedule, problem: Problem) -> bool:
    """Return whether it is a schedule of ``problem`` that stays in its memory and is right."""
    ranks, chunks = schedule.period or problem.sketch.ranks, problem.nchunks
    facts = schedule.collective, schedule.nchunks, schedule.chunks_per_rank, len(schedule.scratch)
    if facts != (problem.collective, chunks, problem.chunks_per_rank, ranks):
        return False
    return any(verify_schedule(schedule, in_place) is None for in_place in (False, True))
