"""Thread blocks, steps and dependencies of one rank, from events with times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuccl.synth.lowering.fusion import Connection, Fusion
from tuccl.synth.lowering.order import NONE, Order, recv_event, send_event
from tuccl.synth.model.schedule import Address, Schedule, Transfer


@dataclass
class DraftStep:
    """A step before numbering.

    `waits` holds (block, index) of drafts of other thread blocks of the rank; `events` is what the
    draft does of the schedule.
    """

    op: str
    src: Address
    dst: Address
    count: int
    events: tuple[int, ...]
    waits: tuple[tuple[int, int], ...] = ()
    publishes: bool = False


@dataclass
class Block:
    """A thread block in the making; `recv` and `send` are its connections."""

    recv: Connection | None
    send: Connection | None
    drafts: list[DraftStep] = field(default_factory=list)

    @property
    def channel(self) -> int:
        """Return the channel of the block's connections."""
        connection = self.recv or self.send
        return connection[0] if connection else 0


def blocks_of_ranks(
    schedule: Schedule, precedence: Order, fusion: Fusion, *, by_peer: bool = False
) -> list[list[Block]]:
    """Return the thread blocks of every rank, with fused steps and dependencies.

    Each connection is in exactly one thread block. `by_peer` puts a rank's send to and receive
    from one peer together, which needs fewer thread blocks but has them take turns.
    """
    builder = _Builder(schedule, precedence, fusion, by_peer)
    return builder.build()


