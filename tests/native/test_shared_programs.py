"""Programs that others made and ran: every right one is accepted, the wrong one refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tuccl.program import Program, parse_xml, verify

Mutate = Callable[[Program, random.Random], tuple[Program, str]]

MADE_FOR = {
    "azure_ncv4": "executor",
    "azure_ndv5": "executor",
    "msccl_tools": "fork",
    "taccl": "fork",
}
WRONG = "a2a_hs2n2__Alltoall_i1.xml"


def programs(shared_data: Path) -> list[tuple[Program, str]]:
    """Return every shared program but the wrong one, with the dialect it is made for."""
    files = sorted(shared_data.glob("algorithms/*/*.xml"))
    assert len(files) >= 28
    return [
        (parse_xml(file.read_bytes(), str(file)), MADE_FOR[file.parent.name])
        for file in files
        if file.name != WRONG
    ]


def test_right_programs_are_accepted_in_their_dialect(shared_data: Path) -> None:
    for program, dialect in programs(shared_data):
        report = verify(program, dialect)
        assert report.ok, report.errors
        assert report.max_safe_bytes == 0


def test_programs_of_one_dialect_lack_what_the_other_demands(shared_data: Path) -> None:
    for program, dialect in programs(shared_data):
        other = verify(program, "executor")
        codes = {e.code for e in other.errors}
        assert codes == ({"missing-attribute"} if dialect == "fork" else set())


def test_steps_that_rccl_has_no_kernel_for_are_named(shared_data: Path) -> None:
    fused = {"rcs", "rrs", "rrc", "rrcs"}
    for program, dialect in programs(shared_data):
        ops = {s.op for g in program.gpus for b in g.threadblocks for s in b.steps}
        codes = {e.code for e in verify(program, "rccl").errors}
        assert ("dialect" in codes) == bool(ops & fused), (program.path, dialect)


def test_taccls_alltoall_lacks_its_own_chunks(shared_data: Path) -> None:
    file = shared_data / "algorithms" / "taccl" / WRONG
    report = verify(parse_xml(file.read_bytes(), WRONG), "fork")
    assert {e.code for e in report.errors} == {"missing-copy"}
    assert len(report.errors) == 4
    for rank, error in enumerate(report.errors):
        assert error.message.startswith(f"{WRONG}: gpu {rank} (line ")
        assert "own chunk" in error.message and "never copied from input to output" in error.message
    assert any("<copy> in <gpu> (4 times)" in w.message for w in report.warnings)


@pytest.mark.parametrize("seed", range(3))
def test_broken_copies_are_refused(shared_data: Path, mutate: Mutate, seed: int) -> None:
    rng = random.Random(seed)
    for program, dialect in programs(shared_data):
        for _ in range(8):
            broken, done = mutate(program, rng)
            assert not verify(broken, dialect).ok, f"{program.path}: {done}"
