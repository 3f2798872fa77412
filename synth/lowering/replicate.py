"""Instances of a finished program: several copies side by side, each with a part of every chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from tuccl._native import Gpu, Program, Step, ThreadBlock, chunk_counts
from tuccl.errors import InputError

__all__ = ["replicate"]

_SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
_RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
_Position = tuple[int, int, int]  # gpu, thread block and step, by position
_Cuts = tuple[int, ...]  # where a run of chunks is cut, both ends included


def replicate(program: Program, instances: int) -> Program:
    """Return a program that runs `instances` copies of `program`, each on channels of its own.

    Every chunk is cut in `instances` parts and copy j moves part j. Within a rank's share of a
    buffer the parts of one copy lie side by side, so a run of chunks stays one step unless it
    crosses from one share to the next; there it is cut, alike on both ends of a message.

    Raises:
        InputError: `instances` is less than 1.
    """
    if instances < 1:
        raise InputError(f"{instances} instances: expected at least 1")
    if instances == 1:
        return program
    layout = _Layout.of(program, instances)
    cuts = _cuts(program, layout)
    gpus = [
        _Copier(layout, gpu, position, cuts, program.nchannels).gpu_of_copies()
        for position, gpu in enumerate(program.gpus)
    ]
    return Program(
        program.name,
        program.collective,
        program.protocol,
        program.nchannels * instances,
        program.nchunks * instances,
        gpus,
        in_place=program.in_place,
        out_of_place=program.out_of_place,
        min_bytes=program.min_bytes,
        max_bytes=program.max_bytes,
        nthreads=program.nthreads,
    )


@dataclass(frozen=True)
class _Layout:
    """The position of each copy's part of the chunks of a buffer.

    `share` is the run of chunks whose parts stay together: a rank's share of the whole buffer
    where the collective has such shares, else the whole buffer.
    """

    share: int
    instances: int

    @classmethod
    def of(cls, program: Program, instances: int) -> _Layout:
        inputs, outputs = chunk_counts(program.collective, program.nchunks, program.ngpus, 0, 0)
        by_rank = inputs != outputs or program.collective == "alltoall"
        nchunks = max(1, program.nchunks)
        return cls(max(1, nchunks // program.ngpus) if by_rank else nchunks, instances)

    def edges(self, buffer: str, offset: int, count: int) -> Iterator[int]:
        """Yield how many chunks of a run come before each crossing to another share."""
        if buffer != "s" and offset >= 0:
            yield from range(self.share - offset % self.share, count, self.share)

    def at(self, buffer: str, offset: int, copy: int, scratch: int) -> int:
        """Return where the part of `copy` of the chunk at `offset` lies."""
        share = scratch if buffer == "s" else self.share
        block, within = divmod(offset, share)
        return block * share * self.instances + copy * share + within


def _steps(program: Program) -> Iterator[tuple[_Position, ThreadBlock, Step]]:
    for g, gpu in enumerate(program.gpus):
        for b, tb in enumerate(gpu.threadblocks):
            for s, step in enumerate(tb.steps):
                yield (g, b, s), tb, step


def _cuts(program: Program, layout: _Layout) -> dict[_Position, _Cuts]:
    """Return where the run of each step is cut; steps whose run stays whole are left out.

    The two ends of a message, and what forwards it, are cut alike.
    """
    edges: dict[_Position, set[int]] = {}
    sent: dict[tuple[int, int, int], list[_Position]] = defaultdict(list)
    received: dict[tuple[int, int, int], list[_Position]] = defaultdict(list)
    counts: dict[_Position, int] = {}
    for position, tb, step in _steps(program):
        counts[position] = step.count
        edges[position] = {
            edge
            for buffer, offset in (
                (step.src_buffer, step.src_offset),
                (step.dst_buffer, step.dst_offset),
            )
            for edge in layout.edges(buffer, offset, step.count)
        }
        rank = program.gpus[position[0]].id
        if step.op in _SENDS:
            sent[rank, tb.send_peer, tb.channel].append(position)
        if step.op in _RECEIVES:
            received[tb.recv_peer, rank, tb.channel].append(position)
    if not any(edges.values()):
        return {}
    # A wrong program may lack a partner: that is for verify to say.
    messages = (zip(ends, received[connection], strict=False) for connection, ends in sent.items())
    _share_edges(edges, list(chain.from_iterable(messages)))
    return {
        position: (0, *sorted(cut_at), counts[position])
        for position, cut_at in edges.items()
        if cut_at
    }


def _share_edges(
    edges: dict[_Position, set[int]], messages: list[tuple[_Position, _Position]]
) -> None:
    """Give every step of a chain of messages the edges of all of them."""
    onward = dict(messages)
    heads = onward.keys() - set(onward.values())
    for head in heads:
        chain_of_steps = [head]
        while (following := onward.get(chain_of_steps[-1])) is not None:
            chain_of_steps.append(following)
        together = set().union(*(edges[position] for position in chain_of_steps))
        for position in chain_of_steps:
            edges[position] = together


@dataclass(frozen=True)
class _Copier:
    """One GPU and its copies; `position` is the GPU's in the program."""

    layout: _Layout
    gpu: Gpu
    position: int
    cuts: dict[_Position, _Cuts]
    nchannels: int

    def gpu_of_copies(self) -> Gpu:
        n, gpu = self.layout.instances, self.gpu
        last = {tb.id: self.last_pieces(b, tb) for b, tb in enumerate(gpu.threadblocks)}
        blocks = [
            ThreadBlock(
                tb.id + copy * len(gpu.threadblocks),
                tb.send_peer,
                tb.recv_peer,
                tb.channel + copy * self.nchannels,
                [
                    self.piece(step, start, end, copy, last)
                    for s, step in enumerate(tb.steps)
                    for start, end in self.pieces(b, s, step)
                ],
            )
            for copy in range(n)
            for b, tb in enumerate(gpu.threadblocks)
        ]
        sizes = (gpu.input_chunks * n, gpu.output_chunks * n, gpu.scratch_chunks * n)
        return Gpu(gpu.id, *sizes, blocks)

    def pieces(self, block: int, position: int, step: Step) -> list[tuple[int, int]]:
        """Return the (start, end) of each piece of a step's run."""
        cuts = self.cuts.get((self.position, block, position), (0, step.count))
        return list(pairwise(cuts))

    def last_pieces(self, block: int, tb: ThreadBlock) -> list[int]:
        """Return where the last piece of each step stands: what a dependency is to wait for."""
        ends, total = [], 0
        for s, step in enumerate(tb.steps):
            total += len(self.pieces(block, s, step))
            ends.append(total - 1)
        return ends

    def piece(
        self, step: Step, start: int, end: int, copy: int, last: dict[int, list[int]]
    ) -> Step:
        waits = step.dep_tb >= 0 and start == 0
        return Step(
            step.op,
            step.src_buffer,
            self.moved(step.src_buffer, step.src_offset, start, copy),
            step.dst_buffer,
            self.moved(step.dst_buffer, step.dst_offset, start, copy),
            end - start,
            step.dep_tb + copy * len(self.gpu.threadblocks) if waits else -1,
            last[step.dep_tb][step.dep_step] if waits else -1,
            step.has_dep and end == step.count,
        )

    def moved(self, buffer: str, offset: int, start: int, copy: int) -> int:
        if offset < 0:
            return offset
        return self.layout.at(buffer, offset + start, copy, max(1, self.gpu.scratch_chunks))
