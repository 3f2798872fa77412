"""Every method's programs on real data: threads as ranks, contents compared element by element."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.safety import safe_bytes
from tuccl.errors import Infeasible, InputError, Stuck
from tuccl.execution import Call, run_in_threads
from tuccl.program import Knobs, Program, parse_xml, verify
from tuccl.sketches import Sketch, full_mesh
from tuccl.synth import (
    Collective,
    Problem,
    find_method,
    lower,
    make_schedule,
    searched_methods,
)
from tuccl.topology import join, keep_gpus, load_profile

PAIRS = [
    (method, name)
    for method in searched_methods(unordered=True)
    for name in sorted(find_method(method).collectives)
]
LAYOUTS = ((1, 2), (1, 3), (1, 5), (2, 2), (1, 8), (2, 3), (3, 4), (2, 8))  # hosts x GPUs
DATATYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("half", "float", "double", "bfloat16"),
)
OPS = ("sum", "prod", "min", "max", "avg")
PROTOCOLS = ("Simple", "LL", "LL128")
SIZES = (1, 1009, 65536, 999983)
PATIENCE_S = 60.0
KINDS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")


@cache
def sketch(hosts: int, each: int) -> Sketch:
    host = keep_gpus(load_profile("ndv4"), range(each))
    return full_mesh(join(host, hosts) if hosts > 1 else host)


def programs(
    method: str, name: str, layouts: tuple[tuple[int, int], ...]
) -> Iterator[tuple[Program, int]]:
    """Yield the method's programs, and their roots."""
    for number, (hosts, each) in enumerate(layouts):
        collective = Collective(name, hosts * each, root=hosts * each // 2)
        copies = 1 + number % 2
        try:
            made = make_schedule(
                Problem(collective, sketch(hosts, each), 1 + number % 3, 1 << 20), method
            )
            yield lower(made, instances=copies), collective.root
        except Infeasible:
            continue


def at_most_safe(program: Program, knobs: Knobs, nbytes: int, root: int) -> int:
    """Return `nbytes`, or half of what is safe if the program may block there."""
    safe = safe_bytes(program, knobs, root)
    assert safe > 0
    return nbytes if 2 * nbytes <= safe else max(1, int(safe) // 2)


def wrong(program: Program, knobs: Knobs, nbytes: int, **more: Any) -> list[str]:  # noqa: ANN401
    """Return what is wrong on any rank, in any placement the program claims."""
    out = []
    for in_place in (False, True):
        if program.in_place if in_place else program.out_of_place:
            call = Call(program, knobs, nbytes, in_place=in_place, checked=1, **more)
            results = run_in_threads(call, PATIENCE_S)
            out += [f"rank {n}: {r.first_wrong}" for n, r in enumerate(results) if r.wrong]
    return out


@pytest.mark.slow  # test_matrix.py computes all of this too, on fewer machines
@pytest.mark.parametrize(("method", "name"), PAIRS)
def test_every_method_computes_what_it_should(method: str, name: str) -> None:
    """From 2 to 16 ranks, transfers held back at random; what varies is drawn, seeded."""
    rng = random.Random(f"{method} {name}")
    made = 0
    for program, root in programs(method, name, LAYOUTS):
        knobs = Knobs(rng.choice(PROTOCOLS), buffer_bytes=rng.choice((4096, 1 << 16, 1 << 20)))
        drawn = {"datatype": rng.choice(DATATYPES), "op": rng.choice(OPS), "root": root}
        small = rng.choice(SIZES[:2])
        small = at_most_safe(program, knobs, small, root)
        assert wrong(program, knobs, small, delay_us=200, seed=made, **drawn) == []
        knobs, large = Knobs(knobs.protocol), SIZES[-1] if program.ngpus <= 5 else SIZES[-2]
        large = at_most_safe(program, knobs, large, root)
        assert wrong(program, knobs, large, **drawn) == []
        made += 1
    assert made >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), PAIRS)
def test_every_method_in_every_way(method: str, name: str) -> None:
    for program, root in programs(method, name, LAYOUTS):
        for protocol, nbytes in product(PROTOCOLS, SIZES):
            for datatype, op in zip(DATATYPES, OPS * 2, strict=True):
                knobs = Knobs(protocol, buffer_bytes=1 << 16)
                more = {"datatype": datatype, "op": op, "root": root, "delay_us": 100}
                size = at_most_safe(program, knobs, nbytes, root)
                assert wrong(program, knobs, size, **more) == []


