"""Programs by choice, protocol and channels: synthesized once, verified before they are timed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path as Folder
from typing import Generic, Literal, TypeVar

import msgspec

from tuccl import program as xml
from tuccl.errors import Infeasible, InputError
from tuccl.program import (
    Knobs,
    Program,
    default_buffer_bytes,
    max_safe_bytes,
    with_period,
    xml_text,
)
from tuccl.runtime import ProgramFile, program_file
from tuccl.runtime.executors.knob_grid import CHANNELS, PROTOCOLS, WHOLE_GRID, KnobGrid
from tuccl.runtime.executors.plan_sim import plan_knobs
from tuccl.runtime.nccl.ll128 import ll128_is_safe
from tuccl.sketches import Sketch
from tuccl.sketches.parameters import MOST_MESHED, SketchSpace
from tuccl.synth import (
    EXACT_METHODS,
    METHODS,
    PLAN_COLLECTIVES,
    SOLVERS,
    Collective,
    Options,
    Placement,
    Problem,
    Schedule,
    ScheduleChoice,
    find_method,
    lower,
    make_schedule,
    msccl_default,
    replicate,
    searched_methods,
)
from tuccl.synth.lowering.limits import limits_of
from tuccl.synth.methods import Method
from tuccl.synth.model.problem import STAND_IN
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, encode_topology, machine_of, network
from tuccl.tuning.searches.initial_points import default_point
from tuccl.tuning.searches.sketch_axes import ParameterAxes
from tuccl.tuning.searches.space import Channels, Space
from tuccl.tuning.studies.schedule_store import stored_schedule

# Methods that are no methods: the two forms of msccl-default, on the full mesh only.
ROBUST = "msccl-default-robust"
DEFAULT_METHODS: Mapping[str, Literal["faithful", "robust"]] = {
    ROBUST: "robust",
    "msccl-default": "faithful",
}
# Methods that take long: sizes of one class share a schedule, made for the class's own size.
_COSTLY = frozenset({"greedy", *EXACT_METHODS})
_SOLVE_S = 10.0
_MOST_SOLVE_S = 600.0  # where the effort ends it
_SHARED = SOLVERS | {  # schedules on disk
    m.name for m in (*METHODS.values(), *EXACT_METHODS.values()) if m.effort_s >= 0.1
}
# Ranks whose programs and schedules are all kept, whole; of more some are.
_MOST_KEPT = 32
_MOST_SCHEDULES = 48
# Steps of the programs that are kept, of ranks times ranks each: some 2 GB.
_MOST_STEPS_KEPT = 1 << 20
_SIZE_CLASSES = (16 << 10, 1 << 20, 64 << 20)
_ELEMENT_BYTES = 4
_MOST_MEMORY = 1 << 24  # chunks of all ranks together; the verifier takes four times as many
_T = TypeVar("_T")


@dataclass(frozen=True)
class VerifiedProgram:
    """A program that was proven right; ``max_safe_bytes`` 0: at every size."""

    program: Program
    max_safe_bytes: int
    checksum: str
    xml_bytes: int

    def copies(self, program: Program, count: int) -> VerifiedProgram:
        """Return ``program``, which is ``count`` of this side by side.

        Nothing is proven again: copies share no chunk, thread block or connection, so that they are
        right if one is, and each is safe for as many bytes of its own. They keep the dialect's
        limits (`_keeps_limits`).
        """
        checksum = hashlib.sha256(f"{self.checksum} {count}".encode()).hexdigest()
        safe, size = count * self.max_safe_bytes, count * self.xml_bytes
        return VerifiedProgram(program, safe, checksum, size)


@dataclass(frozen=True)
class _NumberedSchedule:
    """A schedule, made again if it is not kept, and the number that equal ones share.

    ``keeps_lines``: LL128 is safe on every link that it uses.
    """

    number: int
    keeps_lines: bool
    make: Callable[[], Schedule]


class ProgramCache:
    """The programs of one topology and collective, made at their first use.

    A schedule is kept by (sketch, method, chunking) and the size, which methods look at; the
    knobs never force a new synthesis. A schedule is lowered once, channels
    replicate the program, and each protocol and channel count is proven once. What cannot be
    made is remembered with its reason.
    """

    def __init__(
        self,
        topology: Topology,
        collective: Collective,
        dialect: str = "executor",
        *,
        any_order: bool = False,
        as_plans: bool = False,
        methods: Sequence[str] = (),
        sketches: Sequence[str] = (),
        folder: Folder | None = None,
        effort: float | None = None,
    ) -> None:
        """Prepare to make programs for ``collective`` on ``topology``.

        With ``any_order`` also those whose ranks add in different orders. ``as_plans``: MSCCL++
        runs them, where channels may be thread blocks of a group (`plan_knobs`) and not instances.
        Programs come of ``methods`` on the sketches named ``sketches``; none: of all. Processes
        that name one ``folder`` share the schedules that take long. ``effort`` ends solvers by
        their deterministic time (`Budget`), so that another run makes the same programs.
        """
        self._effort = effort
        self._named = frozenset(methods)
        self._methods = methods or searched_methods(unordered=any_order)
        if SOLVERS & self._named:
            self._methods = tuple(dict.fromkeys((*methods, STAND_IN)))
        self._sketches = frozenset(sketches)
        self._folder = folder
        self._machine = hashlib.sha256(encode_topology(topology)).hexdigest()
        self.as_plans = as_plans
        self.topology = topology
        self.collective = collective
        self.dialect = dialect
        self._limits = limits_of(dialect, topology.ranks)
        # Every thread block must be resident at once, or they wait for ever for each other.
        resident = machine_of(topology).sm_count or self._limits.threadblocks
        self._most_threadblocks = min(self._limits.threadblocks, resident)
        # Each peer takes a thread block.
        self._has_default = topology.ranks <= self._most_threadblocks + 1
        many = topology.ranks > _MOST_KEPT
        self._numbered = _Memo[_NumberedSchedule]()
        self._schedules = _Memo[Schedule](_MOST_SCHEDULES if many else 0)
        self._solved = _Memo[Schedule]()
        self._sketch_keys: dict[Sketch, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        sizes = {len(topology.gpus_of(host)) for host in topology.hosts}
        equal = len(topology.hosts) > 2 and len(sizes) == 1 and sizes != {1}
        self._has_rails = equal and topology.ranks > MOST_MESHED
        folds = equal and _MOST_KEPT < topology.ranks <= MOST_MESHED and not as_plans
        self._period = min(sizes) if folds and network(topology).repeats(min(sizes)) else 0
        kept = max(_MOST_STEPS_KEPT // topology.ranks**2, 12) if many else 0
        self._lowered = _Memo[Program](kept)
        self._replicated = _Memo[Program](kept)
        self._programs = _Memo[Program](kept)
        self._verified = _Memo[VerifiedProgram](kept)
        self._safe: dict[tuple[object, ...], int] = {}  # by copies: bytes, with a usual buffer
        self._passes: dict[tuple[object, ...], int] = {}  # by copies, with another; 0: any number
        self._texts = _Memo[tuple[str, int]](kept)  # checksums and bytes
        self._files = _Memo[ProgramFile](kept)

    def choices(self, sketches: Sequence[Sketch], nbytes: int) -> dict[ScheduleChoice, Channels]:
        """Return every choice worth a try, with the channels whose chunks divide the array.

        Nothing is synthesized for this. ``sketches`` are ranked, the full mesh last; more than
        one chunk a rank is worth a try only where chunks fill a PCIe packet; LL128 where the
        GPUs keep its lines whole.
        """
        protocols = [p for p in PROTOCOLS if p != "LL128" or ll128_is_safe(self.topology, ())]
        channels: dict[ScheduleChoice, Channels] = {}
        for choice in self._combinations(sketches, nbytes):
            nchunks = self.collective.nchunks(choice.chunks_per_rank)
            counts = tuple(c for c in CHANNELS if _divides(nbytes, nchunks * c))
            channels[choice] = dict.fromkeys(protocols, counts)
        return channels

    def _combinations(self, sketches: Sequence[Sketch], nbytes: int) -> Iterator[ScheduleChoice]:
        """The default forms on the mesh, then every sketch with every method."""
        if self._has_default:
            for method in DEFAULT_METHODS:
                yield ScheduleChoice(sketches[-1].name, method, 1)
        methods = [name for name in self._methods if self._suits(find_method(name))]
        named = [s for s in sketches if not self._sketches or s.name in self._sketches]
        for sketch, method in product(named, methods):
            counts = set(find_method(method).chunk_counts)
            if method in EXACT_METHODS:
                counts.add(sketch.chunks_per_rank)
            for chunks in sorted(counts):
                if chunks == 1 or nbytes >= sketch.align_bytes * self.collective.nchunks(chunks):
                    yield ScheduleChoice(sketch.name, method, chunks)

    def _suits(self, method: Method) -> bool:
        """Return whether programs are made by it: one that is named on any number of ranks."""
        if method.name in self._named:
            return self.collective.name in method.collectives
        if method.name == "recursive" and self._has_rails:  # fewer messages in a row on rails
            return False
        return method.suits(self.collective)

    def is_named(self, choice: ScheduleChoice) -> bool:
        """Return whether a table may have its programs: no stand-in's, only of named methods."""
        return not self._named or choice.method in self._named

    def channels(self, sketch: Sketch, choice: ScheduleChoice, nbytes: int) -> Channels:
        """Return the channels by protocol that the program of ``choice`` leaves legal, or none.

        Those that the dialect's limits and the GPU's multiprocessors leave room for and whose
        chunks divide the array; LL128 where it is safe on every link that the choice uses.
        """
        default = choice.method in DEFAULT_METHODS
        if not (self._has_default if default else self._suits(find_method(choice.method))):
            return {}  # of fewer ranks, which nominated it
        try:
            numbered = self._schedule(sketch, choice, nbytes)
            base = self._lower(numbered)
        except Infeasible:
            return {}
        most = self._most_channels(base)
        counts = tuple(c for c in CHANNELS if c <= most and _divides(nbytes, base.nchunks * c))
        return {p: counts for p in PROTOCOLS if p != "LL128" or numbered.keeps_lines}

    def space(
        self,
        sketches: Sequence[Sketch],
        nbytes: int,
        grid: KnobGrid = WHOLE_GRID,
        wider: SketchSpace | None = None,
        only: Collection[tuple[str, str]] = (),
    ) -> Space | None:
        """Return the space of calls of ``nbytes`` bytes; None: no point is legal.

        With ``only`` it has no choices but of these sketches and methods.

        It has the parameters of ``wider`` for dimensions, of which ``sketches`` are some points.
        Of choices with equal schedules the first that is looked at closely stays legal.
        """
        if self.as_plans and self.collective.name not in PLAN_COLLECTIVES:
            return None
        channels = self.choices(sketches, nbytes)
        if only:
            channels = {c: legal for c, legal in channels.items() if (c.sketch, c.method) in only}
        start = default_point(channels, grid)
        if start is None:
            return None
        sketch_of = sketches_by_name(sketches, wider)
        first: dict[tuple[int, bool], ScheduleChoice] = {}

        def refine(choice: ScheduleChoice) -> Channels:
            try:
                sketch = sketch_of(choice.sketch)
            except InputError:  # its parameters leave too few links
                return {}
            legal = self.channels(sketch, choice, nbytes)
            if not legal:
                return {}
            key = self._schedule(sketch, choice, nbytes).number, self.is_named(choice)
            return legal if first.setdefault(key, choice) == choice else {}

        def nchunks(choice: ScheduleChoice) -> int:
            return self.collective.nchunks(choice.chunks_per_rank)

        axes = ParameterAxes(wider) if wider is not None and wider.axes else None
        return Space(channels, start, refine, grid, nbytes, nchunks, axes)

    def _most_channels(self, base: Program) -> int:
        """The channels that the dialect's limits and the GPU's multiprocessors leave room for."""
        limits = self._limits
        gpus = base.written
        elements = max(sum(1 + len(b.steps) for b in gpu.threadblocks) for gpu in gpus)
        memory = sum(g.input_chunks + g.output_chunks + g.scratch_chunks for g in gpus)
        memory *= base.ngpus // len(gpus)
        return min(
            limits.channels // base.nchannels,
            self._most_threadblocks // base.threadblocks,
            (limits.xml_elements - base.ngpus - 1) // elements,
            _MOST_MEMORY // memory,
        )

    def _schedule(self, sketch: Sketch, choice: ScheduleChoice, nbytes: int) -> _NumberedSchedule:
        """The schedule of ``choice`` on ``sketch``; raises Infeasible where there is none."""
        size = _size_class(nbytes) if choice.method in _COSTLY else nbytes
        chunks, seen = choice.chunks_per_rank, None  # of msccl-default, which is of any size
        if choice.method not in DEFAULT_METHODS:
            seen = find_method(choice.method).size_key(self.collective, chunks, size)
        if sketch not in self._sketch_keys:
            self._sketch_keys[sketch] = _sketch_key(sketch)
        key = self._sketch_keys[sketch], choice.method, chunks, seen

        # What a solver makes within its time may differ the next time.
        schedules = self._solved if choice.method in EXACT_METHODS else self._schedules

        def make() -> Schedule:
            return schedules.get(key, lambda: self._synthesize(sketch, choice, size, key))

        def numbered() -> _NumberedSchedule:
            schedule = make()
            number = self._numbers.setdefault(_content(schedule), len(self._numbers))
            return _NumberedSchedule(number, ll128_is_safe(self.topology, schedule.sent), make)

        return self._numbered.get(key, numbered)

    def _synthesize(
        self, sketch: Sketch, choice: ScheduleChoice, nbytes: int, key: object
    ) -> Schedule:
        if choice.method in DEFAULT_METHODS:
            form = DEFAULT_METHODS[choice.method]
            return msccl_default(self.topology, self.collective, form)
        chunks = choice.chunks_per_rank
        problem = Problem(self.collective, sketch, chunks, nbytes, self.topology)

        def make() -> Schedule:
            budget = self._budget() if choice.method in EXACT_METHODS else None
            schedule = make_schedule(problem, choice.method, Options(budget=budget))
            if budget is not None and budget.interrupted:
                raise KeyboardInterrupt
            return schedule

        if self._folder is None or choice.method not in _SHARED:
            return make()
        whole = (self._machine, self.collective, key, self._effort or _SOLVE_S)
        return stored_schedule(self._folder, whole, problem, make)

    def _budget(self) -> Budget:
        if self._effort is None:
            return Budget(seconds=_SOLVE_S)
        return Budget(seconds=_MOST_SOLVE_S, effort=self._effort)

    def _lower(self, numbered: _NumberedSchedule, placement: Placement = "any") -> Program:
        def make() -> Program:
            program = lower(numbered.make(), dialect=self.dialect, placement=placement)
            # A ring may leave every second host where it enters the others.
            return with_period(with_period(program, self._period), 2 * self._period)

        return self._lowered.get((numbered.number, placement), make)

    def program(
        self,
        sketch: Sketch,
        choice: ScheduleChoice,
        nbytes: int,
        protocol: str,
        channels: int,
        buffer_bytes: int = 0,
        placement: Placement = "any",
    ) -> VerifiedProgram:
        """Return the proven program of ``choice`` with ``protocol`` and ``channels``.

        Up to which size it is safe is proven with ``buffer_bytes``; 0: the protocol's default.
        One for a single ``placement`` may be faster there than one for any.

        Raises:
            Infeasible: it cannot be made, or is not right; remembered.
        """
        numbered = self._schedule(sketch, choice, nbytes)
        size = buffer_bytes or default_buffer_bytes(protocol, self.dialect)
        if self.as_plans and plan_knobs(Knobs(protocol, channels, 512, size)).group_size > 1:
            channels = 1
        copies = numbered.number, placement, channels

        def make() -> Program:
            base = self._lower(numbered, placement)
            bare = self._replicated.get(copies, lambda: replicate(base, channels))
            return bare.replace(protocol=protocol, min_bytes=0, max_bytes=1)

        def verify() -> VerifiedProgram:
            program = self._programs.get((*copies, protocol), make)
            if channels == 1:
                return self._proven(program, size, (*copies, protocol))
            one = self.program(sketch, choice, nbytes, protocol, 1, size, placement)
            copied = one.copies(program, channels)
            if self._keeps_limits(copied, one):
                return copied
            return self._proven(program, size, (*copies, protocol))

        return self._verified.get((*copies, protocol, size), verify)

    def _safe_bytes(self, program: Program, buffer_bytes: int, copies: tuple[object, ...]) -> int:
        """The largest safe size; 0: every size.

        Buffers only say in how many parts transfers are cut, and into how many passes a call: what
        may be cut in any is proven for one of each kind.
        """
        dialect, root = self.dialect, self.collective.root
        default = default_buffer_bytes(program.protocol, dialect)
        if copies not in self._safe:
            self._safe[copies] = max_safe_bytes(program, dialect, root, default)
            if buffer_bytes == default:
                return self._safe[copies]
        if self._safe[copies] > 0:
            return max_safe_bytes(program, dialect, root, buffer_bytes)
        if buffer_bytes == default:
            return 0
        knobs = Knobs(program.protocol, buffer_bytes=buffer_bytes)
        pass_bytes = knobs.slice_bytes * program.nchunks
        if copies not in self._passes:
            safe = max_safe_bytes(program, dialect, root, buffer_bytes)
            self._passes[copies] = safe // pass_bytes
        return self._passes[copies] * pass_bytes

    def file(self, program: Program, dialect: str, root: int) -> ProgramFile:
        """Return the file of one of these programs, proven once (`program_file`)."""
        return self._files.get(
            (program, dialect, root), lambda: program_file(program, dialect, root)
        )

    def _keeps_limits(self, copied: VerifiedProgram, one: VerifiedProgram) -> bool:
        """Return whether copies of ``one`` surely keep its limits: where shares part, steps do."""
        program, limits = copied.program, self._limits
        gpus = program.written
        most = max(max(g.input_chunks, g.output_chunks, g.scratch_chunks) for g in gpus)
        return (
            program.max_steps == one.program.max_steps
            and copied.xml_bytes <= xml.MOST_XML_BYTES
            and program.threadblocks <= limits.awaited_blocks
            and most <= limits.offset
        )

    def _proven(
        self, program: Program, buffer_bytes: int, copies: tuple[object, ...]
    ) -> VerifiedProgram:
        def text_of_file() -> tuple[str, int]:
            text = xml_text(program, self.dialect, compact=self.dialect == "executor").encode()
            return hashlib.sha256(text).hexdigest(), len(text)

        try:
            safe = self._safe_bytes(program, buffer_bytes, copies)
            return VerifiedProgram(program, safe, *self._texts.get((program,), text_of_file))
        except InputError as error:
            raise Infeasible(str(error)) from None


