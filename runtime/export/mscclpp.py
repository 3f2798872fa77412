"""A table's programs as execution plans of MSCCL++, with the module that selects them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Program
from tuccl.runtime.executors.plan_sim import (
    check_residency,
    plan_knobs,
    program_plan,
    ranks_per_node,
)
from tuccl.runtime.table.entry import ROOTED, Candidate, Entry, KnobValues
from tuccl.runtime.table.store import Table
from tuccl.synth import PLAN_COLLECTIVES, Multicast, PlanKnobs, switch_plan
from tuccl.synth.baseline.nccl_nvls import nvls_network
from tuccl.topology import Topology, network
from tuccl.topology.models import has_multicast
from tuccl.units import format_bytes

_TOP = (1 << 32) - 1  # offsets have 32 bits
_PACKETS_TOP = 1 << 16  # bytes, as in MSCCL++'s own plans of packets
_DATATYPES = {"any": None, "1-byte": 1, "2-byte": 2, "4-byte": 4, "8-byte": 8}


@dataclass(frozen=True)
class PlanSource:
    """One plan to be, for calls of one placement and the sizes [min_bytes, max_bytes]."""

    program: Program | Multicast
    knobs: PlanKnobs
    in_place: bool
    min_bytes: int
    max_bytes: int
    root: int | None = None
    datatype_bytes: int | None = None

    def plan(self, hosts: int, name: str, *, share_scratch: bool) -> ExecutionPlan:
        """Return the plan, proved.

        Raises:
            Infeasible: MSCCL++ cannot run it.
        """
        if isinstance(self.program, Multicast):
            return switch_plan(
                self.program,
                self.knobs,
                in_place=self.in_place,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                share_scratch=share_scratch,
                name=name,
            )
        return program_plan(
            self.program,
            self.knobs,
            (self.min_bytes, self.max_bytes),
            hosts=hosts,
            in_place=self.in_place,
            share_scratch=share_scratch,
            root=self.root or 0,
            name=name,
        )

    @property
    def text(self) -> str:
        """The calls it serves, for messages."""
        where = "in place" if self.in_place else "out of place"
        top = format_bytes(self.max_bytes)
        return f"{self.program.collective} {where} [{format_bytes(self.min_bytes)}, {top}]"


def sources_of_table(stored: Table, notes: list[str]) -> list[PlanSource]:
    """Return what the table chooses, as far as MSCCL++ can run it; say in `notes` what not.

    A candidate that cannot be lowered gives way to the next; the default is a hole.
    """
    if ranks_per_node(stored.topology, range(stored.topology.ranks)) is None:
        raise InputError(
            f"{stored.folder}: MSCCL++ needs as many ranks on each host, numbered host by host"
        )
    lowered = _Lowered(stored, notes)
    sources: list[PlanSource] = []
    for entry in stored.lookup.entries:
        if (why := _exclusion_reason(entry)) is not None:
            _note(notes, f"{entry.collective} left out: {why}")
            continue
        for in_place in (False, True):
            if not entry.takes(in_place):
                continue
            if in_place and entry.collective == "reduce-scatter":
                _note(notes, "reduce-scatter in place left out: rank 0 alone would see it as such")
                continue
            sources += lowered.sources(entry.without_algorithms(), in_place)
    sources = _joined(sources)
    if any(source.knobs.packets for source in sources):
        for source in sources:
            if source.root is not None:
                _note(
                    notes,
                    f"{source.program.collective} left out: packets of LL plans stay apart only if "
                    "every rank waits for every rank in each call between",
                )
        sources = [source for source in sources if source.root is None]
    return sources


def sources_of_program(program: Program, root: int) -> list[PlanSource]:
    """Return a source for each placement that `program` claims and MSCCL++ has.

    Raises:
        InputError: there is none.
    """
    top = min(program.max_bytes or _TOP, _TOP)
    sources = [
        PlanSource(
            program,
            PlanKnobs(_protocol(program.protocol)),
            in_place,
            program.min_bytes or 0,
            top,
            root=root if program.collective in ROOTED else None,
        )
        for in_place in (False, True)
        if (program.in_place if in_place else program.out_of_place)
        and not (in_place and program.collective == "reduce-scatter")
    ]
    if not sources:
        raise InputError(f"{program.name}: is right in place alone, which MSCCL++ has no plans for")
    return sources


def sources_of_switch(topology: Topology, collectives: Sequence[str]) -> list[PlanSource]:
    """Return what the NVLink switch of a host does by itself: packets up to 64 KiB, else stores.

    Raises:
        Infeasible: the machine has no such switch, or it does not do a collective.
    """
    models = {gpu.model for gpu in topology.gpus}
    if len(topology.hosts) > 1 or not all(map(has_multicast, models)):
        raise Infeasible(
            f"hosts: {len(topology.hosts)}, GPUs: {', '.join(sorted(map(str, models)))}; a switch "
            "adds up on one host, for GPUs of compute capability 9.0 or more: export programs"
        )
    nvls_network(network(topology), [range(topology.ranks)])
    sources = []
    for collective in collectives:
        multicast = Multicast(collective, topology.ranks)
        both = collective != "reduce-scatter"
        for in_place in (False, True) if both else (False,):
            if both:
                sources.append(PlanSource(multicast, PlanKnobs("LL"), in_place, 0, _PACKETS_TOP))
            low = _PACKETS_TOP + 1 if both else 0
            sources.append(PlanSource(multicast, PlanKnobs(), in_place, low, _TOP))
    return sources


class _Lowered:
    """Verdicts on the table's programs as plans, each computed once."""

    def __init__(self, stored: Table, notes: list[str]) -> None:
        self._stored = stored
        self._notes = notes
        self._known: dict[tuple[object, ...], bool] = {}

    def sources(self, entry: Entry, in_place: bool) -> list[PlanSource]:
        """Return the plans of an entry's sizes, by the first candidates that become one."""
        refused: set[str] = set()
        while True:
            left = tuple(c for c in entry.candidates if c.name not in refused)
            usable = msgspec.structs.replace(entry, candidates=left)
            out = []
            for low, high, candidate in usable.choices(in_place):
                source = self._source(entry, in_place, low, high, candidate)
                if source is not None and not self._runs(source, candidate):
                    refused.add(candidate.name)
                    break
                out += [source] if source else []
            else:
                return out

    def _source(
        self, entry: Entry, in_place: bool, low: int, high: int | None, candidate: Candidate
    ) -> PlanSource | None:
        program, knobs = self._stored.program(candidate), candidate.knobs
        if program is None or knobs is None:
            return None
        top = _TOP if high is None else min(high - 1, _TOP)
        if low >= 1 << 31 or top < max(low, program.nchunks * 16):
            _note(self._notes, f"{entry.collective} of {low} bytes left out: no size for a plan")
            return None
        size = _DATATYPES[entry.datatype_class]
        return PlanSource(program, self._knobs(knobs), in_place, low, top, entry.root, size)

    def _knobs(self, knobs: KnobValues) -> PlanKnobs:
        """Return the knobs that the program was tuned with, or those nearest to MSCCL's."""
        if self._stored.lookup.dialect == "mscclpp":
            return plan_knobs(knobs.knobs)
        if knobs.protocol == "LL128":
            _note(self._notes, "MSCCL++ has no LL128: those programs run under Simple")
        protocol = _protocol(knobs.protocol)
        unit = knobs.knobs.slice_bytes // 16 * 16 if protocol == "Simple" else 0
        return PlanKnobs(protocol, knobs.threads, unit)

    def _runs(self, source: PlanSource, candidate: Candidate) -> bool:
        sizes = source.min_bytes, source.max_bytes
        key = (candidate.program, candidate.knobs, source.in_place, source.root, sizes)
        if key not in self._known:
            try:
                plan = source.plan(self._stored.lookup.hosts, "trial", share_scratch=False)
                check_residency(plan, self._stored.topology)
                self._known[key] = True
            except Infeasible as error:
                self._known[key] = False
                _note(self._notes, f"{candidate.name} left out: {error}")
        return self._known[key]


def _exclusion_reason(entry: Entry) -> str | None:
    if entry.collective not in PLAN_COLLECTIVES:
        return "no call of MSCCL++ reaches it"
    if entry.datatype_class in ("1-byte", "8-byte"):
        return f"MSCCL++ adds up no {entry.datatype_class} datatypes"
    return None


def _protocol(protocol: str) -> str:
    return "LL" if protocol == "LL" else "Simple"


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _joined(sources: list[PlanSource]) -> list[PlanSource]:
    """Return fewer sources that say the same: neighbouring sizes of one program and placement."""

    def key(source: PlanSource) -> tuple[str, bool, int, int]:
        return source.program.collective, source.in_place, source.root or 0, source.min_bytes

    out: list[PlanSource] = []
    for source in sorted(sources, key=key):
        if out and out[-1].max_bytes + 1 == source.min_bytes:
            longer = replace(out[-1], max_bytes=source.max_bytes)
            if replace(source, min_bytes=longer.min_bytes) == longer:
                out[-1] = longer
                continue
        out.append(source)
    return out