def test_every_type_and_reduction(handmade: ModuleType) -> None:
    for program in (handmade.ring_allreduce(3), handmade.allpairs_allreduce(4)):
        for datatype, op in product(DATATYPES, OPS):
            for protocol in ("Simple", "LL"):
                knobs = Knobs(protocol, buffer_bytes=4096)
                assert wrong(program, knobs, 10007, datatype=datatype, op=op) == []


def test_published_programs_do_what_the_verifier_says(shared_data: Path) -> None:
    """Right where it proves them, wrong where it misses the rank's own copy."""
    files = sorted((shared_data / "algorithms").rglob("*.xml"))
    proven = 0
    for file in files:
        program = parse_xml(file.read_text(), str(file))
        codes = [e.code for e in verify(program, "fork").errors]
        if program.ngpus > 8 or not set(codes) <= {"missing-copy", "dialect", "form"}:
            continue
        right = "missing-copy" not in codes
        found = wrong(program, Knobs(program.protocol), 1 << 16, delay_us=50)
        assert (found == []) == right, f"{file.name}: {found[:1]}"
        proven += right
    assert proven > 3


def test_a_lost_dependency_comes_out_wrong(handmade: ModuleType) -> None:
    """Held back at random, a race that the verifier would see shows in the data."""
    program = handmade.allpairs_allreduce(4)

    def without(step: Any) -> Any:  # noqa: ANN401
        fields = ("op", "src_buffer", "src_offset", "dst_buffer", "dst_offset", "count")
        return type(step)(*(getattr(step, f) for f in fields), -1, -1, step.has_dep)

    gpus = [
        type(g)(
            *(g.id, g.input_chunks, g.output_chunks, g.scratch_chunks),
            [
                type(t)(
                    *(t.id, t.send_peer, t.recv_peer, t.channel),
                    [without(s) for s in t.steps if s.op != "nop"],
                )
                for t in g.threadblocks
            ],
        )
        for g in program.gpus
    ]
    racy = Program(*("racy", "allreduce", "LL", 1, 4, gpus), in_place=False, out_of_place=True)
    assert any(wrong(racy, Knobs("LL"), 4096, delay_us=2000, seed=n) for n in range(5))


def test_mutations_never_hang_or_crash(handmade: ModuleType, mutate: Any) -> None:  # noqa: ANN401
    """A broken program is refused, stuck, wrong or right; each in bounded time."""
    rng = random.Random(1)
    seen = set()
    for number in range(40):
        whole = handmade.everything(3)
        broken, _ = mutate(whole[number % len(whole)], rng)
        call = Call(broken, Knobs(broken.protocol), 4096, checked=1, seed=number)
        try:
            seen.add("wrong" if any(r.wrong for r in run_in_threads(call, 0.7)) else "right")
        except InputError:
            seen.add("refused")
        except Stuck as stuck:
            assert "waits for" in str(stuck)
            seen.add("stuck")
    assert seen >= {"wrong", "refused"}


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_every_kind_of_step_that_waits_for_ever_is_named(
    handmade: ModuleType, protocol: str
) -> None:
    """With its rank, its place and whom it waits for; delays do not hide it."""
    window = 2 if protocol == "Simple" else 8

    def said(op: str) -> str:
        call = Call(handmade.stalled(op, window), Knobs(protocol), 4096, checked=1, delay_us=100)
        with pytest.raises(Stuck) as stuck:
            run_in_threads(call, 2.0)
        return str(stuck.value)

    with ThreadPoolExecutor() as pool:
        for op, text in zip(KINDS, pool.map(said, KINDS), strict=True):
            assert f"rank 0 tb 0 step {window if op == 's' else 1} ({op}) waits for" in text
            assert "rank 2 tb 0 step 0 (r) waits for data from rank 0" in text
            whom = "rank 1 to receive (FIFO full)" if op == "s" else "data from rank 1"
            assert f"waits for {whom}" in text.split("; ")[0]


def test_equal_seeds_give_equal_bytes_on_the_wire(handmade: ModuleType) -> None:
    call = Call(handmade.ring_allgather(4), Knobs(), 4096, checked=1)
    sent = [r.bytes_sent for r in run_in_threads(call, PATIENCE_S)]
    assert sent == [3 * 1024] * 4


def test_only_real_numbers_of_things_are_taken(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(2)
    for bad in ({"datatype": "int4"}, {"op": "xor"}, {"root": 2}, {"checked": -1}):
        with pytest.raises(InputError):
            Call(program, Knobs(), 64, **bad).check()
    for knobs, nbytes in ((Knobs(threads=33), 64), (Knobs(), 0), (Knobs(), 1 << 50)):
        with pytest.raises(InputError):
            run_in_threads(Call(program, knobs, nbytes))