def sketches_by_name(
    sketches: Sequence[Sketch], wider: SketchSpace | None
) -> Callable[[str], Sketch]:
    """Return what makes a sketch of its name: one of ``sketches`` or, with ``wider``, any of it."""
    by_name = {sketch.name: sketch for sketch in sketches}
    return by_name.__getitem__ if wider is None else wider.sketch


class _Memo(Generic[_T]):
    """Values by their keys, or the reasons why they cannot be made: the last used, if not all."""

    def __init__(self, most: int = 0) -> None:
        """Keep ``most`` values, or all."""
        self._values: dict[tuple[object, ...], _T] = {}
        self._reasons: dict[tuple[object, ...], Infeasible] = {}
        self._most = most

    def get(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        if key in self._reasons:
            raise self._reasons[key]
        if key not in self._values:
            try:
                self._values[key] = make()
            except Infeasible as error:
                self._reasons[key] = error
                raise
        value = self._values[key] = self._values.pop(key)
        if self._most and len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value


def _content(schedule: Schedule) -> bytes:
    """Return a key of all that lowering sees of a schedule."""
    content = schedule.nchunks, schedule.period, schedule.transfers, schedule.scratch
    hints = schedule.hints
    order = hints.split_send_recv, hints.sends_first, sorted(hints.shared_threadblocks)
    return hashlib.sha256(msgspec.msgpack.encode((content, order))).digest()


def _size_class(nbytes: int) -> int:
    return next((size for size in _SIZE_CLASSES if nbytes <= 4 * size), _SIZE_CLASSES[-1])


def _sketch_key(sketch: Sketch) -> bytes:
    """Return a key of all that a method sees of a sketch: a choice fixes the chunking."""
    plain = msgspec.structs.replace(sketch, chunks_per_rank=1, align_bytes=1, pruned=())
    return hashlib.sha256(msgspec.json.encode(plain)).digest()


def _divides(nbytes: int, nchunks: int) -> bool:
    return nbytes % (nchunks * _ELEMENT_BYTES) == 0
