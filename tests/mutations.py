"""Mutations that make any correct program wrong, never one that may stay right.

``mutate(program, rng)`` returns a broken copy and a line that says what was done. Each kind is
wrong whatever the rest of the program does:

* a message dropped, doubled, or one chunk longer leaves send k and receive k unequal;
* a peer redirected leaves the old receiver without a sender;
* a dependency on a step that is absent, or that no longer publishes, never comes;
* a step renumbered says another position than it has;
* where exactly one step of a rank writes a chunk of the output of a collective that only moves
  data, writing it elsewhere, or writing two such chunks in each other's place, leaves the wrong
  data in it. Locations are compared as they lie in place, where most coincide;
* a source moved by one chunk where the receiver adds it to its own chunk mixes two chunks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tuccl.program import Gpu, Program, Step, ThreadBlock

_T = TypeVar("_T")

_FIELDS = (
    *("op", "src_buffer", "src_offset", "dst_buffer", "dst_offset", "count"),
    *("dep_tb", "dep_step", "has_dep", "number"),
)
_RECEIVES = {"r", "rcs", "rrs", "rrc", "rrcs"}
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_WRITES = {"r", "rcs", "rrc", "rrcs", "cpy", "re"}
_REDUCING = {"allreduce", "reduce-scatter", "reduce"}


@dataclass
class Draft:
    """A program taken apart, to be changed."""

    program: Program
    steps: dict[tuple[int, int], list[Step]] = field(default_factory=dict)
    peers: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for gpu in self.program.gpus:
            for tb in gpu.threadblocks:
                self.steps[gpu.id, tb.id] = list(tb.steps)
                self.peers[gpu.id, tb.id] = (tb.send_peer, tb.recv_peer)
                # Steps may move: their positions are their numbers.
                for s in range(len(tb.steps)):
                    self.change((gpu.id, tb.id, s), number=-1)

    def where(self, wanted: Callable[[Step], bool]) -> list[tuple[int, int, int]]:
        """Return (gpu, tb, position) of every step that `wanted` picks."""
        return [
            (gpu, tb, s)
            for (gpu, tb), steps in self.steps.items()
            for s, step in enumerate(steps)
            if wanted(step)
        ]

    def change(self, at: tuple[int, int, int], **fields: object) -> None:
        """Replace fields of one step."""
        old = self.steps[at[:2]][at[2]]
        values: dict[str, Any] = {name: getattr(old, name) for name in _FIELDS} | fields
        self.steps[at[:2]][at[2]] = Step(**values)

    def build(self) -> Program:
        """Return the changed program."""
        p = self.program
        gpus = [
            Gpu(
                gpu.id,
                gpu.input_chunks,
                gpu.output_chunks,
                gpu.scratch_chunks,
                [
                    ThreadBlock(
                        tb.id, *self.peers[gpu.id, tb.id], tb.channel, self.steps[gpu.id, tb.id]
                    )
                    for tb in gpu.threadblocks
                ],
            )
            for gpu in p.gpus
        ]
        return Program(
            p.name,
            p.collective,
            p.protocol,
            p.nchannels,
            p.nchunks,
            gpus,
            in_place=p.in_place,
            out_of_place=p.out_of_place,
            min_bytes=p.min_bytes,
            max_bytes=p.max_bytes,
            nthreads=p.nthreads,
        )


def _drop(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, draft.where(lambda s: s.op in _SENDS | _RECEIVES))
    if at is None:
        return None
    del draft.steps[at[:2]][at[2]]
    return f"dropped the message step at {at}"


def _double(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, draft.where(lambda s: s.op in _SENDS | _RECEIVES))
    if at is None:
        return None
    draft.steps[at[:2]].insert(at[2], draft.steps[at[:2]][at[2]])
    return f"doubled the message step at {at}"


def _lengthen(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, draft.where(lambda s: s.op in {"s", "r", "rrc"}))
    if at is None:
        return None
    draft.change(at, count=draft.steps[at[:2]][at[2]].count + 1)
    return f"one more chunk in the message at {at}"


def _redirect_peer(draft: Draft, rng: random.Random) -> str | None:
    block = _choose(rng, [key for key, (send, _) in draft.peers.items() if send >= 0])
    if block is None:
        return None
    send, receive = draft.peers[block]
    others = [rank for rank in range(draft.program.ngpus) if rank != send]
    draft.peers[block] = (rng.choice(others), receive)
    return f"peer of {block} changed from {send} to {draft.peers[block][0]}"


def _lose_dependency(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, draft.where(lambda s: s.dep_tb >= 0))
    if at is None:
        return None
    step = draft.steps[at[:2]][at[2]]
    if rng.random() < 0.5:
        draft.change(at, dep_step=len(draft.steps[at[0], step.dep_tb]))
        return f"dependency of {at} on a step past the end"
    draft.change((at[0], step.dep_tb, step.dep_step), has_dep=False)
    return f"the step that {at} waits for no longer publishes"


def _renumber(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, draft.where(lambda s: True))
    if at is None:
        return None
    draft.change(at, number=at[2] + 1)
    return f"step {at} renumbered"


def _redirect_output(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, list(_sole_writers(draft)))
    if at is None:
        return None
    step = draft.steps[at[:2]][at[2]]
    if rng.random() < 0.5:
        draft.change(at, dst_buffer="s", dst_offset=0)
        return f"output of {at} written to scratch"
    draft.change(at, dst_offset=step.dst_offset + step.count)
    return f"output of {at} written {step.count} further"


def _swap(draft: Draft, rng: random.Random) -> str | None:
    sole = set(_sole_writers(draft))
    steps = draft.steps
    pairs = [
        (gpu, tb, s)
        for gpu, tb, s in sorted(sole)
        if (gpu, tb, s + 1) in sole
        and {steps[gpu, tb][s].op, steps[gpu, tb][s + 1].op} == {"r"}
        and steps[gpu, tb][s].count == steps[gpu, tb][s + 1].count
    ]
    at = _choose(rng, pairs)
    if at is None:
        return None
    block = steps[at[:2]]
    block[at[2]], block[at[2] + 1] = block[at[2] + 1], block[at[2]]
    return f"receives {at} and the next swapped"


def _shift_source(draft: Draft, rng: random.Random) -> str | None:
    at = _choose(rng, list(_sources_of_sums(draft)))
    if at is None:
        return None
    draft.change(at, src_offset=draft.steps[at[:2]][at[2]].src_offset + rng.choice((-1, 1)))
    return f"source of {at} moved by one chunk"


def _sole_writers(draft: Draft) -> Iterator[tuple[int, int, int]]:
    """Yield receives into the output whose every chunk no other step writes, nor holds at first."""
    p = draft.program
    if p.collective in _REDUCING:
        return
    for gpu in p.gpus:
        writes = {
            (gpu.id, tb.id, s): set(_locations(p, gpu.id, step))
            for tb in gpu.threadblocks
            for s, step in enumerate(draft.steps[gpu.id, tb.id])
            if step.op in _WRITES
        }
        times = Counter(place for places in writes.values() for place in places)
        # In place, the rank's own share of an allgather or gather is right from the start.
        share = p.nchunks // p.ngpus
        own = set(range(gpu.id * share, gpu.id * share + share))
        for at, places in writes.items():
            step = draft.steps[at[:2]][at[2]]
            first = {p for kind, p in places if kind == "user"}
            alone = all(times[place] == 1 for place in places)
            if alone and step.op in {"r", "rcs"} and step.dst_buffer == "o" and not first & own:
                yield at


def _locations(p: Program, rank: int, step: Step) -> Iterator[tuple[str, int]]:
    """Yield where a step writes, as the buffers lie in place."""
    share = p.nchunks // p.ngpus
    shifted = {("allgather", "i"), ("gather", "i"), ("scatter", "o")}
    shift = rank * share if (p.collective, step.dst_buffer) in shifted else 0
    for chunk in range(step.dst_offset, step.dst_offset + step.count):
        yield ("scratch", chunk) if step.dst_buffer == "s" else ("user", chunk + shift)


def _sources_of_sums(draft: Draft) -> Iterator[tuple[int, int, int]]:
    """Yield sends of chunks never written before whose receiver adds them to its own."""
    p = draft.program
    for gpu in p.gpus:
        for tb in gpu.threadblocks:
            sends = [s for s, x in enumerate(draft.steps[gpu.id, tb.id]) if x.op in _SENDS]
            far = [
                (other, x)
                for other in (p.gpus[tb.send_peer].threadblocks if tb.send_peer >= 0 else [])
                if (other.recv_peer, other.channel) == (gpu.id, tb.channel)
                for x in draft.steps[tb.send_peer, other.id]
                if x.op in _RECEIVES
            ]
            for s, (_, receiver) in zip(sends, far, strict=True):
                step = draft.steps[gpu.id, tb.id][s]
                written = any(
                    x.op in _WRITES
                    and (x.dst_buffer == "i" or (p.in_place and x.dst_buffer == "o"))
                    for block in gpu.threadblocks
                    for x in draft.steps[gpu.id, block.id]
                )
                pure = step.op == "s" and step.src_buffer == "i" and not written
                if pure and receiver.op in {"rrs", "rrc", "rrcs"}:
                    yield gpu.id, tb.id, s


_KINDS: tuple[Callable[[Draft, random.Random], str | None], ...] = (
    _drop,
    _double,
    _lengthen,
    _redirect_peer,
    _lose_dependency,
    _renumber,
    _redirect_output,
    _swap,
    _shift_source,
)


def mutate(program: Program, rng: random.Random) -> tuple[Program, str]:
    """Return a copy of a correct program that is wrong, and what was done to it."""
    for kind in rng.sample(_KINDS, len(_KINDS)):
        draft = Draft(program)
        done = kind(draft, rng)
        if done is not None:
            return draft.build(), done
    raise ValueError("a program without steps cannot be broken")


def _choose(rng: random.Random, options: list[_T]) -> _T | None:
    return rng.choice(options) if options else None
