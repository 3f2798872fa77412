"""Each trap the runtimes keep silent about: a program that only this trap makes wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuccl.program import Finding, Gpu, Program, Step, ThreadBlock, verify

Blocks = list[ThreadBlock]


def pair(
    blocks0: Blocks,
    blocks1: Blocks | None = None,
    *,
    collective: str = "allgather",
    protocol: str = "Simple",
    channels: int = 1,
    nchunks: int = 2,
    scratch: int = 4,
    in_place: bool = True,
) -> Program:
    """Return a program of two ranks; rank 1 does what rank 0 does, mirrored, if not given."""
    share = nchunks // 2
    counts = {
        "allgather": (share, nchunks),
        "reduce-scatter": (nchunks, share),
    }.get(collective, (nchunks, nchunks))
    gpus = [
        Gpu(0, *counts, scratch, blocks0),
        Gpu(1, *counts, scratch, mirrored(blocks0) if blocks1 is None else blocks1),
    ]
    return Program("t", collective, protocol, channels, nchunks, gpus, in_place=in_place)


def mirrored(blocks: Blocks) -> Blocks:
    """Return the same thread blocks for rank 1: peers turned, output chunks 0 and 1 exchanged."""

    def turn(step: Step) -> Step:
        offset = step.dst_offset
        if step.dst_buffer == "o":
            offset = {0: 1, 1: 0}.get(offset, offset)
        return Step(
            step.op, step.src_buffer, step.src_offset, step.dst_buffer, offset, step.count,
            step.dep_tb, step.dep_step, step.has_dep, step.number,
        )  # fmt: skip

    def peer(old: int) -> int:
        return 1 - old if old >= 0 else old

    return [
        ThreadBlock(
            b.id,
            peer(b.send_peer),
            peer(b.recv_peer),
            b.channel,
            [turn(s) if s.dst_offset >= 0 else s for s in b.steps],
        )
        for b in blocks
    ]


def step(op: str, source: int = -1, target: int = -1, count: int = 1, **more: object) -> Step:
    """Return a step from the input to the output."""
    return Step(op, "i", source, "o", target, count, **more)  # type: ignore[arg-type]


SEND = step("s", 0)
RECV = step("r", target=1)
OWN = step("cpy", 0, 0)
NOP = Step("nop", dep_tb=0, dep_step=0)
LOCAL = ThreadBlock(1, -1, -1, 0, [OWN])


def exchange(*steps: Step, channel: int = 0) -> ThreadBlock:
    """Return rank 0's thread block that talks to rank 1."""
    return ThreadBlock(0, 1, 1, channel, list(steps) or [SEND, RECV])


def copier(*steps: Step, block: int = 1) -> ThreadBlock:
    """Return a thread block that only works locally."""
    return ThreadBlock(block, -1, -1, 0, list(steps))


def reductions(count: int) -> Program:
    """Return an allreduce whose rank 0 adds `count` scratch chunks in one chain of re."""
    ranks = count + 1
    blocks = [
        ThreadBlock(t, t + 1, t + 1, t % 2, [
            Step("r", "i", -1, "s", t, 1, has_dep=True),
            Step("s", "o", 0, "o", -1, 1, dep_tb=count, dep_step=2 * count - 1),
        ])
        for t in range(count)
    ]  # fmt: skip
    chain = [Step("nop", dep_tb=t, dep_step=0) for t in range(count - 1)]
    chain += [Step("cpy", "i", 0, "o", 0, 1, dep_tb=count - 1, dep_step=0)]
    chain += [Step("re", "s", t, "o", 0, 1, has_dep=t == count - 1) for t in range(count)]
    gpus = [Gpu(0, 1, 1, count, [*blocks, ThreadBlock(count, -1, -1, 0, chain)])]
    gpus += [
        Gpu(r, 1, 1, 0, [
            ThreadBlock(0, 0, 0, (r - 1) % 2, [
                Step("s", "i", 0, "o", -1, 1), Step("r", "i", -1, "o", 0, 1)
            ])
        ])
        for r in range(1, ranks)
    ]  # fmt: skip
    return Program("t", "allreduce", "LL", 2, 1, gpus, in_place=False)


