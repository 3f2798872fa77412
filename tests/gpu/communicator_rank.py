"""A rank of test_communicator.py: every call of a communicator, on the host's memory."""

from __future__ import annotations

import sys
from array import array

from tuccl.errors import InputError, TucclError
from tuccl.runtime import Communicator
from tuccl.runtime.executors.communicator import group

EACH = 480


def at(values: array[int]) -> int:
    """Return where the values lie."""
    return values.buffer_info()[0]


def given(rank: int, count: int) -> array[int]:
    """Return what a rank gives."""
    return array("i", (100 * rank + i % 97 for i in range(count)))


def main(unique_id: str, ranks: int, rank: int, table: str) -> None:
    """Join, make all calls and a group of two, and be refused."""
    whole = EACH * ranks
    every = [given(r, whole) for r in range(ranks)]
    mine, out = every[rank], array("i", [0] * whole)
    total = [sum(column) for column in zip(*every, strict=True)]
    part = slice(rank * EACH, (rank + 1) * EACH)
    with Communicator(bytes.fromhex(unique_id), ranks, rank, table) as comm:
        assert comm.all_reduce(at(mine), at(out), whole, "int32")
        assert out.tolist() == total
        assert comm.all_reduce(at(mine), at(out), whole, "int32", "max")
        assert out == every[-1]
        assert comm.all_gather(at(mine), at(out), EACH, "int32")
        assert out.tolist() == [v for values in every for v in values[:EACH]]
        assert comm.reduce_scatter(at(mine), at(out), EACH, "int32")
        assert out[:EACH].tolist() == total[part]
        assert comm.all_to_all(at(mine), at(out), EACH, "int32")
        assert out.tolist() == [v for values in every for v in values[part]]
        copy = given(rank, whole)
        assert comm.broadcast(at(copy), at(copy), whole, "int32", root=1)
        assert copy == every[1]
        assert comm.reduce(at(mine), at(out), whole, "int32", root=ranks - 1)
        assert rank < ranks - 1 or out.tolist() == total
        with group():
            assert comm.all_reduce(at(mine), at(out), whole, "int32")
            assert comm.all_gather(at(mine), at(copy), EACH, "int32")
        assert out.tolist() == total and copy[:EACH] == every[0][:EACH]
        assert not comm.all_reduce(at(mine), at(out), 1, "int32")  # no whole element a chunk
        comm.check()
        try:
            comm.all_reduce(at(mine), at(out), whole, "float16")  # type: ignore[arg-type]
        except InputError as error:
            assert "datatype 'float16': expected one of int8" in str(error)
        try:
            comm.all_reduce(0, at(out), whole, "int32")
        except TucclError as error:
            assert "a buffer is null" in str(error)
        try:
            comm.broadcast(at(mine), at(out), whole, "int32", root=ranks)
        except TucclError as error:
            assert f"root {ranks}: expected a rank" in str(error)
    print("all is right")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
