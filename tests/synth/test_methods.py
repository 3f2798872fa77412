"""Every method on every collective: the program verifies, in each claimed mode and dialect."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice

import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.program import Program, parse_xml, to_xml, verify
from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.synth import (
    EXACT_METHODS,
    METHODS,
    SOLVERS,
    Collective,
    Problem,
    Schedule,
    find_method,
    lower,
    make_schedule,
    searched_methods,
)
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.problem import STAND_IN
from tuccl.topology import PROFILES, Topology, join, keep_gpus, load_profile

NAMES = ("allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce")
FORMS_OF_METHODS = [find_method(name) for name in searched_methods(unordered=True)]
PAIRS = [(m.name, name) for m in FORMS_OF_METHODS for name in sorted(m.collectives)]
LAYOUTS = (
    *([0] * 2, [0] * 3, [0] * 5, [0] * 8),
    *([0, 1], [0, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2], [0] * 4 + [1] * 4 + [2] * 4),
    [0] * 8 + [1] * 8,
)
FORMS = ((1, "executor"), (2, "rccl"), (4, "fork"), (1, "rccl"), (2, "executor"), (4, "executor"))


def cases(mesh: Callable[..., Sketch], name: str) -> Iterator[tuple[Collective, Sketch, int, int]]:
    for hosts in LAYOUTS:
        kinds = ("mesh", "rail", "gate") if max(hosts) else ("mesh",)
        collective = Collective(name, len(hosts), root=len(hosts) // 2)
        for number, kind in enumerate(kinds):
            nbytes = (1 << 10, 1 << 26)[(len(hosts) + number) % 2]
            yield collective, mesh(hosts, kind), 1 + number % 2, nbytes


def assert_sound(
    program: Program, dialect: str, collective: Collective, *, sends_first: bool = False
) -> None:
    """Check the claims one by one, the way through XML, and that connections are not shared."""
    report = verify(program, dialect, collective.root)
    assert report.ok, report.errors[0].message
    assert report.max_safe_bytes == 0 or sends_first
    assert (program.max_bytes is None) == (report.max_safe_bytes == 0)
    assert program.in_place or program.out_of_place
    for inside in (False, True):
        if program.in_place if inside else program.out_of_place:
            alone = program.replace(in_place=inside, out_of_place=not inside)
            assert verify(alone, dialect, collective.root).ok
    assert parse_xml(to_xml(program, dialect)).gpus == program.gpus
    for gpu in program.gpus:
        ends = [("s", tb.channel, tb.send_peer) for tb in gpu.threadblocks if tb.send_peer >= 0]
        ends += [("r", tb.channel, tb.recv_peer) for tb in gpu.threadblocks if tb.recv_peer >= 0]
        assert len(ends) == len(set(ends))


@pytest.mark.parametrize(
    ("method", "name"), [(m.name, name) for m in FORMS_OF_METHODS for name in sorted(m.sizeless)]
)
def test_a_sizeless_method_makes_one_schedule_for_all_sizes(method: str, name: str) -> None:
    topology = join(load_profile("v100x4"), 2)
    collective = Collective(name, topology.ranks)
    for sketch in (full_mesh(topology), candidate_sketches(topology, name, 1 << 20)[0]):
        for chunks in (1, 2):
            schedules: list[Schedule | None] = []
            for nbytes in (1 << 10, 1 << 20, 1 << 30):
                problem = Problem(collective, sketch, chunks, nbytes, topology)
                try:
                    schedules.append(make_schedule(problem, method))
                except Infeasible:
                    schedules.append(None)
            assert schedules == [schedules[0]] * 3


@pytest.mark.parametrize(
    ("method", "name"), [(m.name, name) for m in FORMS_OF_METHODS for name in sorted(m.summing)]
)
def test_sizes_of_one_key_have_equal_schedules(method: str, name: str) -> None:
    topology = join(load_profile("dgx-a100"), 3)
    collective = Collective(name, topology.ranks)
    sketch = full_mesh(topology)
    keys: set[object] = set()
    for chunks in (1, 2):
        schedules: dict[object, Schedule] = {}
        for nbytes in (3 << power for power in range(9, 30)):
            schedule = make_schedule(Problem(collective, sketch, chunks, nbytes, topology), method)
            key = find_method(method).size_key(collective, chunks, nbytes)
            assert schedules.setdefault(key, schedule) == schedule
        keys |= schedules.keys()
    assert len(keys) > 2


@pytest.mark.parametrize("hosts", [[0] * 8, [0] * 4 + [1] * 4, [0, 0, 1, 1, 2, 2, 3, 3]])
def test_an_allreduce_by_halves_sends_one_message_a_round(
    hosts: list[int], mesh: Callable[..., Sketch]
) -> None:
    program = lower(
        make_schedule(Problem(Collective("allreduce", 8), mesh(hosts), 1, 64 << 20), "recursive")
    )
    for gpu in program.gpus:
        sent = [s.op for tb in gpu.threadblocks for s in tb.steps if "s" in s.op]
        assert len(sent) == 6


def test_rings_in_hosts_stream_each_part_through_blocks_of_its_own(
    mesh: Callable[..., Sketch],
) -> None:
    """No thread block carries two parts the same way, and what passes a GPU passes in one step."""
    sketch = mesh([0] * 8 + [1] * 8)
    program = lower(
        make_schedule(
            Problem(Collective("allreduce", 16), sketch, 1, 1 << 26), "hierarchical-rings"
        )
    )
    for gpu in program.gpus:
        assert len(gpu.threadblocks) <= 32
        steps = Counter(s.op for tb in gpu.threadblocks for s in tb.steps)
        # Of its own host's 8 parts 6 pass as sums, of the other's 7 (the last leaves the host), and
        # back 6 of each and the one that comes from the other host.
        assert (steps["rrs"], steps["rcs"]) == (13, 13)
        ops = [[s.op for s in tb.steps] for tb in gpu.threadblocks]
        assert all(len(own) == len(set(own)) or own == ["s", "s"] for own in ops)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        # Its solver takes the longest by far; tests/native/test_matrix.py runs what it makes.
        pytest.param(*pair, marks=[pytest.mark.slow] if pair == ("fewstep", "alltoall") else [])
        for pair in PAIRS
    ],
)
def test_programs_verify(method: str, name: str, mesh: Callable[..., Sketch]) -> None:
    made = 0
    forms = cycle(FORMS)
    for collective, sketch, chunks, nbytes in cases(mesh, name):
        try:
            schedule = make_schedule(Problem(collective, sketch, chunks, nbytes), method)
        except Infeasible as refusal:
            assert "\n" not in str(refusal)
            continue
        links = {(link.src, link.dst) for link in sketch.links}
        assert {(t.src, t.dst) for t in schedule.transfers if not t.local} <= links
        copies, dialect = next(forms)
        if dialect == "fork" and name in ("gather", "scatter"):
            dialect = "executor"
        try:
            program = lower(schedule, instances=copies, dialect=dialect)
        except Infeasible as refusal:
            assert copies > 1 and "the most is" in str(refusal)
            continue
        assert_sound(program, dialect, collective, sends_first=schedule.hints.sends_first)
        assert program.nchunks == collective.nchunks(chunks * copies)
        made += 1
    # By pairs of hosts there must be more hosts than ranks of one.
    assert made >= (2 if (method, name) == ("hierarchical3", "alltoall") else 4)


@pytest.mark.parametrize(("method", "name"), PAIRS)
def test_schedules_and_programs_compute_on_numbers(
    method: str,
    name: str,
    mesh: Callable[..., Sketch],
    run_schedule: Callable[..., bool],
    run_program: Callable[..., bool],
) -> None:
    rng = random.Random(0)
    for hosts, kind in (([0] * 5, "mesh"), ([0, 0, 0, 1, 1, 1, 2, 2, 2], "rail")):
        collective = Collective(name, len(hosts), root=1)
        try:
            schedule = make_schedule(Problem(collective, mesh(hosts, kind), 2, 1 << 20), method)
        except Infeasible:
            continue
        program = lower(schedule, instances=2)
        for in_place in (False, True):
            assert run_schedule(schedule, rng, in_place) == (
                verify_schedule(schedule, in_place) is None
            )
            if program.in_place if in_place else program.out_of_place:
                assert run_program(program, collective, rng, in_place)


@pytest.mark.parametrize("name", ["allgather", "reduce-scatter", "allreduce", "broadcast"])
def test_in_place_is_claimed_where_nccl_users_need_it(
    name: str, mesh: Callable[..., Sketch]
) -> None:
    collective = Collective(name, 8)
    for method in FORMS_OF_METHODS:
        if name in method.collectives and method.name != "rings":
            sketch = mesh([0] * 4 + [1] * 4)
            try:
                schedule = make_schedule(Problem(collective, sketch, 1, 1 << 20), method.name)
            except Infeasible:
                continue
            program = lower(schedule)
            assert program.in_place, method.name
            assert program.out_of_place, method.name


def test_allpairs_is_one_method_with_variants() -> None:
    assert [name for name in METHODS if name.startswith("allpairs")] == ["allpairs"]
    searched = [name for name in searched_methods(unordered=True) if name.startswith("allpairs")]
    variants = ["allpairs+paired", "allpairs+any-order", "allpairs+paired+any-order"]
    assert searched == ["allpairs", *variants]
    assert "allpairs+paired" in searched_methods()
    assert not set(variants[1:]) & set(searched_methods())


@pytest.mark.parametrize("variant", ["+paired", "+any-order", "+paired+any-order"])
def test_the_former_name_of_a_variant_is_refused_by_naming_the_new_one(
    variant: str, mesh: Callable[..., Sketch]
) -> None:
    problem = Problem(Collective("allreduce", 4), mesh([0] * 4), 1, 1024)
    name = f"allpairs{variant}"
    former = name.replace("+", "-")
    with pytest.raises(InputError, match=re.escape(f"method {former} is now {name}")):
        make_schedule(problem, former)
    assert make_schedule(problem, name).method == name


def test_refusals_name_the_rule(mesh: Callable[..., Sketch]) -> None:
    gated = mesh([0, 0, 1, 1], "gate")
    with pytest.raises(Infeasible, match="no such link"):
        make_schedule(Problem(Collective("allgather", 4), gated, 1, 1024), "allpairs")
    with pytest.raises(Infeasible, match="one host"):
        make_schedule(Problem(Collective("allgather", 4), mesh([0] * 4), 1, 1024), "hierarchical2")
    for hosts, rule in (([0] * 4 + [1] * 3, "3 and 4 ranks"), ([0, 1, 2], "of 1 ranks")):
        with pytest.raises(Infeasible, match=rule):
            make_schedule(
                Problem(Collective("allreduce", len(hosts)), mesh(hosts), 1, 9),
                "hierarchical-rings",
            )
    with pytest.raises(Infeasible, match="from 0 to 4 directly"):
        rail_less = mesh([0] * 4 + [1] * 4, "gate")
        make_schedule(Problem(Collective("allreduce", 8), rail_less, 1, 1024), "hierarchical-rings")
    with pytest.raises(Infeasible, match=r"these methods do: .*allpairs"):
        make_schedule(Problem(Collective("alltoall", 4), gated, 1, 1024), "ring")
    with pytest.raises(InputError, match="same number"):
        make_schedule(Problem(Collective("alltoall", 3), gated, 1, 1024), "greedy")
    with pytest.raises(InputError, match="expected one of ring, "):
        make_schedule(Problem(Collective("alltoall", 4), gated, 1, 1024), "x" * 500)
    with pytest.raises(InputError, match="at least 1"):
        make_schedule(Problem(Collective("alltoall", 4), gated, 0, 1024), "greedy")


def test_mutants_never_verify(
    mesh: Callable[..., Sketch],
    mutate: Callable[[Program, random.Random], tuple[Program, str]],
) -> None:
    rng = random.Random(1)
    tried = 0
    for method, name in PAIRS:
        for hosts in ([0] * 3, [0, 0, 1, 1, 2, 2]):
            collective = Collective(name, len(hosts))
            try:
                schedule = make_schedule(Problem(collective, mesh(hosts), 2, 1 << 16), method)
            except Infeasible:
                continue
            program = lower(schedule)
            for _ in range(20):
                mutant, what = mutate(program, rng)
                assert not verify(mutant, "executor", 0).ok, f"{program.name}: {what}"
                tried += 1
    assert tried >= 1000


def clusters(profile: str, ranks: int) -> Iterator[Topology]:
    """Yield the ways to have `ranks` GPUs of a known machine on one to four hosts."""
    one = load_profile(profile)
    for hosts in (1, 2, 3, 4):
        if ranks % hosts == 0 and ranks // hosts <= one.ranks:
            host = keep_gpus(one, range(ranks // hosts))
            yield join(host, hosts) if hosts > 1 else host


def programs_of(machines: Iterable[Topology], ranks: int) -> Iterator[Program]:
    """Yield every program that the methods make for `ranks` GPUs of known machines."""
    for t in machines:
        for name in NAMES:
            collective = Collective(name, ranks, root=ranks - 1)
            for sketch in (candidate_sketches(t, name, 1 << 20)[0], full_mesh(t)):
                for method in FORMS_OF_METHODS:
                    if name in method.collectives:
                        try:
                            yield lower(
                                make_schedule(Problem(collective, sketch, 1, 1 << 20), method.name)
                            )
                        except Infeasible as refusal:
                            assert "wrong" not in str(refusal)


# They differ from another one only in rates or adapters; `make soak` has them too.
LIKE_ANOTHER = {
    *("a100x8-roce", "dgx-1v", "dgx-a100", "dgx-b200", "dgx-h200", "gb200", "ndv5"),
    *("oci-h100", "p4de"),
}
# Machines whose programs take longest to make.
LARGE = ("dgx-2", "l40sx8", "mi300x", "p5")


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else [])
        for name in PROFILES
        if name not in LIKE_ANOTHER
    ],
)
def test_programs_for_known_machines_verify(profile: str) -> None:
    ranks = {4: 6, 8: 12, 16: 9}[load_profile(profile).ranks]
    fewest_hosts = islice(clusters(profile, ranks), 1)
    made = Counter(p.collective for p in programs_of(fewest_hosts, ranks) if proved(p))
    assert set(made) == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(2, 17))
@pytest.mark.parametrize("profile", PROFILES)
def test_programs_for_known_machines_of_any_size_verify(profile: str, ranks: int) -> None:
    if next(clusters(profile, ranks), None) is None:
        pytest.skip(f"{ranks} ranks do not spread evenly over hosts of {profile}")
    made = Counter(p.collective for p in programs_of(clusters(profile, ranks), ranks) if proved(p))
    assert set(made) == set(NAMES)


def proved(program: Program) -> bool:
    report = verify(program, "executor", program.ngpus - 1)
    assert report.ok, report.errors[0].message
    return True


def test_solvers_are_the_methods_that_run_one() -> None:
    methods = METHODS | EXACT_METHODS
    assert {name for name, method in methods.items() if method.solver} == SOLVERS
    assert STAND_IN in METHODS.keys() - SOLVERS


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), PAIRS)
@pytest.mark.parametrize("ranks", range(2, 17))
def test_programs_verify_at_all_sizes(
    method: str, name: str, ranks: int, mesh: Callable[..., Sketch]
) -> None:
    for hosts in {1, 2, 3, 4} & set(range(1, ranks + 1)):
        layout = [rank * hosts // ranks for rank in range(ranks)]
        for kind in ("mesh", "rail", "gate"):
            for chunks in (1, 2, 4):
                collective = Collective(name, ranks, root=ranks - 1)
                try:
                    schedule = make_schedule(
                        Problem(collective, mesh(layout, kind), chunks, 1 << 22), method
                    )
                except Infeasible:
                    continue
                for copies, dialect in FORMS:
                    if dialect == "fork" and name in ("gather", "scatter"):
                        continue
                    try:
                        program = lower(schedule, instances=copies, dialect=dialect)
                    except Infeasible as refusal:
                        assert "the most is" in str(refusal)
                        continue
                    assert_sound(program, dialect, collective)