def crossing(count: int, times: int, protocol: str) -> Program:
    """Return two ranks that each send `times` messages of `count` chunks, then receive as many."""
    n = count * times
    steps = [Step("s", "i", k * count, "o", -1, count) for k in range(times)]
    out = []
    for rank in (0, 1):
        base = (1 - rank) * n
        receives = [Step("r", "i", -1, "o", base + k * count, count) for k in range(times)]
        own = [Step("cpy", "i", k, "o", rank * n + k, 1) for k in range(n)]
        out.append(
            Gpu(rank, n, 2 * n, 0, [
                ThreadBlock(0, 1 - rank, 1 - rank, 0, steps + receives),
                ThreadBlock(1, -1, -1, 0, own),
            ])
        )  # fmt: skip
    return Program("t", "allgather", protocol, 1, 2 * n, out)


Case = tuple[str, str, tuple[int, int, int], Callable[[], Program]]
CASES: list[Case] = [
    # 1.3 limits, and the two int8 and int16 fields
    ("limit", "executor", (0, 1, -1), lambda: pair([exchange(), copier(*[OWN] * 65)])),
    ("limit", "fork", (0, 1, -1), lambda: one_form([exchange(), copier(*[OWN] * 257)])),
    ("limit", "rccl", (0, -1, -1), lambda: pair([exchange(), *many_blocks(64)])),
    ("limit", "fork", (0, -1, -1), lambda: one_form([exchange(), *many_blocks(216)])),
    ("limit", "executor", (0, -1, -1), lambda: pair([exchange(), *many_blocks(1024)])),
    ("limit", "executor", (0, 129, 0), lambda: pair(far_dependency())),
    ("limit", "fork", (-1, -1, -1), lambda: one_form([exchange(), LOCAL]).replace(nthreads=100)),
    ("count", "executor", (0, 1, 0), lambda: pair([exchange(), copier(step("cpy", 0, 0, 72))])),
    ("count", "fork", (0, 1, 0), lambda: one_form([exchange(), copier(step("cpy", 0, 0, 0))])),
    # 1.6 #1: two thread blocks on one connection
    (
        "connection",
        "executor",
        (0, 1, -1),
        lambda: pair([exchange(), ThreadBlock(1, 1, -1, 0, [OWN])]),
    ),
    # 1.6 #2: channels
    ("channel", "executor", (0, 0, -1), lambda: pair([exchange(channel=1), LOCAL])),
    ("channel", "executor", (-1, -1, -1), lambda: pair([exchange(), LOCAL], channels=33)),
    ("channel", "executor", (-1, -1, -1), lambda: pair([exchange(), LOCAL], channels=0)),
    # 1.6 #3: messages and peers
    (
        "matching",
        "executor",
        (0, 0, 2),
        lambda: pair([exchange(SEND, RECV, SEND), LOCAL], mirrored([exchange(), LOCAL])),
    ),
    (
        "matching",
        "executor",
        (1, 0, 2),
        lambda: pair([exchange(), LOCAL], mirrored([exchange(SEND, RECV, RECV), LOCAL])),
    ),
    (
        "matching",
        "executor",
        (1, 0, 1),
        lambda: pair(
            [exchange(step("s", 0, count=2), step("r", target=2, count=2)), own_pair(0)],
            [
                ThreadBlock(0, 0, 0, 0, [step("s", 0, count=2), step("r", target=0)]),
                own_pair(2),
            ],
            nchunks=4,
        ),
    ),
    (
        "matching",
        "executor",
        (0, 2, -1),
        lambda: pair(
            [exchange(), LOCAL, ThreadBlock(2, 1, -1, 1, [OWN])],
            mirrored([exchange(), LOCAL]),
            channels=2,
        ),
    ),
    ("peer", "executor", (0, 0, -1), lambda: pair([ThreadBlock(0, 2, 2, 0, [SEND, RECV]), LOCAL])),
    ("peer", "executor", (0, 0, -1), lambda: pair([ThreadBlock(0, 0, 1, 0, [SEND, RECV]), LOCAL])),
    ("peer", "executor", (0, 1, 0), lambda: pair([exchange(), copier(SEND)])),
    ("peer", "executor", (0, 1, 0), lambda: pair([exchange(), copier(RECV)])),
    # 1.6 #4: FIFO depth
    ("deadlock", "executor", (0, 0, 2), lambda: crossing(1, 3, "Simple")),
    ("deadlock", "executor", (0, 0, 8), lambda: crossing(1, 9, "LL")),
    ("deadlock", "executor", (0, 0, 8), lambda: crossing(1, 9, "LL128")),
    ("size-range", "executor", (0, 0, 0), lambda: crossing(3, 1, "Simple")),
    ("size-range", "executor", (0, 0, 0), lambda: crossing(9, 1, "LL")),
    # 1.6 #5: dependencies
    ("dependency", "executor", (0, 1, 0), lambda: waits(9, 0)),
    ("dependency", "executor", (0, 1, 0), lambda: waits(0, 9)),
    ("dependency", "executor", (0, 1, 0), lambda: waits(0, 0)),
    ("dependency", "executor", (0, 1, 0), lambda: waits(1, 0)),
    ("dependency", "executor", (0, 1, 0), lambda: waits(-2, 0)),
    (
        "deadlock",
        "executor",
        (0, 0, 0),
        lambda: pair(
            [
                exchange(step("s", 0, dep_tb=1, dep_step=0, has_dep=True), RECV),
                copier(step("cpy", 0, 0, dep_tb=0, dep_step=0, has_dep=True)),
            ]
        ),
    ),
    # 1.6 #6 and 1.4: nops
    ("nop", "executor", (0, 1, 0), lambda: pair([published(), copier(Step("nop"), waiting(0, 0))])),
    ("nop", "executor", (0, 1, 1), lambda: pair([published(), copier(OWN, NOP)])),
    ("nop", "executor", (0, 1, 1), lambda: pair([published(), copier(NOP, OWN)])),
    (
        "nop",
        "executor",
        (0, 1, 0),
        lambda: pair(
            [
                published(),
                copier(Step("nop", dep_tb=0, dep_step=0, has_dep=True), waiting(0, 0)),
            ]
        ),
    ),
    # 1.6 #7: numbering
    (
        "step-number",
        "executor",
        (0, 0, 1),
        lambda: pair([exchange(SEND, step("r", target=1, number=2)), LOCAL]),
    ),
    # 1.6 #8: fused reductions
    ("fused-reduce", "fork", (0, 33, 65), lambda: reductions(33)),
    ("fused-reduce", "executor", (0, 1, 3), lambda: unequal_chain()),
    # 1.6 #9: bounds
    ("bounds", "executor", (0, 1, 0), lambda: pair([exchange(), copier(step("cpy", 0, 1, 2))])),
    ("bounds", "executor", (0, 1, 0), lambda: pair([exchange(), copier(step("cpy", -1, 0))])),
    (
        "bounds",
        "executor",
        (0, 1, 0),
        lambda: pair([exchange(), copier(Step("cpy", "i", 0, "s", 4, 1))]),
    ),
    # 1.6 #10: ranks without blocks, and ids
    (
        "threadblocks",
        "executor",
        (0, -1, -1),
        lambda: Program("t", "allreduce", "LL", 1, 1, [Gpu(0, 1, 1, 0, [])], out_of_place=False),
    ),
    (
        "threadblocks",
        "executor",
        (0, 1, -1),
        lambda: pair([exchange(), ThreadBlock(2, -1, -1, 0, [OWN])]),
    ),
    ("chunks", "executor", (-1, -1, -1), lambda: pair([exchange(), LOCAL], nchunks=3)),
    ("chunks", "executor", (-1, -1, -1), lambda: pair([exchange(), LOCAL], nchunks=0)),
    # what a dialect does not know
    ("dialect", "rccl", (1, 0, 0), lambda: forwarding()),
    ("form", "fork", (-1, -1, -1), lambda: pair([exchange(), LOCAL])),
    ("form", "executor", (-1, -1, -1), lambda: neither()),
    # size ranges
    ("size-range", "executor", (-1, -1, -1), lambda: ranged(9, 8)),
    ("size-range", "fork", (-1, -1, -1), lambda: ranged(0, 0)),
    ("size-range", "fork", (-1, -1, -1), lambda: ranged(8, 8)),
    ("size-range", "executor", (-1, -1, -1), lambda: ranged(-1, 8)),
]


