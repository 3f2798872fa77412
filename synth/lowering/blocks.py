"""Thread blocks, steps and dependencies of one rank, from halves with times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuccl.synth.lowering.fusion import Connection, Plan
from tuccl.synth.lowering.order import NONE, Order, recv_half, send_half
from tuccl.synth.model.schedule import Address, Schedule, Transfer

__all__ = ["Block", "Item", "blocks_of_ranks"]


@dataclass
class Item:
    """A step before numbering.

    `waits` holds (block, index) of items of other thread blocks of the rank; `halves` is what the
    item does of the schedule.
    """

    op: str
    src: Address
    dst: Address
    count: int
    halves: tuple[int, ...]
    waits: tuple[tuple[int, int], ...] = ()
    publishes: bool = False


@dataclass
class Block:
    """A thread block in the making; `recv` and `send` are its connections."""

    recv: Connection | None
    send: Connection | None
    items: list[Item] = field(default_factory=list)

    @property
    def channel(self) -> int:
        """Return the channel of the block's connections."""
        connection = self.recv or self.send
        return connection[0] if connection else 0


def blocks_of_ranks(
    schedule: Schedule, precedence: Order, plan: Plan, *, paired: bool = False
) -> list[list[Block]]:
    """Return the thread blocks of every rank, with fused steps and dependencies.

    Each connection is in exactly one thread block. `paired` puts a rank's send to and receive
    from one peer together, which needs fewer thread blocks but has them take turns.
    """
    builder = _Builder(schedule, precedence, plan, paired)
    return builder.build()


