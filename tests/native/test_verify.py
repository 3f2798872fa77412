"""What the verifier proves: results, order, deadlock, and the largest safe size."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import ModuleType

import pytest

from tuccl.errors import InputError
from tuccl.program import (
    Gpu,
    Knobs,
    Program,
    Step,
    ThreadBlock,
    VerifyReport,
    default_buffer_bytes,
    max_safe_bytes,
    max_threads,
    parse_xml,
    to_xml,
    verify,
)

Mutate = Callable[[Program, random.Random], tuple[Program, str]]


def test_a_program_that_is_not_safe_is_named_once_with_the_code(handmade: ModuleType) -> None:
    program = handmade.ring_allreduce(3)
    text = to_xml(program).replace('srcoff="2"', 'srcoff="1"', 1)
    with pytest.raises(InputError, match=r"^a\.xml: gpu .*\[[a-z-]+\]$"):
        max_safe_bytes(parse_xml(text, "a.xml"), "executor")


def codes(report: VerifyReport) -> set[str]:
    """Return the codes of the errors."""
    return {e.code for e in report.errors}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_right_programs_are_accepted(handmade: ModuleType, ranks: int) -> None:
    for program in handmade.everything(ranks):
        report = verify(program)
        assert report.ok, report.errors
        assert report.max_safe_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_broken_programs_are_refused(handmade: ModuleType, mutate: Mutate, seed: int) -> None:
    rng = random.Random(seed)
    for program in handmade.everything(rng.choice((2, 3, 5))):
        for _ in range(5):
            broken, done = mutate(program, rng)
            assert not verify(broken).ok, f"{program.name}: {done}"


@pytest.mark.parametrize(
    "make", ["chain_broadcast", "chain_reduce", "direct_gather", "direct_scatter"]
)
def test_the_root_counts(handmade: ModuleType, make: str) -> None:
    program = getattr(handmade, make)(4, root=2)
    assert verify(program, root=2).ok
    assert [w.code for w in verify(program, root=2).warnings][-1] == "root"
    assert not verify(program, root=0).ok
    assert codes(verify(program, root=4)) == codes(verify(program, root=-1)) == {"root"}


def test_many_ranks_are_proved(handmade: ModuleType) -> None:
    assert verify(handmade.ring_allgather(33, channels=8)).ok
    assert verify(handmade.direct_alltoall(33)).ok


def test_the_loaders_table_of_peers_is_not_overrun(handmade: ModuleType) -> None:
    """After 32 senders of a channel they look at its 33rd place with every block that follows."""
    text = to_xml(handmade.direct_alltoall(33))
    assert verify(parse_xml(text)).ok
    head, first, *rest = re.split(r"(?=    <tb)", text.split("  </gpu>")[0])
    local_last = text.replace(head + first + "".join(rest), head + "".join(rest) + first, 1)
    assert parse_xml(local_last) == parse_xml(text)
    [error] = verify(parse_xml(local_last)).errors
    assert error.code == "limit" and "overrun their table of 32" in error.message
    assert codes(verify(handmade.direct_alltoall(34))) == {"limit"}


# --- dataflow -------------------------------------------------------------------------------


def reducing(*steps: Step, scratch: int = 1) -> Program:
    """Return an allreduce of one chunk whose two ranks run `steps` in one thread block."""
    gpus = [Gpu(r, 1, 1, scratch, [ThreadBlock(0, 1 - r, 1 - r, 0, list(steps))]) for r in (0, 1)]
    return Program("t", "allreduce", "LL", 1, 1, gpus, in_place=False)


SEND = Step("s", "i", 0, "o", -1, 1)


@pytest.mark.parametrize(
    ("steps", "code", "says"),
    [
        ([SEND, Step("rrc", "i", 0, "o", 0, 1)], None, ""),
        (
            [SEND, Step("rrc", "i", 0, "s", 0, 1), Step("cpy", "s", 0, "o", 0, 1)],
            None,
            "",
        ),
        (
            [SEND, Step("rrc", "i", 0, "o", 0, 1), Step("re", "i", 0, "o", 0, 1)],
            "counted-twice",
            "gpu 0 tb 0 step 2: adds chunk 0 of ranks 0 1 to chunk 0 of rank 0",
        ),
        ([SEND, Step("r", "i", 0, "o", 0, 1)], "wrong-result", "expected chunk 0 of ranks 0 1"),
        (
            [SEND, Step("rrc", "s", 0, "o", 0, 1)],
            "uninitialised",
            "step 1: reads chunk 0 of buffer s",
        ),
        ([Step("s", "s", 0, "o", -1, 1), Step("r", "i", 0, "o", 0, 1)], "uninitialised", "step 0"),
        (
            [SEND, Step("rrc", "i", 0, "i", 0, 1), Step("cpy", "i", 0, "o", 0, 1)],
            "clobbered-input",
            "input chunk 0 is overwritten",
        ),
        ([SEND, Step("rrc", "i", 0, "s", 0, 1)], "wrong-result", "ends with nothing"),
    ],
)
def test_wrong_sums_are_named(steps: list[Step], code: str | None, says: str) -> None:
    report = verify(reducing(*steps))
    assert codes(report) == ({code} if code else set())
    assert says in (report.errors[0].message if code else "")


def test_adding_different_chunks_is_named() -> None:
    steps = [Step("s", "i", 1, "o", -1, 1), Step("rrc", "i", 0, "o", 0, 1)]
    gpus = [Gpu(r, 2, 2, 0, [ThreadBlock(0, 1 - r, 1 - r, 0, steps)]) for r in (0, 1)]
    report = verify(Program("t", "allreduce", "LL", 1, 2, gpus))
    assert report.errors[0].code == "mixed-chunks"
    assert "chunk 0 of rank 0 to chunk 1 of rank 1" in report.errors[0].message


def test_in_place_the_buffers_are_one(handmade: ModuleType) -> None:
    # Received onto the output before the input at the same place was sent: wrong in place only.
    def blocks(rank: int) -> list[ThreadBlock]:
        peer = 1 - rank
        return [
            ThreadBlock(0, -1, peer, 0, [handmade.recv("o", peer, has_dep=True)]),
            ThreadBlock(1, peer, -1, 0, [handmade.send("i", peer)]),
            ThreadBlock(2, -1, -1, 0, [handmade.copy(rank, rank)]),
        ]

    program = handmade.program("alltoall", 2, 2, blocks, in_place=False)
    assert verify(program).ok
    report = verify(program.replace(in_place=True, out_of_place=False))
    assert codes(report) == {"race"}
    assert all("(in place)" in e.message for e in report.errors)


def test_a_copy_onto_itself_races_with_writes_only(handmade: ModuleType) -> None:
    # In place the ring reads the own chunk while the copy puts it back: no harm.
    assert verify(handmade.ring_allgather(4).replace(out_of_place=False)).ok

    def exchange(copies: int, ordered: bool) -> Program:
        gpus = []
        for rank in (0, 1):
            wires = [SEND, Step("r", "i", -1, "s", 0, 1, has_dep=True)]
            wait = [Step("nop", dep_tb=0, dep_step=1)] if ordered else []
            after = 2 if ordered else 0
            copy = Step("cpy", "i", 0, "o", 0, 1, has_dep=True)
            add = Step("re", "s", 0, "o", 0, 1, dep_tb=after, dep_step=0 if ordered else 1)
            blocks = [ThreadBlock(0, 1 - rank, 1 - rank, 0, wires)]
            blocks.append(ThreadBlock(1, -1, -1, 0, [*wait, add]))
            blocks += [ThreadBlock(2 + k, -1, -1, 0, [copy]) for k in range(copies)]
            gpus.append(Gpu(rank, 1, 1, 1, blocks))
        return Program("t", "allreduce", "LL", 1, 1, gpus, out_of_place=False)

    assert verify(exchange(1, ordered=True)).ok
    assert codes(verify(exchange(1, ordered=False))) == {"race"}
    report = verify(exchange(2, ordered=True))  # only one of the two copies is waited for
    assert [e.tb for e in report.errors if e.code == "race"]


def overwriting(collective: str, in_place: bool, writes: bool) -> Program:
    """Return a right program of two ranks, rank 1 (0 of a scatter) writing into its input."""
    back = [Step("cpy", "s", 0, "i", 0, 1)] if writes else []
    if collective == "scatter":
        root = [Step("s", "i", 1, "o", -1, 1), Step("cpy", "i", 0, "o", 0, 1)]
        root += [Step("cpy", "i", 0, "i", 1, 1)] if writes else []
        gpus = [
            Gpu(0, 2, 1, 0, [ThreadBlock(0, 1, -1, 0, root)]),
            Gpu(1, 2, 1, 0, [ThreadBlock(0, -1, 0, 0, [Step("r", "i", -1, "o", 0, 1)])]),
        ]
        chunks = 2
    else:
        chunks = 2 if collective == "gather" else 1
        take = (
            [Step("cpy", "i", 0, "o", 0, 1), Step("r", "i", -1, "o", 1, 1)]
            if collective == "gather"
            else [Step("rrc", "i", 0, "o", 0, 1)]
        )
        ours = [Step("r", "i", -1, "s", 0, 1), SEND, *back]
        gpus = [
            Gpu(0, 1, chunks, 0, [ThreadBlock(0, 1, 1, 0, [SEND, *take])]),
            Gpu(1, 1, chunks, 1, [ThreadBlock(0, 0, 0, 0, ours)]),
        ]
    return Program(
        "t", collective, "LL", 1, chunks, gpus, in_place=in_place, out_of_place=not in_place
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("collective", ["gather", "reduce", "scatter"])
def test_the_send_buffer_stays_where_it_is_not_received_into(
    collective: str, in_place: bool
) -> None:
    assert verify(overwriting(collective, in_place, writes=False)).ok
    report = verify(overwriting(collective, in_place, writes=True))
    assert codes(report) == {"clobbered-input"}, report.errors


def test_a_program_without_steps_is_proved_wrong() -> None:
    gpus = [Gpu(r, 1, 2, 0, [ThreadBlock(0, -1, -1, 0, [])]) for r in (0, 1)]
    report = verify(Program("t", "allgather", "LL", 1, 2, gpus))
    assert codes(report) == {"missing-copy", "wrong-result"}


def test_input_and_output_have_the_size_of_the_collective(handmade: ModuleType) -> None:
    gpus = [Gpu(r, 2, 4, 0, handmade.ring_allgather(2).gpus[r].threadblocks) for r in (0, 1)]
    assert verify(Program("t", "allgather", "LL", 1, 2, gpus)).ok  # declared larger: no harm
    steps = [Step("s", "i", 1, "o", -1, 1), Step("r", "i", -1, "o", 1, 1)]
    far = [Gpu(r, 2, 4, 0, [ThreadBlock(0, 1 - r, 1 - r, 0, steps)]) for r in (0, 1)]
    report = verify(Program("t", "allgather", "LL", 1, 2, far, in_place=False))
    assert codes(report) == {"bounds"}
    assert "has 1 on this rank" in report.errors[0].message


# --- order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "fused", "ok"),
    [(0, True, True), (0, False, True), (1, False, True), (1, True, False), (2, True, True)],
)
def test_messages_order_what_they_must_have_passed(
    handmade: ModuleType, shift: int, fused: bool, ok: bool
) -> None:
    report = verify(handmade.echo(shift, fused))
    assert codes(report) == (set() if ok else {"race"})


def test_a_race_names_both_steps(handmade: ModuleType) -> None:
    program = handmade.allpairs_allreduce(3)
    assert verify(program).ok
    gpus = list(program.gpus)
    [*blocks, last] = gpus[0].threadblocks
    steps = [s for s in last.steps if s.op != "nop"]  # the dependency on thread block 0 is lost
    blocks[0] = waiting_for(blocks[0], len(steps) - 1)
    blocks[1] = waiting_for(blocks[1], len(steps) - 1)
    gpus[0] = Gpu(0, 3, 3, 2, [*blocks, ThreadBlock(2, -1, -1, 0, steps)])
    report = verify(Program("t", "allreduce", "LL", 1, 3, gpus, in_place=False))
    assert codes(report) == {"race"}
    message = report.errors[0].message
    assert message.startswith(
        "gpu 0 tb 2 step 1: reads chunk 0 of buffer s, which gpu 0 tb 0 step 1"
    )


def waiting_for(block: ThreadBlock, position: int) -> ThreadBlock:
    """Return the block with its dependency moved to another step of the same target."""
    steps = [
        Step(s.op, s.src_buffer, s.src_offset, s.dst_buffer, s.dst_offset, s.count, s.dep_tb,
             position if s.dep_tb >= 0 else -1, s.has_dep)
        for s in block.steps
    ]  # fmt: skip
    return ThreadBlock(block.id, block.send_peer, block.recv_peer, block.channel, steps)


def test_fifo_credit_orders_nothing(handmade: ModuleType) -> None:
    # Rank 0's third send needs a slot that rank 1 frees by its first receive, after which rank 1
    # has long sent; only that keeps rank 0's scratch from being overwritten too early.
    def blocks(rank: int) -> list[ThreadBlock]:
        exchange = ThreadBlock(
            0, 1 - rank, 1 - rank, 1,
            [handmade.send("i", 0), handmade.recv("o", 1 - rank), handmade.copy(0, rank)],
        )  # fmt: skip
        if rank == 1:
            steps = [handmade.recv("s", k) for k in range(3)]
            return [exchange, ThreadBlock(1, -1, 0, 0, steps)]
        fill = Step("cpy", "i", 0, "s", 0, 1)
        steps = [
            fill,
            *(handmade.send("s", 0) for _ in range(2)),
            handmade.send("i", 0, has_dep=True),
        ]
        over = Step("cpy", "i", 0, "s", 0, 1)
        return [exchange, ThreadBlock(1, 1, -1, 0, steps), ThreadBlock(2, -1, -1, 0, [over])]

    report = verify(handmade.program("allgather", 2, 2, blocks, channels=2, scratch=3))
    assert codes(report) == {"race"}


def test_overlapping_source_and_target_are_refused(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(2)
    [ring, own] = program.gpus[0].threadblocks
    smear = [*own.steps, Step("cpy", "s", 0, "s", 1, 3)]
    fill = [Step("cpy", "i", 0, "s", k, 1) for k in range(4)]
    for steps, wanted in (([*own.steps, *fill], set()), ([*fill, *smear], {"overlap"})):
        blocks = [ring, ThreadBlock(1, -1, -1, 0, steps)]
        gpus = [Gpu(0, 1, 2, 4, blocks), program.gpus[1]]
        assert codes(verify(Program("t", "allgather", "LL", 1, 2, gpus))) == wanted


# --- deadlock and size ----------------------------------------------------------------------


def crossing(count: int, protocol: str, channels: int = 1) -> Program:
    """Return two ranks that each send `count` chunks in one step before they receive."""
    gpus = []
    for rank in (0, 1):
        steps = [
            Step("s", "i", 0, "o", -1, count),
            Step("r", "i", -1, "o", (1 - rank) * count, count),
            Step("cpy", "i", 0, "o", rank * count, count),
        ]
        gpus.append(Gpu(rank, count, 2 * count, 0, [ThreadBlock(0, 1 - rank, 1 - rank, 0, steps)]))
    return Program("t", "allgather", protocol, channels, 2 * count, gpus, out_of_place=True)


DEFAULT_SLICE = {"Simple": 2 << 20, "LL": 32 << 10, "LL128": 576_000}
DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}


@pytest.mark.parametrize("protocol", DEPTH)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 16, 17, 40, 71])
def test_size_is_limited_to_what_the_fifo_holds(protocol: str, count: int) -> None:
    merged = -(-count // DEPTH[protocol])  # chunks that a transfer must hold
    program = crossing(count, protocol)
    report = verify(program)
    if merged == 1:
        assert report.ok and report.max_safe_bytes == 0
        return
    safe = DEFAULT_SLICE[protocol] // merged * program.nchunks
    assert report.max_safe_bytes == safe
    assert codes(report) == {"size-range"}
    assert f'maxBytes="{safe}"' in report.errors[0].message
    assert verify(program.replace(min_bytes=0, max_bytes=safe)).ok
    assert not verify(program.replace(min_bytes=0, max_bytes=safe + 1)).ok
    fork = program.replace(in_place=False, min_bytes=0, max_bytes=safe + 1)
    assert verify(fork, "fork").ok
    assert not verify(fork.replace(max_bytes=safe + 2), "fork").ok


def test_rccl_has_smaller_buffers_and_fewer_threads() -> None:
    """A FIFO of the default size holds less of what is sent ahead."""
    for protocol, nbytes in (("LL", 256 << 10), ("LL128", 448 << 10), ("Simple", 4 << 20)):
        assert default_buffer_bytes(protocol, "rccl") == nbytes
        assert max_threads(protocol, "rccl") == 256
    bound = crossing(20, "LL128")
    limits = {d: verify(bound, d).max_safe_bytes for d in ("executor", "rccl")}
    assert limits["rccl"] == verify(bound, "rccl", 0, 448 << 10).max_safe_bytes
    assert limits["rccl"] < limits["executor"]


def test_a_smaller_buffer_lowers_the_safe_size() -> None:
    program = crossing(6, "Simple")
    slice_bytes = 512 << 10  # half of a buffer of 1 MiB; a transfer must hold 3 of the 12 chunks
    assert verify(program, buffer_bytes=1 << 20).max_safe_bytes == slice_bytes // 3 * 12


@pytest.mark.parametrize("buffer_bytes", [-1, -(2**63), 1, 127, (1 << 40) + 1])
def test_a_buffer_whose_slots_hold_no_line_is_refused(buffer_bytes: int) -> None:
    with pytest.raises(InputError, match=f"buffer_bytes {buffer_bytes}: expected 0 .* 128 to"):
        verify(crossing(1, "Simple"), buffer_bytes=buffer_bytes)
    assert verify(crossing(1, "Simple"), buffer_bytes=128).ok


def test_dependencies_limit_the_number_of_passes(handmade: ModuleType) -> None:
    free, bound = crossing(1, "LL"), handmade.allpairs_allreduce(2)
    assert verify(free, buffer_bytes=256).max_safe_bytes == 0
    assert verify(bound).ok and verify(bound).max_safe_bytes == 0
    usual = default_buffer_bytes(bound.protocol)
    assert verify(bound, buffer_bytes=usual).max_safe_bytes == 0
    slices = Knobs(bound.protocol, buffer_bytes=256).slice_bytes
    most = 65536 * slices * bound.nchunks
    report = verify(bound, buffer_bytes=256)
    assert report.ok and report.max_safe_bytes == most
    assert verify(bound.replace(max_bytes=most), buffer_bytes=256).ok
    beyond = bound.replace(max_bytes=most + 1)
    assert verify(beyond).ok and verify(beyond, "rccl", buffer_bytes=256).max_safe_bytes == 0
    [error] = verify(beyond, buffer_bytes=256).errors
    assert error.code == "size-range" and f'maxBytes="{most}"' in error.message


def test_a_deadlock_shows_its_cycle(handmade: ModuleType) -> None:
    def blocks(rank: int) -> list[ThreadBlock]:
        steps = [handmade.recv("o", 1 - rank), handmade.send("i", 0), handmade.copy(0, rank)]
        return [ThreadBlock(0, 1 - rank, 1 - rank, 0, steps)]

    [error] = verify(handmade.program("allgather", 2, 2, blocks)).errors
    assert error.code == "deadlock"
    assert error.message.count("receives from") == 2
    assert error.message.count("runs after") == 2
    assert len(error.message) < 300


def test_a_long_cycle_is_cut(handmade: ModuleType) -> None:
    def blocks(rank: int) -> list[ThreadBlock]:
        steps = [handmade.recv("o", (rank - 1) % 40), handmade.send("i", 0)]
        return [ThreadBlock(0, (rank + 1) % 40, (rank - 1) % 40, 0, steps)]

    [error] = verify(handmade.program("allgather", 40, 40, blocks)).errors
    assert error.code == "deadlock" and error.message.endswith("...")
    assert len(error.message) < 1000


def test_co_residency_is_a_warning(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(2)
    [ring, own] = program.gpus[0].threadblocks
    for blocks, wanted in ((80, []), (81, ["co-residency"])):
        idle = [ThreadBlock(t, -1, -1, 0, []) for t in range(2, blocks)]
        gpus = [Gpu(0, 1, 2, 0, [ring, own, *idle]), program.gpus[1]]
        report = verify(Program("t", "allgather", "LL", 1, 2, gpus))
        assert report.ok and [w.code for w in report.warnings] == wanted


def test_simple_over_a_network_is_a_warning(handmade: ModuleType) -> None:
    def warned(program: Program) -> set[str]:
        return {w.code for w in verify(program).warnings}

    for make in (handmade.chain_broadcast, handmade.chain_reduce):
        program = make(3)
        assert "simple-over-net" in warned(program.replace(protocol="Simple"))
        assert "simple-over-net" not in warned(program.replace(protocol="LL"))
    assert "simple-over-net" not in warned(handmade.ring_allreduce(3).replace(protocol="Simple"))
