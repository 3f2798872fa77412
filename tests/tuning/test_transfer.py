"""Points of one table as first points elsewhere."""

from pathlib import Path

from tests.tuning.conftest import Stand, small_space
from tuccl.runtime import Candidate, load_table
from tuccl.runtime.table.entry import KnobValues
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning import Point, ScheduleChoice, TuneOptions, tune
from tuccl.tuning.transfer import TablePoint, nearest_points, table_points


def point(method: str, channels: int, chunks: int = 1) -> Point:
    return Point(ScheduleChoice("elsewhere", method, chunks), "LL", channels, 512, 1 << 19)


def test_the_nearest_come_first_and_are_legal() -> None:
    space = small_space()
    points = [
        TablePoint("allreduce", 1024.0, point("ring", 1)),
        TablePoint("allgather", 65536.0, point("ring", 2)),
        TablePoint("allgather", 2048.0, point("ring", 4)),
        TablePoint("allgather", 2048.0, point("nosuch", 4)),
        TablePoint("allgather", 1024.0, point("allpairs", 16)),
    ]
    near = nearest_points(points, Collective("allgather", 8), 8 * 1024, space, 9)
    assert all(p in space for p in near)
    assert [p.choice.method for p in near] == ["allpairs", "ring", "ring", "ring"]
    assert [p.channels for p in near] == [8, 4, 2, 1]  # allpairs has at most 8 here
    assert nearest_points(points, Collective("allgather", 8), 8 * 1024, space, 2) == near[:2]


def test_a_table_has_the_points_that_won(topology: Topology, tmp_path: Path) -> None:
    out = tmp_path / "table"
    tune(Stand(topology), topology, ["allgather"], [1 << 18], out, TuneOptions(budget=30))
    table = load_table(out).lookup
    [first, *_] = table.entries[0].candidates
    assert isinstance(first, Candidate) and isinstance(first.knobs, KnobValues)
    known = table_points(table)
    assert known[0].collective == "allgather"
    assert known[0].bytes_per_rank == (1 << 18) / topology.ranks
    assert known[0].point.choice == ScheduleChoice(
        first.sketch, first.method, first.chunks_per_rank
    )
    assert known[0].point.knobs == first.knobs.knobs
    assert len(known) == sum(not c.is_default for c in table.candidates)
