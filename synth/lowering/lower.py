"""From a schedule to an MSCCL program: what can run at once, where, and within the limits."""

from __future__ import annotations

from typing import Literal

from tuccl.errors import Infeasible, InputError
from tuccl.planners import Excess, Transfers
from tuccl.program import Program, verify
from tuccl.synth.lowering.limits import limits_of
from tuccl.synth.model.schedule import Schedule

Placement = Literal["any", "in-place", "out-of-place"]


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
    onto itself. It cannot deadlock at any size, but where sends go first: that program claims the
    sizes at which the verifier proves that it cannot.

    Raises:
        Infeasible: the schedule is wrong, is not right in this placement, or does not fit the
            dialect's limits; the message names the limit, the rank and the fix.
        InputError: an argument is out of range.
    """
    limits = limits_of(dialect, schedule.collective.ranks)
    if instances < 1:
        raise InputError(f"{instances} instances: expected at least 1")
    modes = _modes(schedule, schedule.native, placement)
    placements = [at for at in (False, True) if modes[at]]
    lowered = schedule.native.lower(instances, limits, placements)
    if isinstance(lowered, Excess) and lowered.limit == "steps" and schedule.period:
        # Messages that are alike have one channel; written out, each may have another.
        lowered = schedule.whole().native.lower(instances, limits, placements)
    if isinstance(lowered, Excess):
        raise Infeasible(_refusal(schedule, instances, lowered))
    program = lowered.replace(
        name=name or f"{schedule.collective.name}-{schedule.method}-{protocol}-i{instances}",
        protocol=protocol,
        in_place=modes[1],
        out_of_place=modes[0],
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        nthreads=nthreads,
    )
    return _proved(program, dialect, schedule.collective.root)


def claims_size(program: Program, nbytes: int, dialect: str) -> bool:
    """Return whether `program`, as lowered for `dialect`, is for calls of `nbytes` bytes too."""
    # The fork's range is half open.
    return program.max_bytes is None or nbytes < program.max_bytes + (dialect != "fork")


def _modes(schedule: Schedule, transfers: Transfers, placement: Placement) -> tuple[bool, bool]:
    """Return whether `schedule` is to run, and right, out of place and in place."""
    requested = placement != "in-place", placement != "out-of-place"
    faults = [transfers.fault(at) if requested[at] else "not requested" for at in (False, True)]
    if all(faults):
        why = next(each for at, each in enumerate(faults) if requested[at])
        raise Infeasible(f"{schedule.method} {schedule.collective.name}: wrong schedule: {why}")
    return not faults[0], not faults[1]


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


def _refusal(schedule: Schedule, instances: int, over: Excess) -> str:
    """Return why no form fits, and what to change."""
    fix = "use fewer instances" if instances > 1 else "use fewer chunks per rank"
    if over.limit in ("peers", "threadblocks", "awaited"):
        fix += ", or a method or sketch with fewer connections"
    collective = schedule.collective
    return f"{schedule.method} {collective.name} over {collective.ranks} ranks: {over}; {fix}"
