from pathlib import Path
from typing import Any

import pytest

from tuccl import program as program_module
from tuccl.errors import Infeasible, InputError
from tuccl.program import (
    Program,
    default_buffer_bytes,
    max_safe_bytes,
    verify,
    whole,
    write_program,
)
from tuccl.runtime.nccl.ll128 import ll128_is_safe
from tuccl.sketches import candidate_sketches
from tuccl.synth import (
    SOLVERS,
    Collective,
    Options,
    Problem,
    Schedule,
    ScheduleChoice,
    make_schedule,
)
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import programs
from tuccl.tuning.programs import DEFAULT_METHODS, ROBUST, ProgramCache

SIZE = 1 << 20


@pytest.fixture
def made(cluster: Topology) -> ProgramCache:
    return ProgramCache(cluster, Collective("allgather", cluster.ranks))


def test_what_is_called_legal_has_a_proven_program(made: ProgramCache, cluster: Topology) -> None:
    sketches = candidate_sketches(cluster, "allgather", SIZE)
    by_name = {sketch.name: sketch for sketch in sketches}
    some = [p for p in made.choices(sketches, SIZE) if p.chunks_per_rank < 4]
    tried = 0
    for choice in some:
        for protocol, counts in made.channels(by_name[choice.sketch], choice, SIZE).items():
            for channels in counts[-1:]:
                program = made.program(by_name[choice.sketch], choice, SIZE, protocol, channels)
                assert verify(program.program).ok
                assert program.program.protocol == protocol
                assert SIZE % (4 * program.program.nchunks) == 0
                tried += 1
    assert tried > len(some)


