"""A rank of test_job_communicators.py: splits of the communicator of a job's eight ranks."""

from __future__ import annotations

import sys

import numpy as np

from tuccl.errors import TucclError
from tuccl.runtime import Communicator
from tuccl.runtime.executors.communicator import group

EACH = 48
RANKS = 8


def given(rank: int) -> np.ndarray:
    """Return what a rank of the job gives."""
    return (np.arange(4 * EACH, dtype=np.int32) % 97) + 100 * rank


def at(values: np.ndarray) -> int:
    """Return where the values lie."""
    return int(values.ctypes.data)


def name(comm: Communicator) -> str:
    """Return the name of the table that a communicator uses."""
    return comm.table.name if comm.table else "none"


def part(comm: Communicator, color: int | None, key: int) -> Communicator:
    """Return a split's communicator, which is there."""
    out = comm.split(color, key)
    assert out is not None
    return out


def check_both_at_once(tp: Communicator, dp: Communicator, rank: int) -> None:
    """Check calls of two splits in one group, against numpy."""
    members = range(rank // 4 * 4, rank // 4 * 4 + 4)
    sums, gathered = np.zeros(4 * EACH, np.int32), np.zeros((2, EACH), np.int32)
    for _ in range(3):
        with group():
            assert tp.all_reduce(at(given(rank)), at(sums), sums.size, "int32")
            assert dp.all_gather(at(given(rank)), at(gathered), EACH, "int32")
        assert (sums == sum(given(r) for r in members)).all()
        assert (gathered == [given(r)[:EACH] for r in (rank % 4, rank % 4 + 4)]).all()


def main(unique_id: str, rank: int, job: str) -> None:
    """Split the world in several ways, and be refused."""
    mine, out = given(rank), np.zeros(4 * EACH, np.int32)
    with Communicator(bytes.fromhex(unique_id), RANKS, rank, job) as world:
        assert world.table is None
        assert not world.all_reduce(at(mine), at(out), out.size, "int32")
        tp, dp = part(world, rank // 4, rank), part(world, rank % 4, rank)
        assert (name(tp), name(dp)) == ("tp", "dp")
        check_both_at_once(tp, dp, rank)

        # Another order is another group of the job; a split of it finds the members again.
        turned = part(world, rank // 4, -rank)
        assert name(turned) == "none" and not turned.all_reduce(at(mine), at(out), EACH, "int32")
        back = part(turned, 0, rank)
        assert name(back) == "tp"
        assert back.all_gather(at(mine), at(out), EACH, "int32")
        own = [given(r)[:EACH] for r in range(rank // 4 * 4, rank // 4 * 4 + 4)]
        assert (out == np.concatenate(own)).all()
        ordered = part(turned, 0, 0)  # equal keys: the order there
        assert name(ordered) == "none" and name(part(ordered, 0, rank)) == "tp"

        wrong = part(world, rank // 2, rank)  # as many ranks as a dp group
        assert name(wrong) == "none" and not wrong.all_reduce(at(mine), at(out), 2, "int32")
        half = world.split(0 if rank < 4 else None, rank)
        assert (half is None) == (rank >= 4)
        assert half is None or name(half) == "tp"

        try:
            world.split(-3 if rank == 5 else 0)
        except TucclError as error:
            assert "color -3: expected 0 or more, or -1 for none" in str(error)
            assert rank == 5 or "another rank: " in str(error)
        else:
            raise AssertionError("one rank's color is none")
        check_both_at_once(tp, part(world, rank % 4, rank), rank)
    print("all is right")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
