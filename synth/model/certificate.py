"""Proof that a schedule, run one transfer after another, computes its collective."""

from __future__ import annotations

from tuccl.synth.model.schedule import Address, Schedule, Transfer

# What a chunk of memory holds: a chunk number and the ranks whose contributions are in it, one bit
# each. A rank counted twice cannot be represented and is a fault at once.
_Value = tuple[int, int]
_Cell = tuple[int, str, int]


def verify_schedule(schedule: Schedule, in_place: bool = False) -> str | None:
    """Return what is wrong with `schedule` out of place (or in place), None if nothing is.

    Notes:
        Contributions are followed as sets: every output must end with the right chunk, reduced
        over every rank exactly once (or owned by the rank that it came from).
    """
    memory = _Memory(schedule, in_place)
    for number, transfer in enumerate(schedule.transfers):
        if (wrong := memory.run(transfer)) is not None:
            return f"transfer {number} ({transfer.src} to {transfer.dst}): {wrong}"
    return memory.unfinished()


class _Memory:
    """The symbolic memory of all ranks while transfers run."""

    def __init__(self, schedule: Schedule, in_place: bool) -> None:
        """Fill the inputs of every rank of `schedule`."""
        self.schedule = schedule
        self.collective = schedule.collective
        self.in_place = in_place
        self.cells: dict[_Cell, _Value] = {}
        for rank in range(self.collective.ranks):
            for offset, chunk in self.collective.inputs(rank, schedule.chunks_per_rank):
                self.cells[self.cell(rank, Address("i", offset))] = (chunk, 1 << rank)

    def cell(self, rank: int, at: Address) -> _Cell:
        """Return the one name of a chunk of memory, aliased where the call is in place."""
        if not self.in_place:
            return rank, at.buffer, at.offset
        buffer, offset = self.collective.memory_in_place(
            rank, at.buffer, at.offset, self.schedule.chunks_per_rank
        )
        return rank, buffer, offset

    def run(self, transfer: Transfer) -> str | None:
        """Run `transfer`; return what was wrong with it."""
        values: list[_Value] = []
        for k in range(transfer.count):
            value = self.cells.get(self.cell(transfer.src, transfer.src_at.shifted(k)))
            if value is None:
                return f"reads {transfer.src_at.shifted(k)}, which nothing was written to"
            if (operand := transfer.operand_at) is not None:
                operand_value = self.cells.get(self.cell(transfer.dst, operand.shifted(k)))
                if (
                    operand_value is None
                    or operand_value[0] != value[0]
                    or operand_value[1] & value[1]
                ):
                    return f"adds {value} to {operand_value} (chunk, ranks as bits)"
                value = (value[0], value[1] | operand_value[1])
            values.append(value)
        for k, value in enumerate(values):
            self.cells[self.cell(transfer.dst, transfer.dst_at.shifted(k))] = value
        return None

    def unfinished(self) -> str | None:
        """Return which output is not what the collective defines."""
        everyone = (1 << self.collective.ranks) - 1
        for rank in range(self.collective.ranks):
            for offset, chunk in self.collective.outputs(rank, self.schedule.chunks_per_rank):
                value = self.cells.get(self.cell(rank, Address("o", offset)))
                right = value is not None and value[0] == chunk
                if not right or (self.collective.reducing and value != (chunk, everyone)):
                    return f"rank {rank} ends with {value} in output {offset}, not chunk {chunk}"
        return None
