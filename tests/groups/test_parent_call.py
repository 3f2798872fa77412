"""Programs in which all groups of a kind allgather at once, and any GPU relays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import Tuccl
from tuccl import synthesize
from tuccl.errors import Infeasible, InputError
from tuccl.execution import Call, run_in_threads
from tuccl.groups.bounds import joint_bound, kind_calls
from tuccl.groups.layout import Groups, megatron_groups
from tuccl.groups.relays import parent_call
from tuccl.program import Knobs, Program, parse_xml, replicate, to_xml, verify
from tuccl.runtime.table.programs import program_file
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, Schedule, bound, lower, make_schedule
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.topology import Topology, load_profile

MIB = 1 << 20
PATIENCE_S = 60.0
CASES = [("mesh-2x2", "tp=2", "tp"), ("mesh-2x4", "tp=2", "dp"), ("dgx-1v", "tp=4", "tp"),
         ("mi300x", "tp=2", "dp"), ("v100x4", "tp=2", "dp")]  # fmt: skip


def groups_of(topology: Topology, layout: str, kind: str) -> Groups:
    return megatron_groups(layout, topology.ranks).kind(kind).groups


def schedule_of(topology: Topology, groups: Groups, chunks: int) -> Schedule:
    call = parent_call("allgather", groups, topology.ranks)
    return make_schedule(Problem(call, full_mesh(topology), chunks, MIB, topology), "greedy")


def run(schedule: Schedule, groups: Groups) -> dict[tuple[int, str, int], tuple[int, int]]:
    """What each place of memory holds in the end: of which rank which chunk, by the moves alone."""
    held = {
        (rank, "i", chunk): (rank, chunk)
        for group in groups
        for rank in group
        for chunk in range(schedule.chunks_per_rank)
    }
    for move in schedule.transfers:
        for k in range(move.count):
            source = (move.src, move.src_at.buffer, move.src_at.offset + k)
            held[move.dst, move.dst_at.buffer, move.dst_at.offset + k] = held[source]
    return held


@pytest.mark.parametrize(("profile", "layout", "kind"), CASES)
def test_each_member_ends_with_the_parts_of_its_group_in_order(
    profile: str, layout: str, kind: str, gpu_emulation: ModuleType
) -> None:
    topology = load_profile(profile)
    groups = groups_of(topology, layout, kind)
    for chunks in (1, 3):
        schedule = schedule_of(topology, groups, chunks)
        held = run(schedule, groups)
        for group in groups:
            expected = [(rank, chunk) for rank in group for chunk in range(chunks)]
            for rank in group:
                assert [held[rank, "o", n] for n in range(len(expected))] == expected
        for protocol, instances in (("Simple", 1), ("LL", 2)):
            program = lower(schedule, protocol=protocol, instances=instances)
            assert program.in_place and program.out_of_place
            again = parse_xml(text := to_xml(program, "executor"))
            assert to_xml(again, "executor") == text
            assert (again.group_size, again.group_stride) == schedule.collective.groups
            for in_place in (False, True):
                call = Call(
                    program, Knobs(protocol), 10_007, checked=2, delay_us=20, in_place=in_place
                )
                assert not sum(each.wrong for each in run_in_threads(call, PATIENCE_S))
        assert not sum(each.wrong for each in gpu_emulation.emulate_gpus(call, PATIENCE_S))
        copies = replicate(program, 2)
        assert verify(copies).ok and copies.nchunks == 2 * program.nchunks


def relays(schedule: Schedule, groups: Groups) -> set[tuple[int, int]]:
    home = {rank: n for n, group in enumerate(groups) for rank in group}
    return {(m.src, m.dst) for m in schedule.transfers if home[m.src] != home[m.dst]}


@pytest.mark.parametrize(("layout", "gain"), [("tp=2", 1.5), ("tp=4", 1.1)])
def test_a_program_with_relays_beats_the_bound_between_members(layout: str, gain: float) -> None:
    """Eight GPUs, each joined to each other: a group's own links are a few of them."""
    topology = load_profile("mi300x")
    groups, nbytes = groups_of(topology, layout, "tp"), 256 * MIB
    call = parent_call("allgather", groups, topology.ranks)
    best = synthesize(topology, call, nbytes, method="greedy", protocol="Simple").best
    assert relays(best.schedule, groups)
    calls = kind_calls(groups, "allgather", nbytes)
    assert joint_bound(topology, calls, relays=True).us < best.time_us
    assert best.time_us < joint_bound(topology, calls).us / gain