def one_form(blocks: Blocks) -> Program:
    return pair(blocks, in_place=False)


def ranged(least: int, most: int) -> Program:
    return one_form([exchange(), LOCAL]).replace(min_bytes=least, max_bytes=most)


def neither() -> Program:
    return pair([exchange(), LOCAL]).replace(in_place=False, out_of_place=False)


def own_pair(target: int) -> ThreadBlock:
    return copier(step("cpy", 0, target, 2))


def many_blocks(count: int) -> Blocks:
    return [copier(OWN, block=t + 1) if t == 0 else copier(block=t + 1) for t in range(count)]


def far_dependency() -> Blocks:
    blocks = [exchange(), *many_blocks(127), copier(OWN, block=128)]
    blocks[128] = copier(step("cpy", 0, 0, dep_tb=1, dep_step=0, has_dep=True), block=128)
    blocks[1] = copier(step("cpy", 0, 0, has_dep=True))
    return [*blocks, copier(step("cpy", 0, 0, dep_tb=128, dep_step=0), block=129)]


def waits(tb: int, position: int) -> Program:
    return pair([exchange(), copier(step("cpy", 0, 0, dep_tb=tb, dep_step=position))])


def waiting(tb: int, position: int) -> Step:
    return step("cpy", 0, 0, dep_tb=tb, dep_step=position)