class _Builder:
    def __init__(
        self, schedule: Schedule, precedence: Order, fusion: Fusion, by_peer: bool
    ) -> None:
        self.schedule = schedule
        self.precedence = precedence
        self.fusion = fusion
        self.by_peer = by_peer
        self.received = {sent: received for received, sent in fusion.forward.items()}
        self.blocks: list[list[Block]] = [[] for _ in range(schedule.collective.ranks)]
        self.by_recv: dict[Connection, int] = {}
        self.by_send: dict[Connection, int] = {}
        self.location: dict[int, tuple[int, int]] = {}  # event -> block, index

    def build(self) -> list[list[Block]]:
        self.open_blocks()
        for rank, timed in enumerate(self.timed_drafts()):
            timed.sort(key=lambda entry: (entry[0], entry[1].events))
            spare: dict[int, int] = {}
            for _, draft in timed:
                self.append(rank, draft, spare)
            _Dependencies(self.blocks[rank], self.precedence, self.location).run(
                [draft for _, draft in timed]
            )
            for block in self.blocks[rank]:
                _wait_at_first(block.drafts)
        return self.blocks

    def open_blocks(self) -> None:
        """Open a block for each connection, shared where the fusion or `by_peer` says so."""
        connections = {
            (t.channel, t.src, t.dst): None for t in self.schedule.transfers if not t.local
        }
        partner = dict(self.fusion.partner)
        taken = set(partner.values())
        for connection in (
            connections
            if self.by_peer
            else connections.keys() & self.schedule.hints.shared_threadblocks
        ):
            back = (connection[0], connection[2], connection[1])
            if connection not in partner and back not in taken and back in connections:
                partner[connection] = back
        for connection in connections:
            rank = connection[2]
            self.by_recv[connection] = len(self.blocks[rank])
            if connection in partner:
                self.by_send[partner[connection]] = len(self.blocks[rank])
            self.blocks[rank].append(Block(connection, partner.get(connection)))
        for connection in connections:
            if connection not in self.by_send:
                self.by_send[connection] = len(self.blocks[connection[1]])
                self.blocks[connection[1]].append(Block(None, connection))

    def timed_drafts(self) -> list[list[tuple[float, DraftStep]]]:
        timed: list[list[tuple[float, DraftStep]]] = [[] for _ in self.blocks]
        for number, transfer in enumerate(self.schedule.transfers):
            send, recv = send_event(number), recv_event(number)
            key = self.fusion.key
            if transfer.local:
                for draft in _local_drafts(transfer, recv):
                    timed[transfer.dst].append((key[recv], draft))
                continue
            if number not in self.received:
                draft = DraftStep("s", transfer.src_at, Address("o", -1), transfer.count, (send,))
                timed[transfer.src].append((key[send], draft))
            timed[transfer.dst].append((key[recv], self.receive(number, transfer)))
        return timed

    def receive(self, number: int, transfer: Transfer) -> DraftStep:
        """Return the step that receives `transfer`, and sends it on where that is planned."""
        recv = recv_event(number)
        onward = self.fusion.forward.get(number)
        events = (recv,) if onward is None else (recv, send_event(onward))
        operand = transfer.operand_at
        if operand is None:
            op = "r" if onward is None else "rcs"
            return DraftStep(op, Address("i", -1), transfer.dst_at, transfer.count, events)
        if onward is None:
            return DraftStep("rrc", operand, transfer.dst_at, transfer.count, events)
        if self.precedence.readers[recv] <= set(events) and recv not in self.precedence.results:
            return DraftStep("rrs", operand, Address("o", -1), transfer.count, events)
        return DraftStep("rrcs", operand, transfer.dst_at, transfer.count, events)

    def append(self, rank: int, draft: DraftStep, spare: dict[int, int]) -> None:
        """Put `draft` at the end of its thread block."""
        block = self.block_of(rank, draft, spare)
        for event in draft.events:
            self.location[event] = (block, len(self.blocks[rank][block].drafts))
        self.blocks[rank][block].drafts.append(draft)

    def block_of(self, rank: int, draft: DraftStep, spare: dict[int, int]) -> int:
        event = draft.events[0]
        transfer = self.schedule.transfers[event // 2]
        connection = (transfer.channel, transfer.src, transfer.dst)
        if not transfer.local:
            return self.by_recv[connection] if event % 2 else self.by_send[connection]
        if event in self.location:  # the second step of an addition to a copy
            return self.location[event][0]
        if before := self.precedence.before[event]:
            near = self.location[self.nearest(transfer, before)][0]
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
        last = blocks[near].drafts[-1]
        if last.op != "re" or last.dst == local.dst_at:
            return near
        of_channel = [b for b, block in enumerate(blocks) if block.channel == blocks[near].channel]
        unused = [b for b in of_channel if _has_only_sent(blocks[b])]
        if unused or not self.schedule.hints.sends_first:
            return unused[0] if unused else near
        unused = [b for b in of_channel if all(draft.op != "re" for draft in blocks[b].drafts)]
        if not unused:
            blocks.append(Block(None, None))
        return unused[0] if unused else len(blocks) - 1

    def nearest(self, local: Transfer, before: set[int]) -> int:
        """Return the event in whose thread block a local step waits least.

        That is the local step that it goes on from, so that the runtime joins the two; else what
        wrote its source, so that sums of different sources run side by side.
        """
        writers = [earlier for earlier in before if earlier % 2]
        for near in (_goes_before, _writes_source):
            if joined_writers := [
                w for w in writers if near(self.schedule.transfers[w // 2], local)
            ]:
                return max(joined_writers)
        return max(writers or before)


def _has_only_sent(block: Block) -> bool:
    sent = bool(block.drafts) and all(draft.op == "s" for draft in block.drafts)
    return sent and block.recv is None


def _goes_before(transfer: Transfer, local: Transfer) -> bool:
    """Return whether `transfer` is a local step on what `local` adds to."""
    same = (transfer.dst_at, transfer.count) == (local.dst_at, local.count)
    return transfer.local and same


def _writes_source(transfer: Transfer, local: Transfer) -> bool:
    """Return whether `transfer` writes some of what `local` reads."""
    (buffer, offset), (source, start) = transfer.dst_at, local.src_at
    overlap = offset < start + local.count and start < offset + transfer.count
    return buffer == source and overlap


def _local_drafts(transfer: Transfer, event: int) -> Iterator[DraftStep]:
    operand = transfer.operand_at
    if operand is None:
        yield DraftStep("cpy", transfer.src_at, transfer.dst_at, transfer.count, (event,))
        return
    if operand != transfer.dst_at:  # `re` only adds to what it writes
        yield DraftStep("cpy", operand, transfer.dst_at, transfer.count, (event,))
    yield DraftStep("re", transfer.src_at, transfer.dst_at, transfer.count, (event,))


def _wait_at_first(drafts: list[DraftStep]) -> None:
    """Have a chain of additions to one place wait for all its sources at its first.

    The runtime then makes one primitive of them. Nobody waits for one in the
    midst of a chain, so nobody waits longer for this but the chain itself.
    """
    first = 0
    for k in range(1, len(drafts) + 1):
        if k < len(drafts) and _goes_on(drafts[k - 1], drafts[k]):
            continue
        chain, first = drafts[first:k], k
        if len(chain) > 1:
            newest: dict[int, int] = {}
            for block, at in (wait for draft in chain for wait in draft.waits):
                newest[block] = max(at, newest.get(block, NONE))
            for draft in chain:
                draft.waits = ()
            chain[0].waits = tuple(sorted(newest.items()))


def _goes_on(before: DraftStep, draft: DraftStep) -> bool:
    """Return whether `draft` adds to what the draft before it did, which nobody waits for."""
    return (
        before.op == draft.op == "re"
        and not before.publishes
        and (before.dst, before.count, before.src.buffer)
        == (draft.dst, draft.count, draft.src.buffer)
    )


class _Dependencies:
    """Finds for each draft of a rank the fewest drafts of other thread blocks to wait for."""

    def __init__(
        self, blocks: list[Block], precedence: Order, location: dict[int, tuple[int, int]]
    ) -> None:
        self.blocks = blocks
        self.precedence = precedence
        self.location = location
        # Newest draft of each other block that is surely done, after each draft so far.
        self.done: dict[tuple[int, int], dict[int, int]] = {}

    def run(self, drafts: list[DraftStep]) -> None:
        """Set `waits` and `publishes` of `drafts`, given in an order that respects precedence."""
        location = {
            id(draft): (b, k)
            for b, blk in enumerate(self.blocks)
            for k, draft in enumerate(blk.drafts)
        }
        for draft in drafts:
            block, index = location[id(draft)]
            done = self.done[block, index - 1] if index else {}
            required = self.required(draft, block)
            waits, done = self.choose(required, done)
            self.done[block, index] = done
            draft.waits = tuple(sorted(waits))
            for other, at in waits:
                self.blocks[other].drafts[at].publishes = True

    def required(self, draft: DraftStep, block: int) -> dict[int, int]:
        """Return the newest draft of each other block that `draft` needs done."""
        newest: dict[int, int] = {}
        for event in draft.events:
            for earlier in self.precedence.before[event]:
                other, at = self.location[earlier]
                if other != block:
                    newest[other] = max(at, newest.get(other, NONE))
        return newest

    def choose(
        self, required: dict[int, int], done: dict[int, int]
    ) -> tuple[list[tuple[int, int]], dict[int, int]]:
        """Return the waits that nothing else implies, and the newest drafts done after them."""
        open_waits = {b: at for b, at in required.items() if done.get(b, NONE) < at}
        if not open_waits:
            return [], done
        implied: dict[int, int] = defaultdict(lambda: NONE)
        for b, at in open_waits.items():
            for other, newest in self.done[b, at].items():
                implied[other] = max(implied[other], newest)
        waits = [(b, at) for b, at in open_waits.items() if implied[b] < at]
        after = dict(done)
        for b, at in [*implied.items(), *open_waits.items()]:
            after[b] = max(after.get(b, NONE), at)
        return waits, after