def small_program() -> Program:
    topology = load_profile("v100x4")
    return lower(schedule_of(topology, ((0, 1), (2, 3)), 1))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('groupstride="1"', 'groupstride="2"', "wrong-result"),
        ('groupsize="2"', 'groupsize="3"', "groups"),
        ('groupstride="1"', 'groupstride="4096"', "groups"),
        ('nchunksperloop="2"', 'nchunksperloop="3"', "chunks"),
    ],
)
def test_a_file_of_other_groups_is_refused(old: str, new: str, code: str) -> None:
    text = to_xml(small_program(), "executor")
    assert verify(parse_xml(text)).ok and text.count(old) == 1
    program = parse_xml(text.replace(old, new))
    assert code in {error.code for error in verify(program).errors}
    if code != "wrong-result":
        with pytest.raises(InputError):
            run_in_threads(Call(program, Knobs(), 64, checked=1), PATIENCE_S)
    else:
        assert sum(r.wrong for r in run_in_threads(Call(program, Knobs(), 64, checked=1), 60.0))


@pytest.mark.parametrize("bad", ['groupsize="1"', 'groupsize="x"', 'groupstride="0"', ""])
def test_files_say_what_their_groups_are(bad: str) -> None:
    name = bad.partition("=")[0] or "groupsize"
    text = re.sub(rf'{name}="\d+"', bad, to_xml(small_program(), "executor"))
    with pytest.raises(InputError, match=r"groups(ize|tride)"):
        parse_xml(text)


def test_no_runtime_of_mscclls_and_no_table_takes_a_program_of_groups() -> None:
    program = small_program()
    assert 'coll="allgather"' not in to_xml(program, "executor")
    for dialect in ("rccl", "fork"):
        with pytest.raises(InputError, match="only tuccl's own executors"):
            to_xml(program, dialect)
        assert "dialect" in {error.code for error in verify(program, dialect).errors}
    assert "not-intercepted" in {warning.code for warning in verify(program).warnings}
    with pytest.raises(InputError, match="of groups"):
        program_file(program)
    with pytest.raises(Infeasible, match=r"of groups, and MSCCL\+\+"):
        lower_to_plan(program)


def test_calls_that_are_no_axis_of_a_grid_are_refused() -> None:
    for groups in (((0, 3), (1, 2)), ((0, 1), (3, 2)), ((0, 1),), ((0,), (1,)), ((0, 1, 2), (3,))):
        with pytest.raises(InputError, match="group"):
            parent_call("allgather", groups, 4)
    with pytest.raises(InputError, match="expected an allgather"):
        parent_call("allreduce", ((0, 1), (2, 3)), 4)
    call = Collective("allgather", 4, groups=(2, 1))
    topology = load_profile("v100x4")
    with pytest.raises(InputError, match="joint_bound"):
        bound(topology, call)
    for method in ("ring", "packing", "fewstep"):
        with pytest.raises(Infeasible, match="in groups; greedy does"):
            make_schedule(Problem(call, full_mesh(topology)), method)


def test_the_verb_makes_a_program_of_groups(tuccl: Tuccl, tmp_path: Path) -> None:
    machine, file = tmp_path / "t.json", tmp_path / "p.xml"
    tuccl("probe", "--profile", "v100x4", "-o", machine)
    words = ("synth", machine, "--layout", "tp=2", "-s", "64M", "--protocol", "Simple")
    answer = tuccl(*words, "-c", "tp:allgather", "-o", file)
    assert answer.code == 0 and "with relays" in answer.out
    facts = json.loads(tuccl(*words, "-c", "tp:allgather", "-o", file, "--json").out)
    assert facts["relays_bound_us"] < facts["time_us"] < facts["bound_us"]
    assert facts["time_is"] == "simulated"
    assert "on 4 ranks in groups of 2" in tuccl("verify", file).out
    timed = tuccl("bench", file, machine, "-s", "64M", "--channels", "1")
    assert timed.code == 0 and "simulated" in timed.out
    for more, why in (
        (("-c", "tp:allreduce"), "expected an allgather"),
        (("-c", "tp:allgather,dp:allgather"), "expected one call"),
        (("-c", "tp:allgather", "--method", "ring"), "greedy does"),
        (("-c", "tp:allgather", "--dialect", "fork"), "no --dialect"),
    ):
        answer = tuccl(*words, *more, "-o", tmp_path / "q.xml")
        assert answer.code == 2 and why in answer.err and not (tmp_path / "q.xml").exists()
