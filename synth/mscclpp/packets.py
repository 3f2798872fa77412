"""Tasks under LL: packets in scratch, whose flags say that they are there."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.block_writer import BlockWriter, Remote
from tuccl.synth.mscclpp.layout import Layout, Part, Slots
from tuccl.synth.mscclpp.tasks import Message, Task


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
    """Choose the places of all messages and sums; leave in `scratch` the chunks to request.

    What was in `scratch` before are the program's own chunks.
    """
    packets = [Slots(0) for _ in scratch]
    landing: dict[Message, Address] = {}
    leaving: dict[Message, Address] = {}
    sums: dict[Task, Address] = {}
    for part, task in layout.tasks():
        for message in task.receives:
            if message not in landing:  # several tasks may each take a part
                landing[message] = packets[part.rank].take(message.count)
        ports = [m for m in task.sends if _kind(m, layout) == "port"]
        if ports:
            # What is only handed on leaves from where it landed, all else from one copy.
            only = task.receives if task.op in ("s", "r", "rcs") else ()
            copied = landing[only[0]] if only else packets[part.rank].take(task.count)
            leaving.update(dict.fromkeys(ports, copied))
        if task.op == "rrs":
            sums[task] = scratch[part.rank].take(task.count)
    first_plain = [2 * each.chunks for each in packets]
    for rank, each in enumerate(scratch):
        # A requested chunk has room for two plain ones.
        each.chunks = packets[rank].chunks + -(-each.chunks // 2)
    return PacketPlaces(landing, leaving, sums, first_plain)


def write_packets(
    part: Part, task: Task, writer: BlockWriter, layout: Layout, places: PacketPlaces
) -> None:
    """Write the operations of `task`, one of `part`."""
    src = places.plain(part.rank, task.src)
    dst = places.plain(part.rank, places.sums.get(task, task.dst))
    plain = [src, *(places.plain(part.rank, at) for at in task.sources)]
    slots = [places.landing[m].shifted(task.parts.get(m, 0)) for m in task.receives]
    near = [m for m in task.sends if _kind(m, layout) == "memory"]
    far = [m for m in task.sends if _kind(m, layout) == "port"]
    packets = [places.leaving[m] for m in far[:1]]
    packets += [places.landing[m].shifted(task.parts[m]) for m in task.sends if m.src == m.dst]
    remote = [_remote(message, layout, places) for message in near]
    count = task.count
    if slots and task.op in ("s", "r", "rcs"):
        if near:  # others wait for it
            writer.move("rppkt", slots, [], count, remote=remote)
        if task.op != "s":
            writer.move("upkt", slots, [dst], count)
    elif slots:
        if len(plain) > 1:
            writer.move("re", plain, [dst], count)
            src = dst
        name = ("recspkt" if near else "recpkt") if packets else ("respkt" if near else "repkt")
        writer.move(name, [src, *slots], [dst, *packets], count, remote=remote)
    elif near:
        writer.move("ppkt", [src], [], count, remote=remote)
    elif far:
        writer.move("cpkt", [src], packets, count)
    elif task.op == "cpy":
        writer.move("copy", [src], [dst], count)
    elif task.op == "re":
        writer.move("re", plain, [dst], count)
    if far:
        remote = [_remote(message, layout, places) for message in far]
        channels = [layout.links[message].sending for message in far]
        source = places.leaving[far[0]]
        writer.move("rppkt", [source], [], count, remote=remote, channels=channels)


def _kind(message: Message, layout: Layout) -> str:
    """Return the type of channel that carries a message, empty within a rank."""
    return layout.links[message].kind if message in layout.links else ""


def _remote(message: Message, layout: Layout, places: PacketPlaces) -> Remote:
    landing = places.landing[message]
    kind = layout.links[message].kind
    return Remote(message.dst, landing.buffer, landing.offset, kind)
