"""Proof that a schedule, run one transfer after another, computes its collective."""

from __future__ import annotations

from tuccl.planners import Transfers
from tuccl.synth.model.schedule import Schedule


def transfers_of(schedule: Schedule) -> Transfers:
    """Return the transfers of `schedule` as the native floor takes them."""
    collective, hints = schedule.collective, schedule.hints
    return Transfers(
        [
            (t.src, t.dst, t.src_at, t.dst_at, t.count, t.reduce, t.operand, t.channel)
            for t in schedule.transfers
        ],
        collective=collective.name,
        root=collective.root,
        ranks=collective.ranks,
        nchunks=schedule.nchunks,
        chunks_per_rank=schedule.chunks_per_rank,
        scratch=list(schedule.scratch),
        split_send_recv=hints.split_send_recv,
        sends_first=hints.sends_first,
        shared=list(hints.shared_threadblocks),
    )


def verify_schedule(schedule: Schedule, in_place: bool = False) -> str | None:
    """Return what is wrong with `schedule` out of place (or in place), None if nothing is.

    Notes:
        Contributions are followed as sets: every output must end with the right chunk, reduced
        over every rank exactly once (or owned by the rank that it came from).
    """
    return transfers_of(schedule).fault(in_place) or None
