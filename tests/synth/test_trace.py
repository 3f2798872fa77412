"""The trace: where chunks are, runs, sums that two ranks exchange, what is left to copy."""

from __future__ import annotations

import pytest

from tuccl.errors import InputError
from tuccl.synth import Collective
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.schedule import Address
from tuccl.synth.model.trace import Trace


def test_runs_are_cut_where_either_end_is_not_contiguous() -> None:
    trace = Trace(Collective("alltoall", 3), 2, "t")
    trace.send(0 * 2, 0, 1, count=6)  # rank 0's whole input to rank 1
    for chunk, src, dst in ((4, 1, 2), (6, 1, 0), (10, 1, 2), (12, 2, 0), (14, 2, 1)):
        trace.send(chunk, src, dst, count=2)
    schedule = trace.schedule()
    assert verify_schedule(schedule) is None
    sizes = [(t.src_at, t.dst_at, t.count) for t in schedule.transfers[:3]]
    assert sizes == [
        (Address("i", 0), Address("s", 0), 2),
        (Address("i", 2), Address("o", 0), 2),
        (Address("i", 4), Address("s", 2), 2),
    ]


def test_received_chunks_are_sent_on_from_where_they_are() -> None:
    trace = Trace(Collective("scatter", 3), 1, "t")
    trace.send(1, 0, 2)
    assert trace.address(1, 2) == Address("s", 0)
    trace.send(1, 2, 1)
    assert trace.address(1, 1) == Address("o", 0)
    trace.send(2, 0, 2)
    assert verify_schedule(trace.schedule()) is None


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_exchanged_sums_are_right_in_place_too(rounds: int) -> None:
    ranks = 1 << rounds
    trace = Trace(Collective("allreduce", ranks), 1, "t")
    for k in range(rounds):
        for rank in range(ranks):
            if rank < rank ^ (1 << k):
                trace.exchange(0, rank, rank ^ (1 << k), count=ranks, last=k == rounds - 1)
    schedule = trace.schedule()
    assert verify_schedule(schedule) is None
    assert verify_schedule(schedule, in_place=True) is None
    assert max(schedule.scratch) <= 2 * ranks


def test_sending_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="rank 1 does not have chunk 0"):
        Trace(Collective("allgather", 3), 1, "t").send(0, 1, 2)


def test_an_unfinished_trace_cannot_be_closed() -> None:
    with pytest.raises(ValueError, match="does not have chunk 1"):
        Trace(Collective("allgather", 2), 1, "t").schedule()


@pytest.mark.parametrize(
    ("name", "ranks", "root"), [("gossip", 2, 0), ("reduce", 1, 0), ("reduce", 4, 4)]
)
def test_impossible_collectives_are_refused(name: str, ranks: int, root: int) -> None:
    with pytest.raises(InputError, match="expected"):
        Collective(name, ranks, root)
