import pytest

from tuccl.errors import InputError
from tuccl.eval import bandwidth_row, columns_text
from tuccl.eval.columns import algbw_gbs, busbw_factor, busbw_gbs
from tuccl.runtime import Timing

# As nccl-tests printed it: all_reduce_perf on 8 ranks (a public run of rccl-tests).
PRINTED = (
    "     8388608       2097152     float     sum      -1    91.10   92.08  161.14      0"
    "    94.94   88.36  154.63      0"
)


def test_a_line_reads_as_nccl_tests_prints_it() -> None:
    row = bandwidth_row("allreduce", 8, 8388608, Timing(91.10, 94.94, (91.10,), "cuda", 0))
    lines = columns_text([row]).splitlines()
    # The printed rates were computed from more digits of the time than were printed.
    assert lines[3].split()[:6] == PRINTED.split()[:6]
    for mine, theirs in zip(lines[3].split()[6:], PRINTED.split()[6:], strict=True):
        assert float(mine) == pytest.approx(float(theirs), abs=0.011)
    assert len(lines[3]) == len(PRINTED)


def test_the_header_stands_over_the_columns() -> None:
    row = bandwidth_row("allgather", 16, 1 << 20, Timing(1e5, 123.45, (1e5,), "sim"))
    header, names, units, line = columns_text([row]).splitlines()
    assert header.startswith("#")
    assert names.split()[1:6] == ["size", "count", "type", "redop", "root"]
    assert names.split().count("busbw") == 2
    assert units.split().count("(us)") == 2
    assert line.split()[1] == str((1 << 20) // 4 // 16)
    assert line.split()[5] == "100000"
    assert line.split().count("N/A") == 2  # nothing was checked, so #wrong is not known


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("allreduce", 2 * 7 / 8), ("broadcast", 1.0), ("reduce", 1.0)]
    + [(c, 7 / 8) for c in ("allgather", "reduce-scatter", "alltoall", "gather", "scatter")],
)
def test_bus_bandwidth_factors(collective: str, factor: float) -> None:
    assert busbw_factor(collective, 8) == factor
    assert busbw_gbs(collective, 8, 1000, 1.0) == factor * algbw_gbs(1000, 1.0) == factor


def test_unknown_collectives_are_refused() -> None:
    with pytest.raises(InputError, match="sendrecv"):
        busbw_factor("sendrecv", 8)


def test_roots_and_operations() -> None:
    timing = Timing(10.0, 10.0, (10.0,), "sim")
    rows = [bandwidth_row(c, 4, 4096, timing, root=2) for c in ("broadcast", "reduce", "alltoall")]
    assert [(r.redop, r.root) for r in rows] == [("none", 2), ("sum", 2), ("none", -1)]
    assert [r.count for r in rows] == [1024, 1024, 256]


def test_a_placement_that_was_not_run_is_not_a_number() -> None:
    row = bandwidth_row("allgather", 4, 4096, Timing(10.0, None, (10.0,), "sim"))
    assert row.busbw_gbs_ip is None
    assert columns_text([row]).splitlines()[3].split()[9:] == ["N/A"] * 4


def test_more_columns_stand_behind_aligned() -> None:
    timing = Timing(10.0, 10.0, (10.0,), "sim")
    rows = [bandwidth_row("allgather", 4, n, timing, "ring") for n in (1024, 4096)]
    extra = [{"vs nccl": "1.50x", "of bound": "7%"}, {"vs nccl": "11.25x"}]
    _, names, _, *lines = columns_text(rows, extra).splitlines()
    assert names.split()[-4:] == ["nccl", "of", "bound", "chosen"]
    assert [line.rindex("ring") for line in lines] == [names.rindex("chosen")] * 2
    assert [line.index("x  ") for line in lines] == [names.index("nccl") + 3] * 2