def published() -> ThreadBlock:
    return exchange(step("s", 0, has_dep=True), RECV)


def forwarding() -> Program:
    """Return three ranks in a chain broadcast."""
    counts = [(1, 1), (0, 1), (0, 1)]
    blocks = [
        [ThreadBlock(0, 1, -1, 0, [SEND]), copier(OWN)],
        [ThreadBlock(0, 2, 0, 0, [step("rcs", target=0)])],
        [ThreadBlock(0, -1, 1, 0, [step("r", target=0)])],
    ]
    gpus = [Gpu(r, *counts[r], 0, blocks[r]) for r in range(3)]
    return Program("t", "broadcast", "Simple", 1, 1, gpus)


def unequal_chain() -> Program:
    """Return a reduce to rank 0 that would be right if its two re, of 2 and 1 chunks, stayed two.

    Rank 2 sends its chunk 1 through rank 1, which adds its own, and its chunk 0 directly.
    """
    adder = copier(
        step("cpy", 0, 0, 2),
        Step("nop", dep_tb=0, dep_step=0),
        Step("re", "s", 0, "o", 0, 2, dep_tb=2, dep_step=0),
        Step("re", "s", 2, "o", 0, 1),
    )
    blocks = [
        [
            ThreadBlock(0, -1, 1, 0, [Step("r", "i", -1, "s", 0, 2, has_dep=True)]),
            adder,
            ThreadBlock(2, -1, 2, 0, [Step("r", "i", -1, "s", 2, 1, has_dep=True)]),
        ],
        [
            ThreadBlock(0, 0, 2, 0, [
                Step("rrc", "i", 1, "s", 1, 1),
                Step("cpy", "i", 0, "s", 0, 1),
                Step("s", "s", 0, "o", -1, 2),
            ])
        ],
        [
            ThreadBlock(0, 1, -1, 0, [step("s", 1)]),
            ThreadBlock(1, 0, -1, 0, [step("s", 0)]),
        ],
    ]  # fmt: skip
    gpus = [Gpu(r, 2, 2 if r == 0 else 0, 3, blocks[r]) for r in range(3)]
    return Program("t", "reduce", "Simple", 1, 2, gpus, in_place=False)


def found(program: Program, dialect: str) -> list[Finding]:
    return verify(program, dialect).errors


@pytest.mark.parametrize(
    ("code", "dialect", "place", "make"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_trap_is_caught_where_it_is(
    code: str, dialect: str, place: tuple[int, int, int], make: Callable[[], Program]
) -> None:
    errors = found(make(), dialect)
    assert {e.code for e in errors} == {code}, errors
    assert (errors[0].gpu, errors[0].tb, errors[0].step) == place, errors
    if place[0] >= 0:
        assert errors[0].message.startswith(f"gpu {place[0]}")


def test_the_programs_the_traps_are_made_from_are_right() -> None:
    for program in (
        pair([exchange(), LOCAL]),
        pair([published(), copier(NOP, waiting(0, 0))]),
        pair([exchange(), copier(*[OWN] * 64)]),
        reductions(16),
        reductions(24),  # cut after 16: 16 and 8
        crossing(1, 2, "Simple"),
        crossing(2, 1, "Simple"),
        crossing(8, 1, "LL"),
        crossing(1, 8, "LL128"),
        forwarding(),
    ):
        assert not found(program, "executor")
    assert not found(ranged(0, 8), "fork")
    assert not found(pair([exchange(), *many_blocks(63)]), "rccl")


def test_a_collective_without_a_reduction_cannot_reduce() -> None:
    errors = found(pair([exchange(), copier(OWN, step("re", 0, 0))]), "executor")
    assert errors[0].code == "reduction" and errors[0].message.startswith("gpu 0 tb 1 step 1: ")