def test_knobs_never_force_a_new_synthesis(
    made: ProgramCache, cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    calls: list[str] = []

    def counted(problem: Problem, method: str, *options: Options) -> Schedule:
        calls.append(method)
        return make_schedule(problem, method, *options)

    monkeypatch.setattr(programs, "make_schedule", counted)
    choice = ScheduleChoice(mesh.name, "allpairs", 1)
    checksums = {
        made.program(mesh, choice, SIZE, protocol, channels).checksum
        for protocol in ("Simple", "LL")
        for channels in (1, 2, 4)
        for _ in range(2)
    }
    assert len(calls) == 1
    assert len(checksums) == 6


def test_what_cannot_be_made_is_remembered_with_its_reason(
    made: ProgramCache, cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    calls = []

    def refuse(*arguments: object) -> None:
        calls.append(arguments)
        raise Infeasible("no ring: rank 3 has no way out")

    monkeypatch.setattr(programs, "make_schedule", refuse)
    for _ in range(2):
        with pytest.raises(Infeasible, match="rank 3 has no way out"):
            made.program(mesh, ScheduleChoice(mesh.name, "ring", 1), SIZE, "LL", 1)
    assert len(calls) == 1
    assert made.channels(mesh, ScheduleChoice(mesh.name, "ring", 1), SIZE) == {}


def test_safety_is_proven_with_the_points_own_buffer(
    made: ProgramCache, cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    proofs: list[int] = []

    def counted(program: object, dialect: str, root: int, buffer_bytes: int) -> int:
        proofs.append(buffer_bytes)
        return 100 * buffer_bytes

    monkeypatch.setattr(programs, "max_safe_bytes", counted)
    usual = default_buffer_bytes("LL", made.dialect)
    choice = ScheduleChoice(mesh.name, "allpairs", 1)
    for buffer_bytes in (0, 512, 1024, 512, usual):
        program = made.program(mesh, choice, SIZE, "LL", 1, buffer_bytes)
        assert program.max_safe_bytes == 100 * (buffer_bytes or usual)
    assert proofs == [usual, 512, 1024]


def test_a_program_that_no_rank_could_read_is_neither_chosen_nor_written(
    made: ProgramCache, cluster: Topology, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    choice = ScheduleChoice(mesh.name, "allpairs", 1)
    small = made.program(mesh, choice, SIZE, "LL", 1).program
    write_program(small, tmp_path / "small.xml")
    monkeypatch.setattr(program_module, "MOST_XML_BYTES", (tmp_path / "small.xml").stat().st_size)
    write_program(small, tmp_path / "small.xml")
    with pytest.raises(Infeasible, match="ranks read at most"):
        made.program(mesh, choice, SIZE, "LL", 4)
    with pytest.raises(InputError, match="fewer chunks or channels"):
        write_program(program_module.replicate(small, 4), tmp_path / "large.xml")
    assert not (tmp_path / "large.xml").exists()


@pytest.mark.parametrize("protocols", [("Simple", "LL"), ("LL", "Simple")])
def test_each_protocol_of_a_paired_program_is_safe_up_to_a_size_of_its_own(
    made: ProgramCache, cluster: Topology, protocols: tuple[str, str]
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    choice = ScheduleChoice(mesh.name, "allpairs+paired", 4)
    safe = {p: made.program(mesh, choice, SIZE, p, 1).max_safe_bytes for p in protocols}
    assert safe["Simple"] > 0 and safe["LL"] == 0


def test_copies_whose_steps_part_are_proven_anew(
    made: ProgramCache, cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    choice = ScheduleChoice(mesh.name, "recursive", 2)
    proofs: list[int] = []

    def counted(program: Program, dialect: str, root: int, buffer_bytes: int) -> int:
        proofs.append(program.max_steps)
        return max_safe_bytes(program, dialect, root, buffer_bytes)

    monkeypatch.setattr(programs, "max_safe_bytes", counted)
    one, two = (made.program(mesh, choice, SIZE, "LL", n).program for n in (1, 2))
    assert two.max_steps > one.max_steps
    assert proofs == [one.max_steps, two.max_steps]


@pytest.mark.parametrize("method", ["allpairs+paired", "allpairs", "ring"])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_copies_are_as_right_and_as_safe_as_a_proof_of_them_says(
    made: ProgramCache, cluster: Topology, method: str, protocol: str
) -> None:
    mesh = candidate_sketches(cluster, "allgather", SIZE)[-1]
    choice = ScheduleChoice(mesh.name, method, 4 if method != "ring" else 1)
    for channels in (2, 4):
        for buffer_bytes in (4096, default_buffer_bytes(protocol)):
            found = made.program(mesh, choice, SIZE, protocol, channels, buffer_bytes)
            assert found.program.nchannels % channels == 0
            safe = max_safe_bytes(found.program, made.dialect, 0, buffer_bytes)
            assert found.max_safe_bytes == safe


def test_plans_begin_with_the_default_and_divide_the_array(
    made: ProgramCache, cluster: Topology
) -> None:
    for nbytes in (1 << 10, 3 << 20, 1 << 28):
        choices = made.choices(candidate_sketches(cluster, "allgather", nbytes), nbytes)
        assert next(iter(choices)).method == ROBUST
        for choice, by_protocol in choices.items():
            for counts in by_protocol.values():
                for count in counts:
                    assert nbytes % (4 * cluster.ranks * choice.chunks_per_rank * count) == 0
    assert not any(
        any(c.values())
        for c in made.choices(candidate_sketches(cluster, "allgather", 1001), 1001).values()
    )


def test_small_arrays_are_not_cut_below_a_packet(made: ProgramCache, cluster: Topology) -> None:
    sketches = candidate_sketches(cluster, "allgather", 1 << 10)
    assert {p.chunks_per_rank for p in made.choices(sketches, 1 << 10)} == {1}


def test_ll128_stays_on_links_that_keep_its_lines_whole() -> None:
    nvlink = load_profile("v100x4")
    every = [(a, b) for a in range(4) for b in range(4) if a != b]
    assert ll128_is_safe(nvlink, every)
    assert ll128_is_safe(load_profile("dgx-b200"), every)
    assert not ll128_is_safe(load_profile("mi300x"), every)
    hybrid = load_profile("dgx-1v")  # not every pair of its GPUs has NVLink
    every = [(a, b) for a in range(8) for b in range(8) if a != b]
    assert not ll128_is_safe(hybrid, every)
    assert any(ll128_is_safe(hybrid, [pair]) for pair in every)


@pytest.mark.parametrize(
    ("hosts", "options", "period"),
    [(5, {}, 8), (5, {"dialect": "fork"}, 8), (5, {"as_plans": True}, 0), (4, {}, 0)],
)
def test_more_than_32_ranks_keep_one_host_of_those_that_do_the_same(
    hosts: int, options: dict[str, Any], period: int
) -> None:
    topology = join(load_profile("dgx-a100"), hosts)
    [*_, mesh] = candidate_sketches(topology, "allgather", SIZE)
    nbytes = topology.ranks << 15
    made = ProgramCache(topology, Collective("allgather", topology.ranks), **options)
    choice = ScheduleChoice(mesh.name, "hierarchical-rings", 1)
    verified = made.program(mesh, choice, nbytes, "LL", 2)
    assert verified.program.period == period
    assert verify(verified.program).ok
    assert verify(whole(verified.program)).ok


def test_a_schedule_that_is_not_kept_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST_SCHEDULES", 1)
    topology = join(load_profile("dgx-a100"), 5)
    [*_, mesh] = candidate_sketches(topology, "allgather", SIZE)
    calls: list[str] = []

    def counted(problem: Problem, method: str, *options: Options) -> Schedule:
        calls.append(method)
        return make_schedule(problem, method, *options)

    monkeypatch.setattr(programs, "make_schedule", counted)
    made = ProgramCache(topology, Collective("allgather", topology.ranks))
    one, other = (ScheduleChoice(mesh.name, name, 1) for name in ("hierarchical2", "ring"))
    nbytes = topology.ranks << 15
    for choice in (one, other, one):
        made.program(mesh, choice, nbytes, "LL", 1)
    assert calls == ["hierarchical2", "ring"]  # the program is kept
    again = made.program(mesh, one, nbytes, "LL", 1, placement="in-place")
    assert calls == ["hierarchical2", "ring", "hierarchical2"]
    assert verify(again.program).ok


def test_more_ranks_than_thread_blocks_have_another_default_that_no_solver_makes() -> None:
    topology = join(load_profile("dgx-h100"), 17)
    sketches = candidate_sketches(topology, "allgather", SIZE)
    nbytes = topology.ranks << 15
    for methods in ((), ("taccl",)):
        made = ProgramCache(topology, Collective("allgather", 136), methods=methods)
        space = made.space(sketches, nbytes)
        assert space is not None
        assert not {*DEFAULT_METHODS, *SOLVERS} & {space.default.choice.method}
        assert not {*DEFAULT_METHODS} & {choice.method for choice in space.choices}
