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
    for part, task in layout.tasks():
        forwards = any(layout.links[message].kind == "port" for message in task.sends)
        for message in (message for message in task.receives if not message.source):
            direct = in_place and task.op in _STORES and not forwards
            landing[message] = task.dst if direct else scratch[part.rank].take(task.count)
        for message in task.sends:
            if layout.links[message].kind == "port":
                if task.receives:
                    leaving[message] = landing[task.receives[-1]]
                elif task.src.buffer == "s":
                    leaving[message] = task.src
                else:
                    leaving[message] = scratch[part.rank].take(task.count)
    return SimplePlaces(landing, leaving)


def write_simple(
    part: Part, task: Task, writer: BlockWriter, layout: Layout, places: SimplePlaces
) -> None:
    """Write the operations of `task`, one of `part`."""
    pulled = [Remote(m.src, *m.source, "memory") for m in task.receives if m.source]
    if any(message.source for message in task.sends):
        return
    put = [message for message in task.receives if not message.source]
    links = [layout.links[message] for message in put]
    writer.wait([(link.kind, link.receiving) for link in links])
    slots = [places.landing[message] for message in put]
    if not task.sends:
        if pulled:
            writer.move("rre", [task.src], [task.dst], task.count, pulled=pulled)
        else:
            _keep(task, writer, slots)
        return
    (message,) = task.sends
    link, landing = layout.links[message], places.landing[message]
    remote = Remote(message.dst, landing.buffer, landing.offset, link.kind)
    if link.kind == "port":
        source = places.leaving[message]
        _prepare(task, writer, slots, source)
        writer.put_with_signal(source, remote, task.count, link.sending)
        if task.op in ("rcs", "rrcs"):
            writer.move("copy", [source], [task.dst], task.count)
        return
    if pulled:
        writer.move("rres", [task.src], [task.dst], task.count, pulled=pulled, remote=[remote])
    elif task.op in ("rrs", "rrcs"):
        stored = slots[-1] if task.op == "rrs" else task.dst
        sources = [task.src, *task.sources, *slots]
        writer.move("res", sources, [stored], task.count, remote=[remote])
    else:
        if slots and slots[0] != task.dst:
            writer.move("copy", slots, [task.dst], task.count)
        writer.move("put", slots or [task.src], [], task.count, remote=[remote])
    writer.signal([(link.kind, link.sending)])


def _prepare(task: Task, writer: BlockWriter, slots: list[Address], source: Address) -> None:
    """Have in scratch what a port puts."""
    if task.op in ("rrs", "rrcs"):
        writer.move("re", [task.src, *task.sources, *slots], [source], task.count)
    elif not slots and source != task.src:
        writer.move("copy", [task.src], [source], task.count)


def _keep(task: Task, writer: BlockWriter, slots: list[Address]) -> None:
    """Write what `task` does within its rank."""
    if task.op == "cpy":
        writer.move("copy", [task.src], [task.dst], task.count)
    elif task.op in ("re", "rrc"):
        writer.move("re", [task.src, *task.sources, *slots], [task.dst], task.count)
    elif task.op == "r" and slots[0] != task.dst:
        writer.move("copy", slots, [task.dst], task.count)
