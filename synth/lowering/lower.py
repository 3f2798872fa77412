"""From a schedule to an MSCCL program: what can run at once, where, and within the limits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from tuccl.errors import Infeasible, InputError
from tuccl.program import Program, replicate, verify
from tuccl.synth.lowering.blocks import Block, blocks_of_ranks
from tuccl.synth.lowering.credit import MessageStep, stuck_steps
from tuccl.synth.lowering.fusion import Connection, fuse_receives
from tuccl.synth.lowering.limits import Excess, Limits, excess, limits_of
from tuccl.synth.lowering.order import Order, order
from tuccl.synth.lowering.rewrites import (
    cut_runs,
    in_place_moves,
    merge_runs,
    share_copies,
    spread_chains,
    spread_peers,
    sums_via_scratch,
)
from tuccl.synth.lowering.rotation import (
    Wrapped,
    alike_channels,
    period,
    rotated_connection,
    rotated_gpus,
    rotation_of,
)
from tuccl.synth.lowering.sends_first import earliest_sends
from tuccl.synth.lowering.steps import gpus
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.schedule import Schedule

Placement = Literal["any", "in-place", "out-of-place"]

_RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
_SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
_FEWEST_ROTATED = 32  # ranks; fewer are lowered as a whole in a moment
# Rounds of taking back the fusions that wait for ever before all are taken back.
_MOST_ROUNDS = 6


def lower(
    schedule: Schedule,
    *,
    protocol: str = "Simple",
    instances: int = 1,
    dialect: str = "executor",
    name: str | None = None,
    nthreads: int = 0,
    min_bytes: int | None = None,
    max_bytes: int | None = None,
    placement: Placement = "any",
) -> Program:
    """Return the program that runs `schedule`, verified; `instances` copies share every chunk.

    The program claims out of place, in place, or both, whichever the verifier proves. One for a
    single `placement` waits for nothing that only the other needs, and in place it copies nothing
    onto itself. It cannot deadlock at any size (see `fuse_receives` and `credit`), but where
    sends go first: that program claims the sizes at which the verifier proves that it cannot.

    Raises:
        Infeasible: the schedule is wrong, is not right in this placement, or does not fit the
            dialect's limits; the message names the limit, the rank and the fix.
        InputError: an argument is out of range.
    """
    limits = limits_of(dialect)
    if instances < 1:
        raise InputError(f"{instances} instances: expected at least 1")

    def program(form: Schedule) -> Program:
        modes = _modes(form, placement)
        if not modes[0]:
            form = in_place_moves(form)
        shape = _Shape(form, instances, limits, tuple(at for at in (False, True) if modes[at]))
        shaped = shape.program()
        lowered = Program(
            name or f"{form.collective.name}-{form.method}-{protocol}-i{instances}",
            form.collective.name,
            protocol,
            shaped.nchannels,
            shaped.nchunks,
            shaped.gpus,
            in_place=modes[1],
            out_of_place=modes[0],
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            nthreads=nthreads,
        )
        return _proved(lowered, dialect, form.collective.root)

    if (rotated := _rotated(schedule)) is not None:
        with suppress(Infeasible):
            if (lowered := program(rotated)).max_bytes == max_bytes:
                return lowered
    return program(schedule)


def claims_size(program: Program, nbytes: int, dialect: str) -> bool:
    """Return whether `program`, as lowered for `dialect`, is for calls of `nbytes` bytes too."""
    # The fork's range is half open.
    return program.max_bytes is None or nbytes < program.max_bytes + (dialect != "fork")


def _rotated(schedule: Schedule) -> Schedule | None:
    """Return a large schedule with the rotation found that leaves it as it is, if there is one."""
    hints = schedule.hints
    if schedule.collective.ranks < _FEWEST_ROTATED or hints.rotation or hints.sends_first:
        return None
    merged = merge_runs(schedule)
    by = rotation_of(merged)
    return replace(merged, hints=replace(hints, rotation=by)) if by else None


def _modes(schedule: Schedule, placement: Placement) -> tuple[bool, bool]:
    """Return whether `schedule` is to run, and right, out of place and in place.

    One that repeats is taken to be right: it is large, and its program is verified all the same.
    """
    requested = placement != "in-place", placement != "out-of-place"
    if schedule.hints.rotation:
        return requested
    faults = [
        verify_schedule(schedule, in_place=at) if requested[at] else "not requested"
        for at in (False, True)
    ]
    if None not in faults:
        why = next(each for at, each in enumerate(faults) if requested[at])
        raise Infeasible(f"{schedule.method} {schedule.collective.name}: wrong schedule: {why}")
    return faults[0] is None, faults[1] is None


def _proved(program: Program, dialect: str, root: int) -> Program:
    """Return `program` with the claims that the verifier proves.

    Raises:
        Infeasible: it proves none; the message is the verifier's.
    """
    single = [
        program.replace(in_place=inside, out_of_place=not inside)
        for inside, claimed in ((False, program.out_of_place), (True, program.in_place))
        if claimed
    ]
    for form in [program, *single] if len(single) > 1 else single:
        report = verify(form, dialect, root)
        if report.ok:
            return form
        if form.max_bytes is None and (sized := _sized(form, dialect, root)) is not None:
            return sized
    raise Infeasible(f"{program.name}: {report.errors[0].message}")


def _sized(program: Program, dialect: str, root: int) -> Program | None:
    """Return `program` for the sizes at which it is safe, None where it is so at none."""
    report = verify(program.replace(min_bytes=0, max_bytes=1), dialect, root)
    if not report.ok or not report.max_safe_bytes:
        return None
    if dialect != "fork":
        return program.replace(max_bytes=report.max_safe_bytes)
    limits = (report.max_safe_bytes + 1, program.fork_scratch_limit)
    return program.replace(max_bytes=min(limit for limit in limits if limit is not None))


@dataclass
class _Shape:
    """The search for a form of a schedule that keeps the dialect's limits."""

    schedule: Schedule
    copies: int
    limits: Limits
    placements: tuple[bool, ...]  # whether in place

    def program(self) -> Program:
        """Return the first form that fits.

        Notes:
            What is tried is decided by the limit broken, so there is nothing to tune: too many
            peers on a channel spreads peers over channels, too many steps spreads chunks over
            channels, too many thread blocks has send and receive to one peer take turns.
        """
        hints = self.schedule.hints
        if hints.rotation:
            with suppress(Wrapped):  # it is then lowered as a whole
                return self.fitting(period(self.schedule))
        return self.fitting(merge_runs(replace(self.schedule, hints=replace(hints, rotation=0))))

    def fitting(self, base: Schedule) -> Program:
        """Return the first form that fits of the schedule, or of its `period`, then rotated."""
        base = share_copies(cut_runs(base))
        if not self.limits.fuses:
            base = sums_via_scratch(base)
        chain_ways = peer_ways = 1
        by_peer = self.schedule.hints.sends_first
        fewest = self.limits.xml_elements + 1  # steps of the longest thread block so far
        while True:
            form = self.spread(base, chain_ways, peer_ways)
            program = replicate(self.lowered(form, by_peer), self.copies)
            over = excess(program, self.limits, base.hints.rotation)
            if over is None:
                return program
            if over.limit == "peers" and peer_ways < self.limits.channels:
                peer_ways *= 2
            elif over.limit == "steps" and over.found < fewest and self.has_room(program):
                # As many as would do if steps were spread evenly: each costs thread blocks.
                chain_ways = max(chain_ways + 1, -(-chain_ways * over.found // over.most))
                fewest = over.found
            elif over.limit in ("threadblocks", "awaited") and not by_peer:
                by_peer = True
            else:
                raise Infeasible(self.refusal(over))

    def has_room(self, program: Program) -> bool:
        return program.nchannels * 2 <= self.limits.channels

    def spread(self, base: Schedule, chain_ways: int, peer_ways: int) -> Schedule:
        if chain_ways > 1:
            if base.hints.rotation and not base.hints.split_send_recv:
                raise Wrapped("what the first ranks pass on may come by any channel")
            base = spread_chains(base, order(base, self.placements), chain_ways)
            if base.hints.rotation:
                base = alike_channels(base)
        return spread_peers(base, peer_ways) if peer_ways > 1 else base

    def lowered(self, form: Schedule, by_peer: bool) -> Program:
        """Return `form` as a program that runs to its end on any split of its messages."""
        precedence = order(form, self.placements)
        blocks = self.blocks(form, precedence, by_peer)
        used = sorted({t.channel for t in form.transfers if not t.local})
        channels = {old: new for new, old in enumerate(used)}
        near = form.hints.rotation
        parts = gpus(form, blocks[:near] if near else blocks, channels)
        if near:
            parts = rotated_gpus(form, parts)
        name = form.collective.name
        return Program("", name, "Simple", max(1, len(used)), form.nchunks, parts)

    def blocks(self, form: Schedule, precedence: Order, by_peer: bool) -> list[list[Block]]:
        """Return the thread blocks with as much fused as credit allows."""
        if form.hints.sends_first:
            early = earliest_sends(form, precedence)
            return blocks_of_ranks(form, precedence, early, by_peer=True)
        banned: frozenset[int] = frozenset()
        fuses = self.limits.fuses and not form.hints.split_send_recv
        for _ in range(_MOST_ROUNDS if fuses else 0):
            fused = fuse_receives(form, precedence, banned)
            blocks = blocks_of_ranks(form, precedence, fused, by_peer=by_peer)
            stuck = _stuck_receives(form, blocks)
            if stuck is None:
                return blocks
            banned |= stuck
        plain = fuse_receives(form, precedence, None)
        return blocks_of_ranks(form, precedence, plain, by_peer=by_peer)

    def refusal(self, over: Excess) -> str:
        """Return why no form fits, and what to change."""
        fix = "use fewer instances" if self.copies > 1 else "use fewer chunks per rank"
        if over.limit in ("peers", "threadblocks", "awaited"):
            fix += ", or a method or sketch with fewer connections"
        method, collective = self.schedule.method, self.schedule.collective
        return f"{method} {collective.name} over {collective.ranks} ranks: {over}; {fix}"


def _stuck_receives(schedule: Schedule, blocks: list[list[Block]]) -> frozenset[int] | None:
    """Return the fused receives of thread blocks that never end; None if all end.

    Of a period the first ranks stand for all: what one of them sends to a rank beyond, the image of
    that rank among them receives. All ranks go on alike, for how far a Kahn network comes does not
    depend on whose turn it is.
    """
    near = schedule.hints.rotation
    near_blocks = blocks[:near] if near else blocks
    flat = [(rank, block) for rank, of_rank in enumerate(near_blocks) for block in of_rank]
    first = [0]
    for of_rank in near_blocks:
        first.append(first[-1] + len(of_rank))

    def place(connection: Connection | None) -> Connection | None:
        ranks = schedule.collective.ranks
        return rotated_connection(connection, near, ranks) if connection and near else connection

    stuck = stuck_steps(
        [
            [
                MessageStep(
                    recv=place(block.recv) if draft.op in _RECEIVES else None,
                    send=place(block.send) if draft.op in _SENDS else None,
                    length=draft.count,
                    waits=tuple((first[rank] + b, at) for b, at in draft.waits),
                )
                for draft in block.drafts
            ]
            for rank, block in flat
        ]
    )
    if not stuck:
        return None
    left = (draft for n, at in stuck for draft in flat[n][1].drafts[at:])
    return frozenset(draft.events[0] // 2 for draft in left if len(draft.events) == 2)
