"""What a file says beside its steps, held against each dialect; and programs of absurd numbers."""

from __future__ import annotations

from types import ModuleType

import pytest

from tuccl.errors import InputError
from tuccl.program import Finding, Gpu, Program, Step, ThreadBlock, parse_xml, to_xml, verify


def found(program: Program, dialect: str = "executor") -> list[Finding]:
    """Return the errors."""
    return verify(program, dialect).errors


@pytest.fixture
def ring(handmade: ModuleType) -> Program:
    """Return an out-of-place allgather of two ranks."""
    program: Program = handmade.ring_allgather(2).replace(in_place=False)
    return program


def local(ring: Program, *steps: Step) -> Program:
    """Return `ring` with rank 0's local thread block running `steps`."""
    [first, second] = ring.gpus
    blocks = [first.threadblocks[0], ThreadBlock(1, -1, -1, 0, list(steps))]
    gpus = [Gpu(0, 1, 2, 0, blocks), second]
    return Program(ring.name, "allgather", "Simple", 1, 2, gpus, in_place=False)


def test_places_in_a_file_carry_path_and_line(ring: Program) -> None:
    text = to_xml(local(ring, Step("cpy", "i", 0, "o", 1, 2)))
    [error, _] = found(parse_xml(text, "dir/f.xml"))
    assert error.message.startswith("dir/f.xml: gpu 0 tb 1 step 0 (line 8): ")
    assert text.splitlines()[error.line - 1].strip().startswith('<step s="0" type="cpy"')


@pytest.mark.parametrize(
    ("old", "new"),
    [('id="1" i_', 'id="0" i_'), ('id="1" i_', 'id="2" i_'), ('ngpus="2"', 'ngpus="4"')],
)
def test_missing_and_repeated_gpus(ring: Program, old: str, new: str) -> None:
    text = to_xml(ring).replace('nchunksperloop="2"', 'nchunksperloop="4"')
    assert [e.code for e in found(parse_xml(text.replace(old, new)))] == ["gpus"]


@pytest.mark.parametrize(
    ("removed", "dialect"),
    [
        (' minBytes="0"', "executor"),
        (' maxBytes="0"', "rccl"),
        (' outofplace="1"', "executor"),
        (' name="allgather_2"', "fork"),
    ],
)
def test_attributes_that_one_dialect_demands(ring: Program, removed: str, dialect: str) -> None:
    text = to_xml(ring, "fork" if dialect == "fork" else "executor")
    assert removed in text
    assert not found(parse_xml(text), dialect)
    errors = found(parse_xml(text.replace(removed, "")), dialect)
    assert [e.code for e in errors] == ["missing-attribute"]


def test_a_changed_program_is_no_longer_its_file(ring: Program) -> None:
    read = parse_xml(to_xml(ring, "fork"))
    assert {e.code for e in found(read)} == {"missing-attribute"}
    assert not found(read.replace(out_of_place=True))


def test_the_fork_does_not_read_outofplace(handmade: ModuleType) -> None:
    both = handmade.ring_allgather(2)
    assert [e.code for e in found(both, "fork")] == ["form"]
    read = parse_xml(to_xml(both).replace('maxBytes="0"', 'maxBytes="1024"'))
    assert not found(read, "fork")


def test_either_spelling_of_reduce_scatter_reads_and_one_is_known(handmade: ModuleType) -> None:
    program = handmade.ring_reduce_scatter(2).replace(in_place=False)
    for dialect, other in (("executor", "fork"), ("fork", "executor")):
        read = parse_xml(to_xml(program, dialect))
        assert not [e for e in found(read, dialect) if e.code == "dialect"]
        assert [e for e in found(read, other) if e.code == "dialect"]


def test_the_fork_compares_declared_chunks_with_the_loop(ring: Program) -> None:
    text = to_xml(ring, "fork")
    assert not found(parse_xml(text), "fork")
    wrong = text.replace('o_chunks="2"', 'o_chunks="3"')
    assert {e.code for e in found(parse_xml(wrong), "fork")} == {"buffer-size"}


def test_the_fork_stops_at_its_default_size(ring: Program) -> None:
    text = to_xml(ring, "fork").replace(' maxBytes="4611686018427387904"', "")
    assert not found(parse_xml(text), "fork")
    far = text.replace('minBytes="0"', 'minBytes="134217728"')
    assert [e.code for e in found(parse_xml(far), "fork")] == ["size-range"]


def test_a_fork_file_keeps_its_default_size_when_written_again(ring: Program) -> None:
    bare = to_xml(ring, "fork").replace(' maxBytes="4611686018427387904"', "")
    assert 'maxBytes="134217728"' in to_xml(parse_xml(bare), "fork")
    far = parse_xml(bare.replace('minBytes="0"', 'minBytes="134217728"'))
    with pytest.raises(InputError, match="is empty"):
        to_xml(far, "fork")


def test_older_releases_of_rccl_have_fewer_channels(ring: Program) -> None:
    def warned(channels: int, dialect: str) -> bool:
        program = Program("t", "allgather", "Simple", channels, 2, ring.gpus)
        return "channel" in {w.code for w in verify(program, dialect).warnings}

    assert [warned(n, "rccl") for n in (32, 33, 64)] == [False, True, True]
    assert not warned(32, "executor")


