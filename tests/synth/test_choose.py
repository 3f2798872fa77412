"""The choice among candidates: what ends it early, and what is kept then."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tuccl.errors import Infeasible
from tuccl.program import Knobs
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import (
    Candidates,
    Collective,
    Schedule,
    SearchResult,
    SynthesizedProgram,
    Target,
    synthesize_best,
)
from tuccl.synth.methods import find_method, searched_methods
from tuccl.synth.model.collective import COLLECTIVES
from tuccl.topology import join, load_profile, machine_of

T = load_profile("v100x4")


METHODS = ("ring", "allpairs", "greedy")
TARGET = Target(T, Collective("allgather", 4), 1 << 20, machine_of(T))


def search(
    interrupted_at: int = -1,
    knobs: Sequence[Knobs] = (Knobs("Simple", 1, 512),),
    limit_s: float | None = None,
) -> SearchResult:
    """Search three methods, with an interrupt at a candidate, given by its number."""

    def interrupt(done: int, total: int, what: str) -> None:
        if done == interrupted_at:
            signal.raise_signal(signal.SIGINT)

    candidates = Candidates([full_mesh(T)], knobs, METHODS, (1,))
    return synthesize_best(TARGET, candidates, time_limit_s=limit_s, progress=interrupt)


def test_an_interrupt_keeps_what_was_found() -> None:
    whole, cut = search(), search(2)
    assert {program.method for program in whole.programs} == set(METHODS)
    assert (whole.ended, whole.untried) == ("complete", 0)
    assert len({program.method for program in cut.programs}) == 2
    assert (cut.ended, cut.untried) == ("interrupt", 1)


def test_sketches_of_equal_schedules_share_a_program() -> None:
    sketches = [msgspec.structs.replace(full_mesh(T), name=name) for name in ("one", "other")]
    candidates = Candidates(sketches, (Knobs("Simple", 1, 512),), ("ring",), (1,))
    programs = synthesize_best(TARGET, candidates).programs
    same = [(p.sketch, q.sketch) for p in programs for q in programs if p.program is q.program]
    assert ("one", "other") in same


def test_an_interrupt_before_anything_was_found_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        search(0)


def test_a_limit_counts_work_and_leaves_the_same_out_again() -> None:
    first, again = search(limit_s=0.02), search(limit_s=0.02)
    assert first.ended == "limit"
    assert first.untried > 0
    assert [(p.method, p.time_us) for p in first.programs] == [
        (p.method, p.time_us) for p in again.programs
    ]


def test_channels_and_protocol_are_chosen_for_the_size() -> None:
    some = [Knobs(p, c, 512) for p in ("Simple", "LL") for c in (1, 2, 4, 8)]
    dgx = load_profile("dgx-1v")
    mesh, ideal = full_mesh(dgx), machine_of(dgx)

    def fastest(nbytes: int, knobs: Sequence[Knobs]) -> SynthesizedProgram:
        target = Target(dgx, Collective("allgather", 8), nbytes, ideal)
        return synthesize_best(target, Candidates([mesh], knobs, ("packing", "ring"))).programs[0]

    large, small = fastest(1 << 30, some), fastest(4 << 10, some)
    assert large.knobs.protocol == "Simple"
    assert large.knobs.channels > 1
    assert large.time_us < 0.8 * fastest(1 << 30, some[:1]).time_us
    assert small.knobs.protocol == "LL"


def test_knobs_that_a_schedule_may_not_use_are_refused() -> None:
    def never(schedule: Schedule, knobs: Knobs) -> bool:
        return False

    candidates = Candidates([full_mesh(T)], [Knobs("LL128", 1, 512)], ("ring",), (1,), never)
    with pytest.raises(Infeasible, match="LL128 does not keep data whole"):
        synthesize_best(TARGET, candidates)


def test_a_refusal_says_why_for_every_sketch() -> None:
    pod = join(load_profile("v100x4"), 2)
    target = Target(pod, Collective("allgather", 8), 1 << 20, machine_of(pod))
    sketches = [s for s in candidate_sketches(pod, "allgather", 1 << 20) if len(s.links) < 56]
    with pytest.raises(Infeasible) as refusal:
        synthesize_best(target, Candidates(sketches, [Knobs("LL", 1, 512)], ("allpairs",), (1,)))
    assert all(f"allpairs on {sketch.name}:" in str(refusal.value) for sketch in sketches)


def test_recursive_doubling_is_the_fastest_small_allreduce_of_a_dgx_1() -> None:
    """It earns its code where messages cost most: 15 us, where rings take 18 and all-pairs 20."""
    dgx = load_profile("dgx-1v")
    target = Target(dgx, Collective("allreduce", 8), 1 << 10, machine_of(dgx))
    knobs = [Knobs("LL", channels, 512) for channels in (1, 2, 4)]
    methods = ("recursive", "ring", "rings", "allpairs", "pipelined")
    found = synthesize_best(target, Candidates([full_mesh(dgx)], knobs, methods))
    times = {m: min(p.time_us for p in found.programs if p.method == m) for m in methods}
    assert min(times, key=lambda method: times[method]) == "recursive"
    assert sorted(times.values())[1] > 1.1 * times["recursive"]


SIX = ("ring", "recursive", "allpairs", "allpairs+paired", "pipelined", "packing")


def test_six_tenths_of_a_limit_go_to_methods() -> None:
    """Each takes a hundredth of a second of a common machine, by its own account."""
    knobs = [Knobs("Simple", 1, 512), Knobs("LL", 1, 512)]
    candidates = Candidates([full_mesh(T)], knobs, SIX[:5], (1,))
    found = synthesize_best(TARGET, candidates, time_limit_s=0.05)
    assert (found.ended, found.untried) == ("limit", 2)


def test_knobs_of_the_four_fastest_methods_are_varied() -> None:
    knobs = [Knobs(protocol, 1, 512) for protocol in ("Simple", "LL")]
    found = synthesize_best(TARGET, Candidates([full_mesh(T)], knobs, SIX, (1,)))
    protocols = {m: {p.knobs.protocol for p in found.programs if p.method == m} for m in SIX}
    varied = {method for method in SIX if len(protocols[method]) == 2}
    assert len(varied) == 4
    assert found.programs[0].method in varied


def test_over_many_ranks_the_refusal_names_the_methods_to_ask_for() -> None:
    large = join(load_profile("dgx-2"), 9)
    call = Collective("alltoall", large.ranks)
    target = Target(large, call, 1 << 20, machine_of(large))
    candidates = Candidates([full_mesh(large)], (Knobs(),), ("greedy", "packing"), (1,))
    with pytest.raises(Infeasible, match=r"over 144 ranks; these do, if named: .*greedy"):
        synthesize_best(target, candidates)


def test_a_reason_of_many_sketches_is_said_once() -> None:
    sketches = candidate_sketches(join(load_profile("v100x4"), 2), "allgather", 1 << 20)
    cluster = join(load_profile("v100x4"), 2)
    call = Collective("alltoall", 8)
    target = Target(cluster, call, 1 << 20, machine_of(cluster))
    with pytest.raises(Infeasible) as refusal:
        synthesize_best(target, Candidates(sketches, (Knobs(),), ("packing",), (1,)))
    assert len(sketches) > 1 and str(refusal.value).count("does not do alltoall") == 1
    assert all(sketch.name in str(refusal.value) for sketch in sketches)


def test_at_scale_few_methods_are_tried_and_none_that_the_busiest_link_rules_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over many ranks searches leave out what is far from the bound, and say why."""
    for collective in (Collective(name, ranks) for name in COLLECTIVES for ranks in (160, 1024)):
        assert any(find_method(name).suits(collective) for name in searched_methods())
        assert not find_method("ring").suits(collective)
    monkeypatch.setattr("tuccl.synth.choose._MANY_TRANSFERS", 1)
    t = join(load_profile("dgx-a100"), 2)
    call = Collective("allgather", t.ranks)
    target = Target(t, call, 1 << 30, machine_of(t))
    knobs = (Knobs("Simple", 4),)
    both = Candidates((full_mesh(t),), knobs, ("packing", "ring"))
    made = {p.method for p in synthesize_best(target, both).programs}
    assert made == {"packing"}
    alone = synthesize_best(target, replace(both, methods=("ring",)))
    packed = synthesize_best(target, replace(both, methods=("packing",)))
    assert alone.best.time_us > packed.best.time_us
