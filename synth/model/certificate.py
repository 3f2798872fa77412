"""Proof that a schedule, run one transfer after another, computes its collective."""

from __future__ import annotations

from tuccl.synth.model.schedule import Schedule


def verify_schedule(schedule: Schedule, in_place: bool = False) -> str | None:
    """Return what is wrong with `schedule` out of place (or in place), None if nothing is.

    Notes:
        Contributions are followed as sets: every output must end with the right chunk, reduced
        over every rank exactly once (or owned by the rank that it came from).
    """
    return schedule.native.fault(in_place) or None
