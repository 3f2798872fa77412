"""The search space: sketch x method x chunking x knobs, legal points only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tuccl.errors import Infeasible
from tuccl.program import Knobs
from tuccl.runtime.executors.knob_grid import PROTOCOLS, WHOLE_GRID, KnobGrid
from tuccl.synth import SOLVERS, ScheduleChoice

Channels = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, order=True)
class Point:
    """One candidate: a choice and the knobs it runs with, normalised.

    >>> Point(ScheduleChoice("full-mesh", "ring", 1), "LL", 2, 256, 524288).knobs.channels
    2
    """

    choice: ScheduleChoice
    protocol: str
    channels: int
    threads: int
    buffer_bytes: int

    @property
    def knobs(self) -> Knobs:
        """The knobs as the runtime takes them."""
        return Knobs(self.protocol, self.channels, self.threads, self.buffer_bytes)

    @classmethod
    def of(cls, choice: ScheduleChoice, knobs: Knobs) -> Point:
        """Return the point of ``choice`` and the normalised ``knobs``."""
        k = knobs.normalised()
        return cls(choice, k.protocol, k.channels, k.threads, k.buffer_bytes)


Refine = Callable[[ScheduleChoice], Channels]


@dataclass(frozen=True)
class Dimension:
    """One axis of the space: a name, and how many values; those of a category have names.

    Values without names are in an order that means something.
    """

    name: str
    size: int
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, values: Sequence[str]) -> Dimension:
        """Return the dimension of a category."""
        return cls(name, len(values), tuple(values))

    @property
    def ordinal(self) -> bool:
        """Return whether the order of its values means something."""
        return not self.values


class SketchAxes:
    """The dimensions of sketches, and the sketch that an index in each names: here, of a list.

    On an ``irregular`` machine other sketches than those of the list are likely to gain.
    """

    irregular = False

    def __init__(self, names: Sequence[str]) -> None:
        """Take the names of the sketches."""
        self._names = names
        self.dimensions: tuple[Dimension, ...] = (Dimension.of("sketch", names),)

    def __contains__(self, sketch: object) -> bool:
        """Return whether there is a sketch of that name."""
        return sketch in self._names

    def name(self, indices: Mapping[str, int]) -> str:
        """Return the name of the sketch."""
        return self._names[indices["sketch"]]

    def indices(self, sketch: str) -> dict[str, int]:
        """Return the indices of a sketch that is here."""
        return {"sketch": self._names.index(sketch)}


@dataclass(frozen=True)
class _Block:
    """The points that share choice, protocol and channels; they differ in threads and buffer."""

    choice: ScheduleChoice
    protocol: str
    channels: int
    grid: KnobGrid

    @property
    def threads(self) -> tuple[int, ...]:
        return self.grid.legal_threads(self.protocol, self.channels)

    @property
    def buffers(self) -> tuple[int, ...]:
        return self.grid.legal_buffers(self.protocol)

    @property
    def size(self) -> int:
        return len(self.threads) * len(self.buffers)

    def at(self, position: int) -> Point:
        t, b = divmod(position, len(self.buffers))
        return Point(self.choice, self.protocol, self.channels, self.threads[t], self.buffers[b])


class Space:
    """The legal points for one topology, collective and size.

    Points are reached by three methods: by position in the grid (``at``), by one index per
    dimension (``point``), and by membership (``in``). What a choice's program really allows is
    known only once it is synthesized, which takes time: the grid counts the points that are
    legal by the knobs' rules and the size, and ``refine`` looks closer at the choices that are
    requested. ``point`` is total: indices that together name no legal point give the nearest
    one by fixed rules, so a search that goes by indices needs no conditional parameters (Optuna
    models those one by one, without their correlation to the rest).
    """

    def __init__(
        self,
        channels: Mapping[ScheduleChoice, Channels],
        default: Point,
        refine: Refine | None = None,
        grid: KnobGrid = WHOLE_GRID,
        nbytes: int = 0,
        nchunks: Callable[[ScheduleChoice], int] = lambda choice: 1,
        sketch_axes: SketchAxes | None = None,
    ) -> None:
        """Take, for each choice and protocol, the channel counts that are legal.

        ``channels`` holds the choices in order of preference (sketches ranked best first).
        ``refine`` returns what of it a choice's program leaves legal; nothing: it has none. Knobs
        outside ``grid`` are not legal. ``nbytes`` is the size, which ``nchunks`` chunks of a
        choice's program share. With ``sketch_axes`` a method that is legal on the first sketch is
        legal on all that the axes reach; without, sketches are those of ``channels``. The grid and
        ``choices`` hold these alone.

        Raises:
            Infeasible: no point is legal, or the default is none of them.
        """
        self._grid = grid
        self.nbytes = nbytes
        self.nchunks = nchunks
        kept = {choice: _within(by_protocol, grid) for choice, by_protocol in channels.items()}
        self._channels = {
            choice: by_protocol for choice, by_protocol in kept.items() if by_protocol
        }
        self._refine = refine
        self.promoted: Sequence[str] | None = None
        self._refined: dict[ScheduleChoice, Channels] = {}
        self._blocks = [
            block
            for choice, by_protocol in self._channels.items()
            for protocol in PROTOCOLS
            for count in by_protocol.get(protocol, ())
            if (block := _Block(choice, protocol, count, grid)).size
        ]
        self._ends = list(accumulate(block.size for block in self._blocks))
        self._axes(sketch_axes)
        if default not in self:
            raise Infeasible(f"the default point {default} is not legal here")
        self.default = default

    def _axes(self, sketch_axes: SketchAxes | None) -> None:
        choices = list(self._channels)
        self.methods = tuple(dict.fromkeys(p.method for p in choices))
        self.sketches = tuple(dict.fromkeys(p.sketch for p in choices))
        self.sketch_axes = sketch_axes or SketchAxes(self.sketches)
        self._anywhere = {
            (p.method, p.chunks_per_rank): by_protocol
            for p, by_protocol in self._channels.items()
            if sketch_axes is not None and p.sketch == self.sketches[0]
        }
        self.chunkings = tuple(sorted({p.chunks_per_rank for p in choices}))
        used = {protocol for by_protocol in self._channels.values() for protocol in by_protocol}
        self.protocols = tuple(p for p in PROTOCOLS if p in used)
        self.dimensions = (
            Dimension.of("method", self.methods),
            *self.sketch_axes.dimensions,
            Dimension("chunking", len(self.chunkings)),
            Dimension.of("protocol", self.protocols),
            Dimension("channels", len(self._grid.channels)),
            Dimension("threads", len(self._grid.threads)),
            Dimension("buffer", len(self._grid.buffers)),
        )

    @property
    def grid_size(self) -> int:
        """Number of distinct points that are legal by the knobs' rules and the size."""
        return self._ends[-1] if self._ends else 0

    @property
    def legal_points(self) -> int:
        """The grid's size without the points that looking closer has ruled out so far."""
        ruled_out = sum(
            block.size
            for block in self._blocks
            if block.choice in self._refined
            and block.channels not in self._refined[block.choice].get(block.protocol, ())
        )
        return self.grid_size - ruled_out

    @property
    def choices(self) -> tuple[ScheduleChoice, ...]:
        """Those with at least one legal point."""
        return tuple(self._channels)

    def __contains__(self, point: object) -> bool:
        """Return whether ``point`` is legal here."""
        return (
            isinstance(point, Point)
            and point.channels in self._legal(point.choice).get(point.protocol, ())
            and point.threads in self._grid.legal_threads(point.protocol, point.channels)
            and point.buffer_bytes in self._grid.legal_buffers(point.protocol)
        )

    def _legal(self, choice: ScheduleChoice) -> Channels:
        """The legal channels of ``choice`` by protocol, before looking at it closely."""
        if choice in self._channels or choice.sketch not in self.sketch_axes:
            return self._channels.get(choice, {})
        return self._anywhere.get((choice.method, choice.chunks_per_rank), {})

    def at(self, position: int) -> Point:
        """Return the point at ``position`` of the grid, 0 to ``grid_size`` - 1."""
        if not 0 <= position < self.grid_size:
            raise IndexError(f"position {position} of a grid of {self.grid_size}")
        block = bisect_right(self._ends, position)
        return self._blocks[block].at(position - (self._ends[block - 1] if block else 0))

    def grid(self) -> Iterator[Point]:
        """Yield every legal point once, in order."""
        for block in self._blocks:
            yield from (block.at(i) for i in range(block.size))

    def points(self, choice: ScheduleChoice, protocol: str, channels: int) -> list[Point]:
        """Return the points of ``choice`` that differ in threads and buffer alone."""
        block = _Block(choice, protocol, channels, self._grid)
        return [block.at(i) for i in range(block.size)]

    def channels(self, choice: ScheduleChoice) -> Channels:
        """Return the legal channels of ``choice`` by protocol, looked at closely; maybe none.

        A solver's choice has none on sketches that are not ``promoted`` (None: all are).
        """
        promoted = self.promoted is None or choice.sketch in self.promoted
        if choice.method in SOLVERS and not promoted:
            return {}
        if choice not in self._refined:
            legal = self._legal(choice)
            if legal and self._refine is not None:
                closer = self._refine(choice)
                kept = {p: set(closer.get(p, ())) for p in legal}
                legal = {p: tuple(c for c in legal[p] if c in kept[p]) for p in legal}
            self._refined[choice] = {p: counts for p, counts in legal.items() if counts}
        return self._refined[choice]

    def point(self, indices: Mapping[str, int]) -> Point:
        """Return the legal point that ``indices``, one per dimension, stand for.

        A choice without a program gives way to another chunking, then to the next sketch, then to
        the next method; a protocol that is not legal for the choice to the first that is;
        channels fall to the nearest legal count, lower first; threads and buffer are clipped.
        """
        choice = next((p for p in self._near(indices) if self.channels(p)), None)
        if choice is None:
            return self.default
        legal = self.channels(choice)
        wanted = self.protocols[indices["protocol"]]
        protocol = wanted if wanted in legal else next(p for p in self.protocols if p in legal)
        grid = self._grid
        channels = _at_most(legal[protocol], grid.channels[indices["channels"]])
        wanted_threads = grid.threads[indices["threads"]]
        threads = _at_most(grid.legal_threads(protocol, channels), wanted_threads)
        wanted_bytes = self._buffer_scale(protocol)[indices["buffer"]]
        buffer_bytes = _at_most(grid.legal_buffers(protocol), wanted_bytes)
        return Point(choice, protocol, channels, threads, buffer_bytes)

    def _near(self, indices: Mapping[str, int]) -> Iterator[ScheduleChoice]:
        """Every choice, the one that ``indices`` name first."""
        wanted = self.chunkings[indices["chunking"]]
        chunkings = sorted(self.chunkings, key=lambda c: (c > wanted, abs(c - wanted)))
        named = self.sketch_axes.name(indices)
        sketches = _from(self.sketches, _index(self.sketches, named))
        for method in _from(self.methods, indices["method"]):
            for sketch in dict.fromkeys((named, *sketches)):
                yield from (ScheduleChoice(sketch, method, c) for c in chunkings)

    def indices(self, point: Point) -> dict[str, int]:
        """Return indices, one per dimension, that stand for ``point``."""
        return {
            "method": self.methods.index(point.choice.method),
            **self.sketch_axes.indices(point.choice.sketch),
            "chunking": self.chunkings.index(point.choice.chunks_per_rank),
            "protocol": self.protocols.index(point.protocol),
            "channels": self._grid.channels.index(point.channels),
            "threads": self._grid.threads.index(point.threads),
            "buffer": self._buffer_scale(point.protocol).index(point.buffer_bytes),
        }

    def nearest(self, point: Point) -> Point:
        """Return ``point``, or the legal point that its values come closest to.

        Used to carry points from one size to the next, where sketches and limits differ.
        """
        choice = point.choice
        if point in self and point.channels in self.channels(choice).get(point.protocol, ()):
            return point
        indices = {
            "method": _index(self.methods, choice.method),
            **self.sketch_axes.indices(
                choice.sketch if choice.sketch in self.sketch_axes else self.sketches[0]
            ),
            "chunking": self.chunkings.index(_at_most(self.chunkings, choice.chunks_per_rank)),
            "protocol": _index(self.protocols, point.protocol),
            "channels": _place(self._grid.channels, point.channels),
            "threads": _place(self._grid.threads, point.threads),
            "buffer": _place(self._buffer_scale(point.protocol), point.buffer_bytes),
        }
        return self.point(indices)

    def _buffer_scale(self, protocol: str) -> Sequence[int]:
        """Rising buffer sizes, as many for every protocol, each legal one once.

        LL128 has a default of its own between two powers of two; 256 B, which holds no line of
        it, makes room.
        """
        buffers = self._grid.buffers
        return sorted({*buffers, *self._grid.legal_buffers(protocol)})[-len(buffers) :]


def _within(by_protocol: Channels, grid: KnobGrid) -> dict[str, tuple[int, ...]]:
    """The channels of each protocol that the grid has too, rising; only protocols with some."""
    kept = {p: tuple(sorted({*c} & {*grid.channels})) for p, c in by_protocol.items()}
    return {p: c for p, c in kept.items() if c and p in grid.protocols}


def _from(values: Sequence[str], start: int) -> Sequence[str]:
    return [*values[start:], *values[:start]]


def _index(values: Sequence[str], value: str) -> int:
    return values.index(value) if value in values else 0


def _at_most(values: Sequence[int], wanted: int) -> int:
    """The largest of the rising ``values`` up to ``wanted``, else the smallest."""
    return values[_place(values, wanted)]


def _place(values: Sequence[int], wanted: int) -> int:
    return max(bisect_right(values, wanted) - 1, 0)
