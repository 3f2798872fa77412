"""Tasks under Simple: data lands in scratch or in place, and a signal says so."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.block_writer import BlockWriter, Remote
from tuccl.synth.mscclpp.layout import Layout, Link, Part, Slots
from tuccl.synth.mscclpp.tasks import Message, Task

_STORES = frozenset({"r", "rcs"})


@dataclass(frozen=True)
class SimplePlaces:
    """Place where each message lands, and place in scratch that those through a port leave.

    `waits` and `gives` are the messages before which the sender waits for a credit, and after
    whose use the receiver gives one.
    """

    landing: dict[Message, Address]
    leaving: dict[Message, Address]
    waits: set[Message]
    gives: set[Message]


def simple_places(
    layout: Layout, scratch: list[Slots], *, in_place: bool, slots: int
) -> SimplePlaces:
    """Choose the places of all messages, and take what they need of each rank's scratch.

    `in_place`: what is only stored lands where it is stored. What goes on through a port lands in
    scratch even so, since a port's put reads there alone. Of each channel `slots` messages at a
    time are in scratch, at either end; 0: each has a place of its own.
    """
    receivers = {message: task for _, task in layout.tasks() for message in task.receives}
    places = SimplePlaces({}, {}, set(), set())
    for (src, dst, link), sent in _connections(layout).items():
        port = link.kind == "port"
        direct = {m for m in sent if in_place and _may_land(receivers[m], layout)}
        copied = [m for m in sent if port and _needs_copy(sent[m], slots)]
        buffered = [m for m in sent if not slots or m not in direct or m in copied]
        most = slots or len(sent)
        slot = {m: k % most for k, m in enumerate(buffered)}
        places.landing.update((m, receivers[m].dst) for m in direct)
        places.landing.update(_take(scratch[dst], slot, [m for m in buffered if m not in direct]))
        places.leaving.update(_take(scratch[src], slot, copied))
        places.waits.update(buffered[most:])
        places.gives.update(buffered[: max(0, len(buffered) - most)])
    for _, task in layout.tasks():
        for message in task.sends:
            if layout.links[message].kind == "port" and message not in places.leaving:
                source = places.landing[task.receives[-1]] if task.receives else task.src
                places.leaving[message] = source
    return places


def _connections(layout: Layout) -> dict[tuple[int, int, Link], dict[Message, Task]]:
    """Return the messages that each channel carries, in order, with the tasks that send them."""
    out: dict[tuple[int, int, Link], dict[Message, Task]] = defaultdict(dict)
    for _, task in layout.tasks():
        for message in (message for message in task.sends if not message.source):
            out[message.src, message.dst, layout.links[message]][message] = task
    return out


def _may_land(task: Task, layout: Layout) -> bool:
    """Return whether what `task` receives may land where it stores it: no port puts it on."""
    forwards = any(layout.links[message].kind == "port" for message in task.sends)
    return task.op in _STORES and not forwards


def _needs_copy(task: Task, slots: int) -> bool:
    """Return whether what `task` sends through a port needs a place in scratch for that.

    What it received leaves from where it landed; but a slot is given back when the task ends,
    before a port has read it.
    """
    return bool(slots) if task.receives else task.src.buffer != "s"


def _take(
    scratch: Slots, slot: dict[Message, int], messages: list[Message]
) -> dict[Message, Address]:
    """Return the place of each message, one for all of a slot."""
    widths: dict[int, int] = {}
    for message in messages:
        widths[slot[message]] = max(widths.get(slot[message], 0), message.count)
    places = {number: scratch.take(width) for number, width in widths.items()}
    return {message: places[slot[message]] for message in messages}


def write_simple(
    part: Part, task: Task, writer: BlockWriter, layout: Layout, places: SimplePlaces
) -> None:
    """Write the operations of `task`, one of `part`."""
    pulled = [Remote(m.src, *m.source, "memory") for m in task.receives if m.source]
    if any(message.source for message in task.sends):
        return
    put = [message for message in task.receives if not message.source]
    full = [m for m in task.sends if m in places.waits]
    links = [(layout.links[m].kind, layout.links[m].receiving) for m in put]
    writer.wait([*links, *((layout.links[m].kind, layout.links[m].sending) for m in full)])
    slots = [places.landing[message] for message in put]
    done = [link for m, link in zip(put, links, strict=True) if m in places.gives]
    if task.op == "rcs" and slots == [task.dst]:
        writer.release()  # it has landed: others need not wait until it is sent on
    if not task.sends:
        if pulled:
            writer.move("rre", [task.src], [task.dst], task.count, pulled=pulled)
        else:
            _keep(task, writer, slots)
        writer.signal(done)
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
        writer.signal(done)
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
    writer.signal([(link.kind, link.sending), *done])


def _prepare(task: Task, writer: BlockWriter, slots: list[Address], source: Address) -> None:
    """Have in scratch what a port puts."""
    if task.op in ("rrs", "rrcs"):
        writer.move("re", [task.src, *task.sources, *slots], [source], task.count)
    elif source not in (*slots, task.src):
        writer.move("copy", slots or [task.src], [source], task.count)


def _keep(task: Task, writer: BlockWriter, slots: list[Address]) -> None:
    """Write what `task` does within its rank."""
    if task.op == "cpy":
        writer.move("copy", [task.src], [task.dst], task.count)
    elif task.op in ("re", "rrc"):
        writer.move("re", [task.src, *task.sources, *slots], [task.dst], task.count)
    elif task.op == "r" and slots[0] != task.dst:
        writer.move("copy", slots, [task.dst], task.count)
