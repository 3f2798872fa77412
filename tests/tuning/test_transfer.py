"""Points of one table as first points elsewhere."""

from pathlib import Path

from tests.tuning.conftest import Stand, small_space
from tuccl.program import Knobs
from tuccl.runtime import Candidate, Entry, LookupTable, default_candidate, load_table
from tuccl.runtime.table.entry import KnobValues
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.transfer import nearest_points

TOP = 1 << 40


def candidate(method: str, channels: int) -> Candidate:
    return Candidate(
        name=f"{method}-{channels}",
        on="sim",
        program=f"algorithms/{method}.xml",
        sha256="0" * 64,
        nchunks=1,
        sketch="elsewhere",
        method=method,
        chunks_per_rank=1,
        knobs=KnobValues.of(Knobs("LL", channels)),
    )


def entry(collective: str, low: int, high: int, tuned: int, *candidates: Candidate) -> Entry:
    """An entry tuned at ``tuned`` bytes."""
    return Entry(
        collective=collective,  # type: ignore[arg-type]
        min_bytes=low,
        max_bytes=high,
        candidates=(*candidates, default_candidate("sim", notes=(f"tuned at {tuned} bytes",))),
        reduction_class="plain" if collective == "allreduce" else "none",
    )


def test_the_nearest_come_first_and_are_legal() -> None:
    """The call has 1 KiB a rank."""
    space, call = small_space(), Collective("allgather", 8)
    few = entry("allgather", 0, 6000, 4 * 1024, candidate("allpairs", 16))
    some = entry("allgather", 6000, 20000, 4 * 2048, candidate("nosuch", 4), candidate("ring", 4))
    many = entry("allgather", 20000, TOP, 4 * 65536, candidate("ring", 2))
    other = entry("allreduce", 0, TOP, 4 * 1024, candidate("ring", 1))
    table = LookupTable(
        name="t", signature="0" * 16, ranks=4, entries=(few, some, many, other), dialect="rccl"
    )
    near = nearest_points(table, call, 8 * 1024, space, 9)
    assert all(p in space for p in near)
    assert [p.choice.method for p in near] == ["allpairs", "ring", "ring", "ring"]
    assert [p.channels for p in near] == [8, 4, 2, 1]  # allpairs has at most 8 here
    assert nearest_points(table, call, 8 * 1024, space, 2) == near[:2]


def test_a_search_begins_with_the_points_of_a_table(topology: Topology, tmp_path: Path) -> None:
    """One evaluation is enough to find what a long search found."""
    size, stand = [1 << 18], Stand(topology)
    tune(
        topology,
        ["allgather"],
        size,
        lambda _: stand,
        TuneOptions(budget=60),
        path=tmp_path / "table",
    )
    table = load_table(tmp_path / "table").lookup
    again = TuneOptions(budget=8, start=table)
    warm = tune(
        topology,
        ["allgather"],
        size,
        lambda _: stand,
        again,
        path=tmp_path / "warm",
    ).result
    cold = tune(
        topology,
        ["allgather"],
        size,
        lambda _: stand,
        TuneOptions(budget=60),
        path=tmp_path / "cold",
    ).result
    assert [row.best_us for row in warm.tuned] == [row.best_us for row in cold.tuned]