def test_the_fork_reserves_scratch_for_the_last_size(ring: Program) -> None:
    """It multiplies maxBytes by the scratch chunks when a communicator is made."""
    gpus = [Gpu(g.id, 1, 2, 3, g.threadblocks) for g in ring.gpus]
    scratchy = Program("t", "allgather", "Simple", 1, 2, gpus, in_place=False)
    assert scratchy.fork_scratch_limit == (16 << 30) // 3 * 2 and ring.fork_scratch_limit is None
    written = to_xml(scratchy, "fork")
    end = f"{(1 << 30) // 3 * 2}"
    assert f'maxBytes="{end}"' in written and not found(parse_xml(written), "fork")
    for top in (1 << 62, 11453246123):
        wide = parse_xml(written.replace(f'"{end}"', f'"{top}"'))
        [error] = found(wide, "fork")
        assert error.code == "size-range" and 'maxBytes="11453246122" at most' in error.message
        assert not found(parse_xml(written.replace(end, "11453246122")), "fork")
    assert not found(parse_xml(to_xml(scratchy)), "executor")


def test_threads_are_read_by_the_fork_only(ring: Program) -> None:
    text = to_xml(ring.replace(nthreads=256), "fork")
    assert not verify(parse_xml(text), "fork").warnings
    warnings = verify(ring.replace(nthreads=256), "executor").warnings
    assert [w.code for w in warnings] == ["ignored"] and "nthreads" in warnings[0].message


def test_collectives_that_no_runtime_calls_are_reported(handmade: ModuleType) -> None:
    program = handmade.direct_gather(2)
    assert "not-intercepted" in {w.code for w in verify(program).warnings}
    assert "dialect" in {e.code for e in found(program.replace(in_place=False), "fork")}


def test_more_than_1024_gpus_or_4095_elements_are_refused(ring: Program) -> None:
    for dialect, most in (("rccl", 1024), ("fork", 1024), ("executor", 4096)):
        gpus = [Gpu(r, 0, 0, 0, []) for r in range(most + 1)]
        [error] = [
            error
            for error in found(Program("t", "allreduce", "LL", 1, 1, gpus), dialect)
            if error.code == "limit"
        ]
        assert str(most) in error.message
    first = ring.gpus[0].threadblocks[0]
    for elements in (4095, 4096):
        left = elements - 3 - 1 - len(first.steps)  # <algo>, two <gpu>, the first <tb>
        blocks = [first]
        for size in [64] * (left // 65) + [left % 65 - 1]:
            target = ("o", 0) if len(blocks) == 1 else ("s", len(blocks))
            steps = [Step("cpy", "i", 0, *target, 1)] * size
            blocks.append(ThreadBlock(len(blocks), -1, -1, 0, steps))
        crowd = [Gpu(0, 1, 2, 100, blocks), ring.gpus[1]]
        errors = found(Program("t", "allgather", "LL", 1, 2, crowd, in_place=False))
        assert [e.code for e in errors] == (["limit"] if elements == 4096 else [])
    assert "4095" in errors[0].message


def test_findings_of_one_kind_are_counted_not_listed(ring: Program) -> None:
    errors = found(local(ring, *[Step("cpy", "i", 0, "o", 7, 1)] * 40))
    assert len(errors) == 5 and errors[-1].message.endswith("(and 35 more)")


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "numbers", [(HUGE, 0, 1), (0, HUGE, 1), (0, 0, HUGE), (-HUGE, -HUGE, -HUGE), (0, HUGE, HUGE)]
)
def test_absurd_ranges_are_reported(ring: Program, numbers: tuple[int, int, int]) -> None:
    source, target, count = numbers
    codes = {e.code for e in found(local(ring, Step("cpy", "i", source, "o", target, count)))}
    assert codes <= {"bounds", "count"} and codes


@pytest.mark.parametrize("numbers", [(HUGE, 0), (0, HUGE), (-HUGE, -HUGE), (0, -HUGE)])
def test_absurd_dependencies_are_reported(ring: Program, numbers: tuple[int, int]) -> None:
    tb, position = numbers
    step = Step("cpy", "i", 0, "o", 0, 1, dep_tb=tb, dep_step=position)
    assert {e.code for e in found(local(ring, step))} == {"dependency"}


def test_absurd_headers_are_reported() -> None:
    for nchannels, nchunks in ((HUGE, 1), (1, HUGE), (-1, 1), (1, -1), (0, 0)):
        gpus = [Gpu(0, HUGE, HUGE, HUGE, [ThreadBlock(HUGE, HUGE, -HUGE, -HUGE, [])])]
        assert found(Program("t", "allreduce", "LL", nchannels, nchunks, gpus))
    assert found(Program("t", "allreduce", "LL", 1, 1, []))


def test_absurd_scratch_costs_nothing(ring: Program) -> None:
    gpus = [Gpu(g.id, 1, 2, HUGE, g.threadblocks) for g in ring.gpus]
    assert not found(Program("t", "allgather", "Simple", 1, 2, gpus))
