"""The operations of one thread block, with a nop wherever its threads must meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tuccl.mscclpp import BufferRef, IterContext, Operation
from tuccl.synth.model.schedule import Address

MOST_CHANNELS = 8  # of an operation, each of which a thread of its own serves
MOST_SEMAPHORES = 8  # likewise; the executor takes 16
MOST_PER_BLOCK = 16  # channels and remote buffers of a thread block, of each type
_NOP = Operation("nop")
T = TypeVar("T")


@dataclass(frozen=True)
class Remote:
    """Chunks of another rank's buffer, reached through a type of channel."""

    rank: int
    buffer: str
    index: int
    channel_type: str


def local(at: Address, count: int) -> BufferRef:
    """Return a run of chunks of this rank."""
    return BufferRef(at.offset, count, type=at.buffer)


@dataclass
class BlockWriter:
    """Collects operations; no threads meet between them but at the nops that it puts.

    `memory` maps chunks to the memory where they lie, in place the same for input and output;
    `due` holds the semaphores to release when the present task's result is there.
    """

    memory: Callable[[Address], Address]
    ops: list[Operation] = field(default_factory=list)
    channels: dict[str, list[int]] = field(default_factory=lambda: {"memory": [], "port": []})
    buffers: dict[str, list[tuple[int, str]]] = field(
        default_factory=lambda: {"memory": [], "port": []}
    )
    due: Sequence[int] = ()
    _read: set[Address] = field(default_factory=set)
    _written: set[Address] = field(default_factory=set)
    _moved: bool = False  # data since the last nop
    _waited: bool = False

    def nop(self) -> None:
        """Have all threads of the block meet."""
        self.ops.append(_NOP)
        self._read, self._written = set(), set()
        self._moved = self._waited = False

    def wait(self, channels: Iterable[tuple[str, int]], *, relaxed: bool = False) -> None:
        """Wait for a signal on each channel."""
        ends = list(channels)
        if ends:
            self._synchronize("wait", ends, relaxed)
            self._waited = True

    def signal(self, channels: Iterable[tuple[str, int]], *, relaxed: bool = False) -> None:
        """Signal on each channel, after all that the block did so far."""
        ends = list(channels)
        if ends:
            self._meet()
            self._synchronize("signal", ends, relaxed)

    def acquire(self, semaphores: Sequence[int]) -> None:
        """Wait for other thread blocks of the rank."""
        for first in range(0, len(semaphores), MOST_SEMAPHORES):
            ids = tuple(semaphores[first : first + MOST_SEMAPHORES])
            self.ops.append(Operation("sem_acquire", semaphore_ids=ids))
            self._waited = True

    def release(self) -> None:
        """Let other thread blocks of the rank go on, after all that the block did so far."""
        for first in range(0, len(self.due), MOST_SEMAPHORES):
            self._meet()
            ids = tuple(self.due[first : first + MOST_SEMAPHORES])
            self.ops.append(Operation("sem_release", semaphore_ids=ids))
        self.due = ()

    def flush(self, channels: Sequence[int]) -> None:
        """Wait until all puts on port channels have read their sources."""
        for first in range(0, len(channels), MOST_CHANNELS):
            self._meet()
            ids = [self._channel("port", c) for c in channels[first : first + MOST_CHANNELS]]
            # The handler counts the targets, not the channels (an empty one for each).
            nothing = tuple(BufferRef(0, 0, type="s") for _ in ids)
            self.ops.append(Operation("flush", "port", tuple(ids), dst_buff=nothing))
            self._moved = True

    def move(
        self,
        name: str,
        sources: Sequence[Address],
        targets: Sequence[Address],
        count: int,
        *,
        remote: Sequence[Remote] = (),
        pulled: Sequence[Remote] = (),
        channels: Sequence[int] = (),
    ) -> None:
        """Move or add up runs of `count` chunks, to this rank's `targets` and to others' `remote`.

        What is `pulled` of other ranks is added to the sources.
        """
        kind = next((each.channel_type for each in (*remote, *pulled)), "none")
        reads = self._chunks(sources, count)
        writes = self._chunks(targets, count)
        if self._waited or reads & self._written or writes & (self._read | self._written):
            self.nop()
        self._read |= reads
        self._written |= writes
        self._moved = True
        self.ops.append(
            Operation(
                name,
                kind,
                tuple(self._channel(kind, c) for c in channels),
                (
                    *(local(at, count) for at in sources),
                    *(self._remote(at, count) for at in pulled),
                ),
                (
                    *(local(at, count) for at in targets),
                    *(self._remote(at, count) for at in remote),
                ),
            )
        )

    def put_with_signal(self, source: Address, remote: Remote, count: int, channel: int) -> None:
        """Have the proxy of a port channel put `source` and then signal."""
        self._meet()
        self.move("pws", [source], [], count, remote=[remote], channels=[channel])

    def loop(self, start: int, context: IterContext) -> None:
        """Have a pipeline do all operations from the `start`-th on, piece after piece.

        Pieces do not meet, but the block's threads must where the first operation of the next
        piece does not bring them to.
        """
        posts = {"signal", "rlxsignal", "sem_release", "pws"}
        if self._waited or (self._moved and self.ops[start].name in posts):
            self.nop()
        ops = tuple(self.ops[start:])
        self.ops[start:] = [Operation("pipeline", iter_context=context, ops=ops)]

    @property
    def waits(self) -> bool:
        """True where the threads have not met since a wait."""
        return self._waited

    @property
    def too_wide(self) -> bool:
        """True where the block has more channels or remote buffers than it can."""
        lengths = [len(each) for each in self.channels.values()]
        lengths += [len(each) for each in self.buffers.values()]
        return max(lengths) > MOST_PER_BLOCK

    def _chunks(self, places: Iterable[Address], count: int) -> set[Address]:
        return {self.memory(at.shifted(k)) for at in places for k in range(count)}

    def _meet(self) -> None:
        if self._moved or self._waited:
            self.nop()

    def _synchronize(self, name: str, ends: Iterable[tuple[str, int]], relaxed: bool) -> None:
        for kind in ("memory", "port"):
            ids = [self._channel(kind, c) for each, c in ends if each == kind]
            # A port channel has no relaxed form.
            full = f"rlx{name}" if relaxed and kind == "memory" else name
            for first in range(0, len(ids), MOST_CHANNELS):
                some = tuple(ids[first : first + MOST_CHANNELS])
                self.ops.append(Operation(full, kind, some))

    def _channel(self, kind: str, channel: int) -> int:
        """Return the place of the GPU's channel in the block's list."""
        return _place(self.channels[kind], channel)

    def _remote(self, at: Remote, count: int) -> BufferRef:
        place = _place(self.buffers[at.channel_type], (at.rank, at.buffer))
        return BufferRef(at.index, count, buffer_id=place)


def _place(entries: list[T], entry: T) -> int:
    if entry not in entries:
        entries.append(entry)
    return entries.index(entry)
