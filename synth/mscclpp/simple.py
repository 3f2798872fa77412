"""Tasks under Simple: data lands in scratch or in place, and a signal says so."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.block_writer import BlockWriter, Remote
from tuccl.synth.mscclpp.layout import Layout, Part, Slots
from tuccl.synth.mscclpp.tasks import Message, Task

__all__ = ["SimplePlaces", "simple_places", "write_simple"]

_STORES = frozenset({"r", "rcs"})


@dataclass(frozen=True)
class SimplePlaces:
    """Place where each message lands, and place in scratch that those through a port leave."""

    landing: dict[Message, Address]
    leaving: dict[Message, Address]


def simple_places(layout: Layout, scratch: list[Slots], *, in_place: bool) -> SimplePlaces:
    """Choose the places of all messages, and take what they need of each rank's scratch.

    `in_place`: what is only stored lands where it is stored. What goes on through a port lands in
    scratch even so, since a port's put reads there alone.
    """
    landing: dict[Message, Address] = {}
    leaving: dict[Message, Address] = {}
    for parts in layout.parts:
        for part in parts:
            for task in part.tasks:
                forwards = task.sends and layout.links[task.sends].kind == "port"
                if task.receives:
                    direct = in_place and task.op in _STORES and not forwards
                    slot = task.dst if direct else scratch[part.rank].take(task.count)
                    landing[task.receives] = slot
                if task.sends and forwards:
                    if task.receives:
                        leaving[task.sends] = landing[task.receives]
                    elif task.src.buffer == "s":
                        leaving[task.sends] = task.src
                    else:
                        leaving[task.sends] = scratch[part.rank].take(task.count)
    return SimplePlaces(landing, leaving)


def write_simple(
    part: Part, task: Task, writer: BlockWriter, layout: Layout, places: SimplePlaces
) -> None:
    """Write the operations of `task`, one of `part`."""
    slot = None
    if task.receives:
        link = layout.links[task.receives]
        writer.wait([(link.kind, link.receiving)])
        slot = places.landing[task.receives]
    if task.sends is None:
        _keep(task, writer, slot)
        return
    link = layout.links[task.sends]
    landing = places.landing[task.sends]
    remote = Remote(task.sends.dst, landing.buffer, landing.offset, link.kind)
    if link.kind == "port":
        source = places.leaving[task.sends]
        _prepare(task, writer, slot, source)
        writer.put_with_signal(source, remote, task.count, link.sending)
        if slot and task.op in ("rcs", "rrcs"):
            writer.move("copy", [slot], [task.dst], task.count)
        return
    if task.op in ("rrs", "rrcs") and slot:
        stored = slot if task.op == "rrs" else task.dst
        writer.move("res", [task.src, slot], [stored], task.count, remote=[remote])
    else:
        if slot and slot != task.dst:
            writer.move("copy", [slot], [task.dst], task.count)
        writer.move("put", [slot or task.src], [], task.count, remote=[remote])
    writer.signal([(link.kind, link.sending)])


def _prepare(task: Task, writer: BlockWriter, slot: Address | None, source: Address) -> None:
    """Have in scratch what a port puts."""
    if slot is None:
        if source != task.src:
            writer.move("copy", [task.src], [source], task.count)
    elif task.op in ("rrs", "rrcs"):
        writer.move("re", [task.src, slot], [slot], task.count)


def _keep(task: Task, writer: BlockWriter, slot: Address | None) -> None:
    """Write what `task` does within its rank."""
    if slot is None:
        if task.op == "cpy":
            writer.move("copy", [task.src], [task.dst], task.count)
        elif task.op == "re":
            writer.move("re", [task.src, *task.sources], [task.dst], task.count)
    elif task.op == "rrc":
        writer.move("re", [task.src, slot], [task.dst], task.count)
    elif slot != task.dst:
        writer.move("copy", [slot], [task.dst], task.count)
