from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.program import Knobs
from tuccl.runtime import ConfiguredProgram, TimedProgram, Timing, program_file
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, ScheduleChoice, lower, make_schedule
from tuccl.topology import Topology
from tuccl.tuning import beats
from tuccl.tuning.final_round import FinalRound, entries_of

TIMES = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=30)


@given(TIMES, TIMES)
def test_two_never_beat_each_other(a: list[float], b: list[float]) -> None:
    assert not (beats(a, b) and beats(b, a))
    assert not beats(a, a)


@given(st.floats(1.0, 1e6), st.floats(1.001, 10.0))
def test_without_noise_any_gain_counts(us: float, factor: float) -> None:
    assert beats([us], [us * factor])
    assert not beats([us * factor], [us])


def test_a_gain_within_the_noise_does_not() -> None:
    noisy = [10.0, 14.0, 9.0, 13.0, 11.0]
    assert not beats([0.97 * x for x in noisy], noisy)
    assert beats([0.5 * x for x in noisy], noisy)


def final(topology: Topology, *timings: Timing) -> FinalRound:
    """Finalists with the given times against a default of 10 us out of place, 20 in place."""
    call = Collective("allgather", topology.ranks)
    mesh = full_mesh(topology)
    candidates = []
    for method, timing in zip(("allpairs", "ring", "recursive"), timings, strict=False):
        choice = ScheduleChoice(mesh.name, method, 1)
        program = lower(make_schedule(Problem(call, mesh, 1, 1 << 20), method), protocol="LL")
        knobs = Knobs("LL", 1, 512, 1 << 19)
        candidates.append(TimedProgram(program, knobs, timing=timing, choice=choice))
    first = ConfiguredProgram(candidates[0].program, knobs, name="Ring/LL/2ch")
    default = first.timed(Timing(10.0, 20.0, (10.0,), "sim"))
    return FinalRound(call, 1 << 20, "executor", default, tuple(candidates))


def sim(out: float, within: float) -> Timing:
    return Timing(out, within, (out,), "sim")


def test_one_entry_where_both_placements_agree(topology: Topology) -> None:
    entries, files = entries_of(final(topology, sim(8.0, 9.0), sim(7.0, 8.0)), 512, 2048)
    [entry] = entries
    assert (entry.placement, entry.min_bytes, entry.max_bytes) == ("any", 512, 2048)
    assert [c.method for c in entry.candidates] == ["ring", "allpairs", ""]
    assert {f.path for f in files} == {c.program for c in entry.candidates if c.program}
    assert entry.candidates[0].stats is not None
    assert entry.candidates[0].stats.median_us == 7.0


def test_two_entries_where_they_do_not(topology: Topology) -> None:
    entries, _ = entries_of(final(topology, sim(8.0, 25.0), sim(12.0, 8.0)), 512, None)
    by_placement = {e.placement: [c.method for c in e.candidates] for e in entries}
    assert by_placement == {"out-of-place": ["allpairs", ""], "in-place": ["ring", ""]}


def test_in_place_a_gain_within_the_noise_does_not_count(topology: Topology) -> None:
    noisy = (20.0, 28.0, 18.0, 26.0, 22.0)
    default = Timing(10.0, 22.0, (10.0,) * 5, "mpi", 0, noisy)
    for factor, wins in ((0.97, False), (0.5, True)):
        samples = tuple(factor * x for x in noisy)
        timing = Timing(11.0, factor * 22.0, (11.0,) * 5, "mpi", 0, samples)
        made = final(topology, timing)
        made = replace(made, default=replace(made.default, timing=default))
        entries, _ = entries_of(made, 512, None)
        inside = next(e for e in entries if e.takes(in_place=True))
        assert inside.candidates[0].is_default is not wins
        assert inside.default.stats is not None
        assert inside.default.stats.count == 5


def test_of_equals_the_stock_one_stands_first_then_fewer_channels(topology: Topology) -> None:
    made = final(topology, sim(8.0, 9.0), sim(8.001, 9.001), sim(8.002, 9.002))
    first, second, third = made.candidates
    candidates = (
        replace(first, knobs=Knobs("LL", 2, 512, 1 << 10)),
        replace(second, knobs=Knobs("LL", 1, 512, 1 << 23)),
        third,
    )
    [entry], _ = entries_of(replace(made, candidates=candidates), 512, None)
    assert [c.method for c in entry.candidates] == ["recursive", "ring", "allpairs", ""]


@pytest.mark.parametrize("dialect", ["executor", "rccl", "fork"])
def test_files_of_each_dialect_are_proven(dialect: str, topology: Topology) -> None:
    call = Collective("allgather", topology.ranks)
    program = lower(
        make_schedule(Problem(call, full_mesh(topology), 1, 1024), "allpairs"), dialect=dialect
    )
    made = final(topology, sim(8.0, 9.0))
    within = 9.0 if program.in_place else None
    candidate = TimedProgram(
        program,
        Knobs("Simple", 1, 512, 4 << 20),
        timing=Timing(8.0, within, (8.0,), "sim"),
        choice=made.candidates[0].choice,
    )
    entries, files = entries_of(
        FinalRound(call, 1024, dialect, made.default, (candidate,)), 512, 2048
    )
    assert len(entries) == (2 if dialect == "fork" else 1)
    assert all(program_file(f.program, dialect).sha256 == f.sha256 for f in files)


def test_a_beaten_finalist_is_left_out(topology: Topology) -> None:
    [entry], files = entries_of(final(topology, sim(11.0, 21.0), sim(10.0, 20.0)), 1, 2)
    assert [c.is_default for c in entry.candidates] == [True]
    assert files == ()


def test_the_default_knows_what_it_was(topology: Topology) -> None:
    [entry], _ = entries_of(final(topology, sim(8.0, 9.0)), 1, 2)
    assert entry.default.notes == (f"tuned at {1 << 20} bytes", "Ring/LL/2ch there")


def test_an_entry_keeps_what_needs_fewer_sms(topology: Topology) -> None:
    """The default takes 10 us; of four programs the three fastest have 7 blocks."""
    made = final(topology, sim(7.0, 8.0))
    [wide] = made.candidates
    [narrow] = (c for c in final(topology, sim(9.0, 9.0), sim(9.0, 9.0)).candidates[1:])
    slow = replace(narrow, timing=sim(9.5, 9.5), knobs=Knobs("LL", 1, 256, 1 << 19))
    wides = tuple(
        replace(wide, timing=sim(us, us + 1), knobs=Knobs("LL", 1, threads, 1 << 19))
        for us, threads in ((7.0, 512), (7.1, 480), (7.2, 448), (7.3, 416))
    )
    assert narrow.program.threadblocks < wide.program.threadblocks
    [entry], files = entries_of(replace(made, candidates=(*wides, narrow, slow)), 512, None)
    sms = [c.sms for c in entry.candidates[:-1]]
    assert sms == [wide.program.threadblocks] * 3 + [narrow.program.threadblocks]
    assert {f.path for f in files} == {c.program for c in entry.candidates if c.program}


def test_more_samples_make_a_small_gain_sure() -> None:
    """The noise of a mean falls with the root of the number of its samples."""
    noisy = [10.0, 11.0, 9.0, 10.5, 9.5]
    faster = [0.95 * us for us in noisy]
    assert not beats(faster, noisy)
    assert beats(10 * faster, 10 * noisy)