class _Builder:
    def __init__(self, schedule: Schedule, precedence: Order, plan: Plan, paired: bool) -> None:
        self.schedule = schedule
        self.precedence = precedence
        self.plan = plan
        self.paired = paired
        self.received = {sent: received for received, sent in plan.forward.items()}
        self.blocks: list[list[Block]] = [[] for _ in range(schedule.collective.ranks)]
        self.by_recv: dict[Connection, int] = {}
        self.by_send: dict[Connection, int] = {}
        self.place: dict[int, tuple[int, int]] = {}  # half -> block, index

    def build(self) -> list[list[Block]]:
        self.open_blocks()
        for rank, timed in enumerate(self.timed_items()):
            timed.sort(key=lambda entry: (entry[0], entry[1].halves))
            spare: dict[int, int] = {}
            for _, item in timed:
                self.append(rank, item, spare)
            _Dependencies(self.blocks[rank], self.precedence, self.place).run(
                [item for _, item in timed]
            )
            for block in self.blocks[rank]:
                _wait_at_first(block.items)
        return self.blocks

    def open_blocks(self) -> None:
        """Open a block for each connection, shared where the plan or `paired` says so."""
        lanes = {(t.channel, t.src, t.dst): None for t in self.schedule.transfers if not t.local}
        partner = dict(self.plan.partner)
        taken = set(partner.values())
        for lane in (
            lanes if self.paired else lanes.keys() & self.schedule.hints.shared_threadblocks
        ):
            back = (lane[0], lane[2], lane[1])
            if lane not in partner and back not in taken and back in lanes:
                partner[lane] = back
        for lane in lanes:
            rank = lane[2]
            self.by_recv[lane] = len(self.blocks[rank])
            if lane in partner:
                self.by_send[partner[lane]] = len(self.blocks[rank])
            self.blocks[rank].append(Block(lane, partner.get(lane)))
        for lane in lanes:
            if lane not in self.by_send:
                self.by_send[lane] = len(self.blocks[lane[1]])
                self.blocks[lane[1]].append(Block(None, lane))

    def timed_items(self) -> list[list[tuple[float, Item]]]:
        timed: list[list[tuple[float, Item]]] = [[] for _ in self.blocks]
        for number, transfer in enumerate(self.schedule.transfers):
            send, recv = send_half(number), recv_half(number)
            key = self.plan.key
            if transfer.local:
                for item in _local_items(transfer, recv):
                    timed[transfer.dst].append((key[recv], item))
                continue
            if number not in self.received:
                item = Item("s", transfer.src_at, Address("o", -1), transfer.count, (send,))
                timed[transfer.src].append((key[send], item))
            timed[transfer.dst].append((key[recv], self.receive(number, transfer)))
        return timed

    def receive(self, number: int, transfer: Transfer) -> Item:
        """Return the step that receives `transfer`, and sends it on where that is planned."""
        recv = recv_half(number)
        onward = self.plan.forward.get(number)
        halves = (recv,) if onward is None else (recv, send_half(onward))
        operand = transfer.operand_at
        if operand is None:
            op = "r" if onward is None else "rcs"
            return Item(op, Address("i", -1), transfer.dst_at, transfer.count, halves)
        if onward is None:
            return Item("rrc", operand, transfer.dst_at, transfer.count, halves)
        if self.precedence.readers[recv] <= set(halves) and recv not in self.precedence.kept:
            return Item("rrs", operand, Address("o", -1), transfer.count, halves)
        return Item("rrcs", operand, transfer.dst_at, transfer.count, halves)

    def append(self, rank: int, item: Item, spare: dict[int, int]) -> None:
        """Put `item` at the end of its thread block."""
        block = self.block_of(rank, item, spare)
        for half in item.halves:
            self.place[half] = (block, len(self.blocks[rank][block].items))
        self.blocks[rank][block].items.append(item)

    def block_of(self, rank: int, item: Item, spare: dict[int, int]) -> int:
        half = item.halves[0]
        transfer = self.schedule.transfers[half // 2]
        lane = (transfer.channel, transfer.src, transfer.dst)
        if not transfer.local:
            return self.by_recv[lane] if half % 2 else self.by_send[lane]
        if half in self.place:  # the second step of an addition to a copy
            return self.place[half][0]
        if before := self.precedence.before[half]:
            near = self.place[self.nearest(transfer, before)][0]
            return self.idle(rank, near, transfer) if transfer.reduce else near
        # What waits for nothing runs beside the rest in a block of its own.
        if transfer.channel not in spare:
            spare[transfer.channel] = len(self.blocks[rank])
            self.blocks[rank].append(Block(None, None))
        return spare[transfer.channel]

    def idle(self, rank: int, near: int, local: Transfer) -> int:
        """Return `near`, or a thread block with nothing to do if `near` adds up another part.

        So parts of a sum run side by side even where they are more than its sources. A block that
        has only sent so far has nothing to do; where blocks send first and then receive, one that
        adds up nothing, or else a new one.
        """
        blocks = self.blocks[rank]
        last = blocks[near].items[-1]
        if last.op != "re" or last.dst == local.dst_at:
            return near
        beside = [b for b, own in enumerate(blocks) if own.channel == blocks[near].channel]
        free = [b for b in beside if _has_only_sent(blocks[b])]
        if free or not self.schedule.hints.sends_first:
            return free[0] if free else near
        free = [b for b in beside if all(item.op != "re" for item in blocks[b].items)]
        if not free:
            blocks.append(Block(None, None))
        return free[0] if free else len(blocks) - 1

    def nearest(self, local: Transfer, before: set[int]) -> int:
        """Return the half in whose thread block a local step waits least.

        That is the local step that it goes on from, so that the runtime joins the two; else what
        wrote its source, so that sums of different sources run side by side.
        """
        writers = [earlier for earlier in before if earlier % 2]
        for near in (_goes_before, _writes_source):
            if found := [w for w in writers if near(self.schedule.transfers[w // 2], local)]:
                return max(found)
        return max(writers or before)


def _has_only_sent(block: Block) -> bool:
    sent = bool(block.items) and all(item.op == "s" for item in block.items)
    return sent and block.recv is None


def _goes_before(transfer: Transfer, local: Transfer) -> bool:
    """Return whether `transfer` is a local step on what `local` adds to."""
    same = (transfer.dst_at, transfer.count) == (local.dst_at, local.count)
    return transfer.local and same


def _writes_source(transfer: Transfer, local: Transfer) -> bool:
    """Return whether `transfer` writes some of what `local` reads."""
    (buffer, offset), (source, start) = transfer.dst_at, local.src_at
    meet = offset < start + local.count and start < offset + transfer.count
    return buffer == source and meet


def _local_items(transfer: Transfer, half: int) -> Iterator[Item]:
    operand = transfer.operand_at
    if operand is None:
        yield Item("cpy", transfer.src_at, transfer.dst_at, transfer.count, (half,))
        return
    if operand != transfer.dst_at:  # `re` only adds to what it writes
        yield Item("cpy", operand, transfer.dst_at, transfer.count, (half,))
    yield Item("re", transfer.src_at, transfer.dst_at, transfer.count, (half,))


def _wait_at_first(items: list[Item]) -> None:
    """Have a chain of additions to one place wait for all its sources at its first.

    The runtime then makes one primitive of them (docs/msccl.md). Nobody waits for one in the
    midst of a chain, so nobody waits longer for this but the chain itself.
    """
    first = 0
    for k in range(1, len(items) + 1):
        if k < len(items) and _goes_on(items[k - 1], items[k]):
            continue
        chain, first = items[first:k], k
        if len(chain) > 1:
            newest: dict[int, int] = {}
            for block, at in (wait for item in chain for wait in item.waits):
                newest[block] = max(at, newest.get(block, NONE))
            for item in chain:
                item.waits = ()
            chain[0].waits = tuple(sorted(newest.items()))


def _goes_on(before: Item, item: Item) -> bool:
    """Return whether `item` adds to what the item before it did, which nobody waits for."""
    return (
        before.op == item.op == "re"
        and not before.publishes
        and (before.dst, before.count, before.src.buffer) == (item.dst, item.count, item.src.buffer)
    )


class _Dependencies:
    """Finds for each item of a rank the fewest items of other thread blocks to wait for."""

    def __init__(
        self, blocks: list[Block], precedence: Order, place: dict[int, tuple[int, int]]
    ) -> None:
        self.blocks = blocks
        self.precedence = precedence
        self.place = place
        # Newest item of each other block that is known done, after each item so far.
        self.known: dict[tuple[int, int], dict[int, int]] = {}
        self.length = [0] * len(blocks)

    def run(self, items: list[Item]) -> None:
        """Set `waits` and `publishes` of `items`, given in an order that respects precedence."""
        where = {
            id(item): (b, k)
            for b, blk in enumerate(self.blocks)
            for k, item in enumerate(blk.items)
        }
        for item in items:
            block, index = where[id(item)]
            known = self.known[block, index - 1] if index else {}
            wanted = self.wanted(item, block)
            chosen, known = self.choose(wanted, known)
            self.known[block, index] = known
            item.waits = tuple(sorted(chosen))
            for other, at in chosen:
                self.blocks[other].items[at].publishes = True

    def wanted(self, item: Item, block: int) -> dict[int, int]:
        """Return the newest item of each other block that `item` needs done."""
        newest: dict[int, int] = {}
        for half in item.halves:
            for earlier in self.precedence.before[half]:
                other, at = self.place[earlier]
                if other != block:
                    newest[other] = max(at, newest.get(other, NONE))
        return newest

    def choose(
        self, wanted: dict[int, int], known: dict[int, int]
    ) -> tuple[list[tuple[int, int]], dict[int, int]]:
        """Return the waits that nothing else implies, and what is known after them."""
        open_waits = {b: at for b, at in wanted.items() if known.get(b, NONE) < at}
        if not open_waits:
            return [], known
        implied: dict[int, int] = defaultdict(lambda: NONE)
        for b, at in open_waits.items():
            for other, done in self.known[b, at].items():
                implied[other] = max(implied[other], done)
        chosen = [(b, at) for b, at in open_waits.items() if implied[b] < at]
        after = dict(known)
        for b, at in [*implied.items(), *open_waits.items()]:
            after[b] = max(after.get(b, NONE), at)
        return chosen, after
