"""Tasks under LL: packets in scratch, whose flags say that they are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.block_writer import BlockWriter, Remote
from tuccl.synth.mscclpp.layout import Layout, Part, Slots
from tuccl.synth.mscclpp.tasks import Message, Task

__all__ = ["PacketPlaces", "packet_places", "write_packets"]


@dataclass(frozen=True)
class PacketPlaces:
    """The packets of each message at its receiver, and at its sender where a port puts them.

    `first_plain` is each rank's first chunk of scratch after the packets, which stand at twice
    their index. `sums` says where a task that stores no sum stores it: the handlers always do.
    """

    landing: dict[Message, Address]
    leaving: dict[Message, Address]
    sums: dict[Task, Address]
    first_plain: list[int]

    def plain(self, rank: int, at: Address) -> Address:
        """Return where the program's chunk `at` of a rank is."""
        return at.shifted(self.first_plain[rank]) if at.buffer == "s" else at


def packet_places(layout: Layout, scratch: list[Slots]) -> PacketPlaces:
    """Choose the places of all messages and sums; leave in `scratch` the chunks to ask for.

    What was in `scratch` before are the program's own chunks.
    """
    packets = [Slots(0) for _ in scratch]
    landing: dict[Message, Address] = {}
    leaving: dict[Message, Address] = {}
    sums: dict[Task, Address] = {}
    for part, task in _tasks(layout):
        if task.receives:
            landing[task.receives] = packets[part.rank].take(task.count)
        if task.sends and layout.links[task.sends].kind == "port":
            received = landing[task.receives] if task.receives else None
            copied = received if task.op == "rcs" else None
            leaving[task.sends] = copied or packets[part.rank].take(task.count)
        if task.op == "rrs":
            sums[task] = scratch[part.rank].take(task.count)
    first_plain = [2 * each.chunks for each in packets]
    for rank, each in enumerate(scratch):
        # A chunk to ask for has room for two plain ones.
        each.chunks = packets[rank].chunks + -(-each.chunks // 2)
    return PacketPlaces(landing, leaving, sums, first_plain)


def _tasks(layout: Layout) -> Iterator[tuple[Part, Task]]:
    for parts in layout.parts:
        for part in parts:
            yield from ((part, task) for task in part.tasks)


def write_packets(
    part: Part, task: Task, writer: BlockWriter, layout: Layout, places: PacketPlaces
) -> None:
    """Write the operations of `task`, one of `part`."""
    src = places.plain(part.rank, task.src)
    dst = places.plain(part.rank, places.sums.get(task, task.dst))
    slot = places.landing[task.receives] if task.receives else None
    if task.sends is None:
        _keep(part, task, writer, places)
        return
    link = layout.links[task.sends]
    landing = places.landing[task.sends]
    remote = [Remote(task.sends.dst, landing.buffer, landing.offset, link.kind)]
    if slot and task.op == "rcs":
        writer.move("upkt", [slot], [dst], task.count)
        channels = [link.sending] if link.kind == "port" else []
        writer.move("rppkt", [slot], [], task.count, remote=remote, channels=channels)
    elif link.kind == "memory":
        if slot:
            writer.move("respkt", [src, slot], [dst], task.count, remote=remote)
        else:
            writer.move("ppkt", [src], [], task.count, remote=remote)
    else:
        leaving = places.leaving[task.sends]
        if slot:
            writer.move("recpkt", [src, slot], [dst, leaving], task.count)
        else:
            writer.move("cpkt", [src], [leaving], task.count)
        channels = [link.sending]
        writer.move("rppkt", [leaving], [], task.count, remote=remote, channels=channels)


def _keep(part: Part, task: Task, writer: BlockWriter, places: PacketPlaces) -> None:
    """Write what `task` does within its rank."""
    src, dst = places.plain(part.rank, task.src), places.plain(part.rank, task.dst)
    if task.receives:
        slot = places.landing[task.receives]
        if task.op == "r":
            writer.move("upkt", [slot], [dst], task.count)
        else:
            writer.move("repkt", [src, slot], [dst], task.count)
    elif task.op == "cpy":
        writer.move("copy", [src], [dst], task.count)
    elif task.op == "re":
        sources = [places.plain(part.rank, at) for at in task.sources]
        writer.move("re", [src, *sources], [dst], task.count)
