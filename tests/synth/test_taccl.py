"""TACCL: schedules keep every rule, bounds hold, refusals name the rule."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace as replace_fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.taccl_reference import schedule_fault, schedule_time_us, taccl_costs
from tuccl.errors import Infeasible, InputError
from tuccl.program import verify
from tuccl.sketches import Sketch, load_sketch
from tuccl.sketches.sketch import LogicalLink
from tuccl.sketches.taccl import read_taccl_profile
from tuccl.sketches.taccl_profile import SHIPPED_UNITS, TacclMachine
from tuccl.synth import COLLECTIVES, Collective, Problem, lower, make_schedule
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.solver import Budget
from tuccl.synth.taccl.chunks import sketch_symmetry
from tuccl.synth.taccl.costs import Link, sketch_costs
from tuccl.synth.taccl.problem import TimedMessage, makespan, retime, reverse_time
from tuccl.synth.taccl.taccl import Solution, schedule_of, solve

Mesh = Callable[..., Sketch]
CHUNK = 1 << 20


def line_sketch(hosts: list[int], pairs: list[tuple[int, int]], alpha: float = 1.0) -> Sketch:
    links = tuple(
        LogicalLink(
            src=a, dst=b, inter=hosts[a] != hosts[b], alpha_us=alpha, beta_us_per_mb=9.536743
        )
        for a, b in sorted(pairs)
    )
    return Sketch(name="hand", ranks=len(hosts), hosts=tuple(hosts), links=links)


def ring_sketch(ranks: int) -> Sketch:
    return line_sketch([0] * ranks, [(r, (r + 1) % ranks) for r in range(ranks)])


def solve_sketch(
    sketch: Sketch, name: str, parts: int = 1, seconds: float = 20.0, **budget: object
) -> tuple[Solution, Collective]:
    collective = Collective(name, sketch.ranks, root=sketch.ranks // 2)
    costs = sketch_costs(sketch, CHUNK)
    return solve(
        collective,
        sketch,
        costs,
        parts,
        Budget(seconds=seconds, **budget),  # type: ignore[arg-type]
    ), collective


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(
    ("hosts", "kind"), [([0] * 4, "mesh"), ([0, 0, 0, 1, 1, 1], "rail"), ([0, 0, 1, 1], "gate")]
)
def test_schedules_keep_the_rules_and_programs_verify(
    name: str,
    hosts: list[int],
    kind: str,
    mesh: Mesh,
    run_schedule: Callable[..., bool],
    run_program: Callable[..., bool],
) -> None:
    sketch = mesh(hosts, kind)
    solution, collective = solve_sketch(sketch, name, parts=2, seconds=1.0)
    costs = sketch_costs(sketch, CHUNK)
    assert schedule_fault(solution.messages, collective, sketch, costs, 2) is None
    time_us = schedule_time_us(solution.messages, collective, sketch, costs, 2)
    assert time_us == solution.proof.time_us >= solution.proof.bound_us > 0
    schedule = schedule_of(solution, collective, sketch, 2)
    assert schedule.proof == solution.proof
    assert verify_schedule(schedule) is None
    rng = random.Random(0)
    assert run_schedule(schedule, rng, False)
    program = lower(schedule, instances=2)
    assert verify(program, "executor", collective.root).ok
    assert run_program(program, collective, rng, not program.out_of_place)


def test_known_optima() -> None:
    """A ring passes chunks on; a switch port takes one at a time; a full mesh needs one round."""
    takes = 11.0  # us of a chunk of 1 MiB on these links
    for name in ("allgather", "reduce-scatter", "broadcast", "reduce"):
        solution, _ = solve_sketch(ring_sketch(5), name)
        assert solution.proof.status == "optimal"
        if name != "broadcast" and name != "reduce":
            assert solution.proof.time_us == pytest.approx(4 * takes, abs=0.1)
    pairs = [(a, b) for a in range(5) for b in range(5) if a != b]
    full = line_sketch([0] * 5, pairs)
    assert solve_sketch(full, "allgather")[0].proof.time_us == pytest.approx(takes, abs=0.1)
    switched = replace(full, switches=((0, 1, 2, 3, 4),))
    for name in ("allgather", "alltoall", "gather", "scatter", "reduce-scatter"):
        solution, _ = solve_sketch(switched, name)
        assert solution.proof.status == "optimal", name
        assert solution.proof.time_us == pytest.approx(4 * takes, abs=0.1)
        assert solution.proof.gap == 0


def test_bounds_hold_for_every_schedule(mesh: Mesh) -> None:
    """No schedule, with more time or without symmetry, is below a bound stated before."""
    for kind in ("mesh", "rail", "gate"):
        sketch = replace(mesh([0, 0, 0, 1, 1, 1], kind), symmetry=((3, 6),))
        if kind == "gate":
            sketch = replace(sketch, symmetry=())
        quick, _ = solve_sketch(sketch, "allgather", seconds=0.3)
        long, _ = solve_sketch(sketch, "allgather", seconds=3.0)
        assert quick.proof.bound_us <= long.proof.time_us
        assert long.proof.bound_us <= quick.proof.time_us


def test_chunks_share_a_message_where_that_saves_latency(mesh: Mesh) -> None:
    sketch = mesh([0, 0, 1, 1], "gate")
    links = tuple(
        replace(link, alpha_us=100.0, beta_us_per_mb=1.0) if link.inter else link
        for link in sketch.links
    )
    solution, _ = solve_sketch(replace(sketch, links=links), "alltoall")
    assert max(len(message.chunks) for message in solution.messages) > 1
    single = sum(sketch.links[m.link].inter for m in solution.messages) < 8
    assert single, "8 chunks cross, by fewer messages"


def test_symmetric_schedules_are_symmetric(mesh: Mesh) -> None:
    sketch = replace(mesh([0] * 4 + [1] * 4, "rail"), symmetry=((1, 4), (4, 8)))
    collective, costs = Collective("allgather", 8), sketch_costs(sketch, CHUNK)
    symmetry = sketch_symmetry(collective, sketch, costs, 1)
    assert len(symmetry) == 8
    solution, _ = solve_sketch(sketch, "allgather", seconds=2.0)
    sent = {(m.chunks, m.link, m.start) for m in solution.messages}
    for to in symmetry.elements:
        moved = {(tuple(to.sets[c] for c in cs), to.links[w], at) for cs, w, at in sent}
        assert moved == sent


def test_symmetries_that_cannot_hold_are_left_out(mesh: Mesh) -> None:
    sketch = mesh([0] * 4)
    costs = sketch_costs(sketch, CHUNK)
    both = replace(sketch, symmetry=((1, 2), (1, 4)))  # together they hold a rank in place
    assert len(sketch_symmetry(Collective("allgather", 4), both, costs, 1)) == 2
    assert len(sketch_symmetry(Collective("broadcast", 4), both, costs, 1)) == 1
    uneven = replace(sketch, symmetry=((1, 4),), relays={0: (0, 1, 2, 3)})
    assert len(sketch_symmetry(Collective("allgather", 4), uneven, costs, 1)) == 1


@pytest.fixture
def schedule(mesh: Mesh) -> tuple[list[TimedMessage], Collective, Sketch]:
    """Return a correct schedule with relay rules and a switch."""
    sketch = replace(
        mesh([0, 0, 1, 1]),
        relays={0: (0,), 1: (1,), 2: (2,), 3: (3,)},
        switches=((0, 1), (2, 3)),
    )
    solution, collective = solve_sketch(sketch, "allgather", seconds=1.0)
    return list(solution.messages), collective, sketch


def test_the_checker_sees_every_kind_of_fault(
    schedule: tuple[list[TimedMessage], Collective, Sketch],
) -> None:
    messages, collective, sketch = schedule
    costs = sketch_costs(sketch, CHUNK)

    def fault_of(candidate: list[TimedMessage]) -> str:
        return schedule_fault(candidate, collective, sketch, costs, 1) or ""

    assert fault_of(messages) == ""
    first = messages[0]
    assert "expected" in fault_of([first._replace(end=first.end + 1), *messages[1:]])
    assert "from time 0" in fault_of([first._replace(start=-5, end=first.end - 5), *messages[1:]])
    assert "in use until" in fault_of([*messages, first])
    for number, message in enumerate(messages):
        rest = messages[:number] + messages[number + 1 :]
        assert "without chunk" in fault_of(rest) or "does not have" in fault_of(rest)
        takes = message.end - message.start
        if message.start > 0:
            early = message._replace(start=0, end=takes)
            assert fault_of([*rest, early]), "earlier than it was ready or free"
    crossing = next(m for m in messages if sketch.links[m.link].inter)
    other = (crossing.chunks[0] + 1) % 2 + 2 * (crossing.chunks[0] // 2)
    assert "no relay for" in fault_of(
        [m if m != crossing else m._replace(chunks=(other,)) for m in messages]
    )
    inside = next(m for m in messages if not sketch.links[m.link].inter)
    takes = costs.links[inside.link].message_ns(2)
    both = inside._replace(chunks=(0, 1, *inside.chunks)[:2], end=inside.start + takes)
    assert "one by one" in fault_of([m if m != inside else both for m in messages])


def test_the_checker_counts_contributions_once(mesh: Mesh) -> None:
    sketch = mesh([0] * 3)
    solution, collective = solve_sketch(sketch, "reduce-scatter")
    costs = sketch_costs(sketch, CHUNK)
    last = makespan(solution.messages)
    again = [m._replace(start=m.start + last, end=m.end + last) for m in solution.messages]
    twice = schedule_fault([*solution.messages, *again], collective, sketch, costs, 1)
    assert twice is not None
    assert "already has" in twice


def test_retimed_and_reversed_schedules_are_right(mesh: Mesh) -> None:
    sketch = mesh([0, 0, 0, 1, 1, 1], "rail")
    solution, collective = solve_sketch(sketch, "allgather", seconds=1.0)
    costs = sketch_costs(sketch, CHUNK)
    slow = replace_fields(
        costs, links=tuple(replace_fields(w, beta=2 * w.beta) for w in costs.links)
    )
    slower = retime(solution.messages, slow)
    assert schedule_fault(slower, collective, sketch, slow, 1) is None
    assert makespan(retime(slower, costs)) <= makespan(solution.messages)
    back = reverse_time(reverse_time(solution.messages))
    assert sorted(back) == sorted(solution.messages)


def test_a_schedule_is_there_at_once(mesh: Mesh) -> None:
    sketch = mesh([0] * 8 + [1] * 8, "gate")
    solution, collective = solve_sketch(sketch, "allgather", seconds=0.0)
    assert (
        schedule_fault(solution.messages, collective, sketch, sketch_costs(sketch, CHUNK), 1)
        is None
    )
    assert solution.proof.status == "feasible"
    better, _ = solve_sketch(sketch, "allgather", seconds=2.0)
    assert better.proof.time_us <= solution.proof.time_us
    assert better.proof.bound_us >= solution.proof.bound_us


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_an_interrupt_keeps_the_best_schedule(name: str, mesh: Mesh) -> None:
    lines: list[str] = []

    def press_ctrl_c(line: str) -> None:
        lines.append(line)
        if "bound of this stage" in line:
            signal.raise_signal(signal.SIGINT)

    sketch = mesh([0] * 8 + [1] * 8, "gate")
    before = signal.getsignal(signal.SIGINT)
    solution, collective = solve_sketch(sketch, name, parts=2, seconds=60.0, report=press_ctrl_c)
    assert signal.getsignal(signal.SIGINT) == before
    assert solution.proof.status == "interrupted", lines
    assert not solution.proof.reproducible
    assert (
        schedule_fault(solution.messages, collective, sketch, sketch_costs(sketch, CHUNK), 2)
        is None
    )
    assert any(line.startswith("heuristic") for line in lines)


def test_equal_calls_give_equal_schedules(mesh: Mesh) -> None:
    sketch = replace(mesh([0, 0, 0, 1, 1, 1], "rail"), symmetry=((3, 6),))
    one, _ = solve_sketch(sketch, "allgather", seconds=30.0, seed=7)
    other, _ = solve_sketch(sketch, "allgather", seconds=30.0, seed=7)
    if one.proof.reproducible and other.proof.reproducible:
        assert one.messages == other.messages
    else:
        pytest.skip("this machine is too slow for the deterministic limit to come first")


def test_own_chunks_go_first(mesh: Mesh) -> None:
    sketch = replace(
        mesh([0, 0, 1, 1], "gate"),
        relays={0: (0, 1), 2: (2, 3)},
        own_chunks_first=True,
    )
    for name in ("allgather", "alltoall"):
        solution, collective = solve_sketch(sketch, name, parts=2, seconds=2.0)
        per_owner = 2 * (4 if name == "alltoall" else 1)
        for sender in (0, 2):
            sent = [
                chunk // per_owner
                for m in solution.messages
                if sketch.links[m.link].inter and sketch.links[m.link].src == sender
                for chunk in sorted(m.chunks, key=lambda c: c // per_owner != sender)
            ]
            own = [owner == sender for owner in sent]
            assert own == sorted(own, reverse=True), f"{name}: {sent}"
        assert collective.ranks == 4


def test_refusals_name_the_rule_at_fault(mesh: Mesh) -> None:
    four = mesh([0, 0, 0, 0, 1, 1, 1, 1], "rail")

    def refusal(sketch: Sketch, name: str = "allgather") -> str:
        with pytest.raises(Infeasible) as caught:
            solve_sketch(replace(sketch, name="sk1"), name, seconds=1.0)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    carried = {0: (0, 1, 2), 4: (4, 5, 6, 7)}
    message = refusal(replace(four, relays=carried))
    assert "sketch sk1: chunk 3 of rank 3 cannot leave host 0" in message
    assert "gpus_to_sender_rev_map has no relay for GPU 3" in message
    inside = replace(four, links=tuple(link for link in four.links if not link.inter))
    assert "internode_conn has no link out of host 0" in refusal(inside)
    assert "internode_conn has no link out of GPU 1" in refusal(
        replace(
            four,
            links=tuple(k for k in four.links if not (k.inter and k.src == 1)),
            relays={0: (0,), 1: (1,), 2: (2,), 3: (3,), 4: (4, 5, 6, 7)},
        )
    )
    cut = replace(four, links=tuple(k for k in four.links if k.inter or 3 not in (k.src, k.dst)))
    assert "inside host" in refusal(cut, "alltoall")
    alone = replace(
        four,
        links=tuple(k for k in four.links if (k.inter and k.src != 3) or 3 not in (k.src, k.dst)),
        relays={},
    )
    assert "rank 3" in refusal(alone, "reduce-scatter")


TACCL_OWN = (
    # Sketch, profile, collective, and what TACCL's released code makes of it in the profile's unit.
    ("sk1-ndv2-n1", "ndv2-1MB", "allgather", 92.0),
    ("sk1-ndv2-n1", "ndv2-1KB", "allgather", 100.0),
    ("sk1-ndv2-n1", "ndv2-1MB", "reduce-scatter", 115.0),
    ("sk1-dgx2-n1", "dgx2-1MB", "allgather", 120.0),
    ("sk2-dgx2-n2", "dgx2-1KB", "allgather", 1519.0),
    ("sk1-ndv2-n2", "ndv2-1MB", "allgather", 1011.4),
)


@pytest.mark.parametrize(("sketch_name", "profile_name", "name", "theirs"), TACCL_OWN)
def test_taccls_sketches_are_never_slower_than_its_own_result(
    sketch_name: str, profile_name: str, name: str, theirs: float, shared_data: Path
) -> None:
    file = shared_data / "taccl" / "topo" / f"topo-{profile_name}.json"
    nbytes, unit = SHIPPED_UNITS[json.loads(file.read_text())["name"]]
    machine: TacclMachine = "NDv2" if profile_name.startswith("ndv2") else "DGX2"
    profile = read_taccl_profile(file, machine, nbytes, unit)
    sketch = load_sketch(shared_data / "taccl" / "sketch" / f"{sketch_name}.json", profile)
    costs = taccl_costs(sketch, nbytes, unit)
    collective = Collective(name, sketch.ranks)
    solution = solve(collective, sketch, costs, sketch.chunks_per_rank, Budget(seconds=20.0))
    time_us = schedule_time_us(solution.messages, collective, sketch, costs, sketch.chunks_per_rank)
    assert solution.proof.bound_us <= time_us <= theirs * unit
    program = lower(schedule_of(solution, collective, sketch, sketch.chunks_per_rank))
    assert verify(program, "executor", 0).ok


def test_taccls_accounting_of_its_own_profiles(shared_data: Path) -> None:
    """int(alpha + beta) inside; beta times links a NIC, cut, between; GPU ports from 3 nodes on."""
    folder = shared_data / "taccl"

    def links(sketch_name: str, profile_name: str, rounded: bool = False) -> list[Link]:
        file = folder / "topo" / f"topo-{profile_name}.json"
        nbytes, unit = SHIPPED_UNITS[json.loads(file.read_text())["name"]]
        profile = read_taccl_profile(file, "NDv2", nbytes, unit)
        sketch = load_sketch(folder / "sketch" / f"{sketch_name}.json", profile)
        return list(taccl_costs(sketch, nbytes, unit, rounded).links)

    inside = {w.message_ns() for w in links("sk1-ndv2-n2", "ndv2-1KB") if not w.inter}
    assert inside == {320, 340}, "32.24 and 34.5 hundredths of a us, cut"
    [crossing] = {(w.alpha, w.beta, w.ports) for w in links("sk3-ndv2-n2", "ndv2-1MB") if w.inter}
    assert crossing == (2600, 840_000, ()), "eight links on a NIC"
    [cut] = {(w.alpha, w.beta) for w in links("sk3-ndv2-n2", "ndv2-1MB", True) if w.inter}
    assert cut == (0, 842_000)
    assert all(len(w.ports) == 2 for w in links("sk1-ndv2-n4", "ndv2-1MB") if w.inter)


def test_without_ortools_the_error_says_how_to_get_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="pip install 'ortools=="):
        make_schedule(Problem(Collective("allgather", 4), mesh([0] * 4), 1, 1 << 20), "taccl")


def test_a_switch_strategy_decides_between_schedules_as_short(mesh: Mesh) -> None:
    sketch = replace(mesh([0] * 4), switches=((0, 1, 2, 3),), symmetry=())
    used, times = {}, {}
    for strategy in ("uc-min", "uc-max"):
        named = replace(sketch, switch_strategy=(strategy,))
        solution, collective = solve_sketch(named, "allgather")
        assert (
            schedule_fault(solution.messages, collective, named, sketch_costs(named, CHUNK), 1)
            is None
        )
        used[strategy] = len({message.link for message in solution.messages})
        times[strategy] = makespan(solution.messages)
    assert times["uc-min"] == times["uc-max"]
    assert used == {"uc-min": 4, "uc-max": 12}
