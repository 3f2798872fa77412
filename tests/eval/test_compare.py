from pathlib import Path

import msgspec
import pytest

from tests.eval.conftest import comparison
from tuccl.errors import InputError
from tuccl.eval import compare, html_report, text_report
from tuccl.eval.columns import bandwidth_row, busbw_factor
from tuccl.eval.comparison import comparison_row
from tuccl.program import Knobs, Program
from tuccl.runtime import (
    BASELINES,
    MSCCL_LOOP,
    ConfiguredProgram,
    Executor,
    SimExecutor,
    StepLoop,
    Timing,
    load_table,
    program_file,
    save_table,
    select,
    time_baseline,
)
from tuccl.runtime.table.entry import default_candidate
from tuccl.synth import Collective, bound
from tuccl.topology import Topology, load_profile
from tuccl.tuning import TuneOptions, tune

SIZES = [1 << 14, 1 << 20]


class Slowed(Executor):
    """The simulator, with every program but NCCL's slowed down."""

    name = "sim"
    label = "simulated in a test"
    simulated = deterministic = True
    full_effort = 1

    def __init__(self, topology: Topology, factor: float) -> None:
        self._inner = SimExecutor(topology)
        self._factor = factor
        self.ranks = self._inner.ranks

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        timing = self._inner.time(program, knobs, nbytes, root=root, loop=loop)
        f = 1.0 if program.name.startswith("nccl") else self._factor
        within = None if timing.time_us_ip is None else timing.time_us_ip * f
        return Timing(timing.us * f, within, (timing.us * f,) * repeats, "sim")


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load_profile("v100x4")


@pytest.fixture(scope="module")
def table(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables") / "table"
    tune(topology, ["allgather", "allreduce"], SIZES, "sim", TuneOptions(budget=12), path=out)
    return out


def test_rows_are_what_the_executor_says(table: Path, topology: Topology) -> None:
    executor = SimExecutor(topology)
    comparison = compare(table, lambda _: executor)
    assert len(comparison.rows) == 2 * len(SIZES) * len(BASELINES)
    assert comparison.label == executor.label
    stored = load_table(table)
    for row in comparison.rows:
        kind = next(b for b in BASELINES if b == row.baseline)
        timing = time_baseline(executor, topology, kind, row.collective, row.size).timing
        assert row.baseline_us == timing.time_us
        assert row.speedup == row.baseline_us / row.tuned_us
        limit = bound(topology, Collective(row.collective, 4)).time_us(row.size)
        assert row.fraction_of_bound == pytest.approx(limit / row.tuned_us)
        assert row.fraction_of_bound <= 1.0
        candidate = select(stored.lookup, row.collective, row.size).candidate
        program = stored.program(candidate)
        if program is not None and candidate.knobs is not None:
            again = executor.time(program, candidate.knobs.knobs, row.size)
            assert row.tuned_us == again.time_us
        assert candidate.stats is not None and row.tuned_us == candidate.stats.median_us


def test_a_tuned_table_does_not_regress(table: Path, topology: Topology) -> None:
    comparison = compare(table, "sim")
    assert comparison.regressions == 0
    ours = [row for row in comparison.rows if row.baseline != "msccl-best"]
    assert min(row.speedup for row in ours) >= 0.999  # as fast with fewer SMs comes first
    line = "no regression: never over 1% slower than a default (nccl, msccl-default"
    assert line in text_report(comparison)


def test_slower_than_the_default_is_a_regression(table: Path, topology: Topology) -> None:
    comparison = compare(table, lambda _: Slowed(topology, 50.0), baselines=["nccl"])
    of_nccl = ("default", "nccl-")  # which are not slowed
    picked = [row for row in comparison.rows if not row.chosen.startswith(of_nccl)]
    assert picked
    assert all(row.regression and row.speedup < 1 for row in picked)
    assert comparison.regressions == len(picked)
    assert f"{len(picked)} regressions" in text_report(comparison)


class SlowedInPlace(Slowed):
    """Slowed in place only."""

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        timing = self._inner.time(program, knobs, nbytes, root=root, loop=loop)
        slowed = super().time(program, knobs, nbytes, root=root, loop=loop)
        return Timing(timing.time_us, slowed.time_us_ip, timing.samples_us, "sim")


def test_slower_in_one_placement_only_is_a_regression_too(table: Path, topology: Topology) -> None:
    comparison = compare(table, lambda _: SlowedInPlace(topology, 50.0), baselines=["nccl"])
    slower = [row for row in comparison.rows if (row.speedup_ip or 1.0) < 0.99]
    assert slower
    assert all(row.regression and row.speedup >= 1.0 for row in slower)
    assert comparison.regressions == len(slower)


def test_an_entry_for_one_placement_leaves_the_other_to_the_default(
    topology: Topology, tmp_path: Path
) -> None:
    executor = SimExecutor(topology)
    tune(
        topology,
        ["alltoall"],
        SIZES,
        lambda _: executor,
        TuneOptions(budget=12),
        path=tmp_path / "table",
    )
    stored = load_table(tmp_path / "table")
    whole = compare(tmp_path / "table", lambda _: executor, baselines=["nccl"])
    assert {row.collective for row in whole.rows} == {"alltoall"}
    assert whole.regressions == 0
    inside = tuple(
        msgspec.structs.replace(e, placement="in-place")
        for e in stored.lookup.entries
        if e.takes(in_place=True)
    )
    files = [
        program_file(p) for c in stored.lookup.candidates if (p := stored.program(c)) is not None
    ]
    only = tmp_path / "only"
    save_table(msgspec.structs.replace(stored.lookup, entries=inside), only, topology, files)
    for row in compare(only, lambda _: executor, baselines=["nccl"]).rows:
        assert row.chosen == f"default ({row.baseline_chosen})"
        assert row.speedup == 1.0


def test_each_root_is_compared_at_its_own_sizes(topology: Topology, tmp_path: Path) -> None:
    executor = SimExecutor(topology)
    parts = []
    for root, size in ((0, SIZES[0]), (2, SIZES[1])):
        out = tmp_path / f"root{root}"
        tune(
            topology,
            ["broadcast"],
            [size],
            lambda _: executor,
            TuneOptions(budget=6, root=root),
            path=out,
        )
        parts.append(load_table(out))
    entries = tuple(e for part in parts for e in part.lookup.entries)
    files = [
        program_file(p, root=e.root or 0)
        for part in parts
        for e in part.lookup.entries
        for c in e.candidates
        if (p := part.program(c)) is not None
    ]
    both = tmp_path / "both"
    save_table(msgspec.structs.replace(parts[0].lookup, entries=entries), both, topology, files)
    comparison = compare(both, lambda _: executor, baselines=["nccl"])
    assert [(r.root, r.size) for r in comparison.rows] == [(0, SIZES[0]), (2, SIZES[1])]
    assert comparison.calls == (("broadcast", 0), ("broadcast", 2))


def test_the_runtimes_default_is_shown_as_itself(
    table: Path, topology: Topology, tmp_path: Path
) -> None:
    stored = load_table(table)
    entries = tuple(
        msgspec.structs.replace(e, candidates=(default_candidate("sim"),))
        for e in stored.lookup.entries
    )
    bare = tmp_path / "bare"
    save_table(msgspec.structs.replace(stored.lookup, entries=entries), bare, topology, [])
    for row in compare(bare, "sim", baselines=["nccl"]).rows:
        assert row.chosen == f"default ({row.baseline_chosen})"
        assert (row.speedup, row.speedup_ip, row.regression) == (1.0, 1.0, False)


def test_sizes_may_be_requested(table: Path, topology: Topology) -> None:
    comparison = compare(table, "sim", baselines=["nccl"], sizes=[1 << 16])
    assert {row.size for row in comparison.rows} == {1 << 16}
    assert {row.size for row in compare(table, "sim").tuned} == set(SIZES)


def test_the_columns_agree_with_the_rows(table: Path, topology: Topology) -> None:
    comparison = compare(table, "sim", baselines=["nccl"])
    by_cell = {(r.collective, r.size): r for r in comparison.rows}
    for row in comparison.tuned:
        assert row.time_us == by_cell[row.collective, row.size].tuned_us
        assert row.algbw_gbs is not None
        assert row.busbw_gbs == row.algbw_gbs * busbw_factor(row.collective, 4)


def test_it_can_be_written_as_json(table: Path, topology: Topology) -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(compare(table, "sim")))
    keys = {"collective", "size", "baseline_us", "tuned_us", "speedup", "chosen", "on"}
    assert all(keys <= set(row) for row in decoded["rows"])


def test_bad_arguments_are_refused(table: Path, topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gloo"):
        compare(table, "sim", baselines=["gloo"])
    with pytest.raises(InputError, match="ranks"):
        compare(table, lambda _: SimExecutor(load_profile("dgx-a100")))
    with pytest.raises(InputError, match="no such folder"):
        compare(tmp_path / "nothing", "sim")


def test_nccls_own_choices_are_not_simulated(
    table: Path, topology: Topology, tmp_path: Path
) -> None:
    stock = msgspec.structs.replace(load_table(table).lookup, dialect="nccl", entries=())
    save_table(stock, tmp_path / "stock", topology, ())
    with pytest.raises(InputError, match="only NCCL itself can time"):
        compare(tmp_path / "stock", "sim", baselines=["nccl"])


def samples(us: tuple[float, ...]) -> Timing:
    return Timing(sorted(us)[len(us) // 2], None, us, "mpi")


@pytest.mark.parametrize(
    ("tuned_us", "base_us", "comparable"),
    [
        ((10.0, 10.5, 11.0, 10.2, 10.1), (8.0, 8.1, 8.2, 8.0, 8.3), True),
        ((10.0, 10.5, 18.0, 10.2, 17.0), (8.0, 8.1, 8.2, 8.0, 8.3), False),
        ((10.0, 10.5, 11.0, 10.2, 10.1), (4.0, 4.1, 8.2, 8.0, 8.3), False),
    ],
)
def test_a_disturbed_machine_gives_no_speed_up_and_no_regression(
    tuned_us: tuple[float, ...], base_us: tuple[float, ...], comparable: bool
) -> None:
    call, stub = Collective("allgather", 4), Program("x", "allgather", "Simple", 1, 4, [])
    default = ConfiguredProgram(stub, Knobs(), name="Ring/LL/2ch").timed(samples(base_us))
    timing = samples(tuned_us)
    row = comparison_row(call, 1 << 20, "nccl", default, timing, "ours", 1.0, "links")
    assert row.comparable is comparable and row.regression is comparable
    searched = comparison_row(call, 1 << 20, "nccl-best", default, timing, "ours", 1.0, "links")
    assert not searched.regression
    shown = msgspec.structs.replace(comparison(), rows=(row,), baselines=("nccl",))
    shown = msgspec.structs.replace(
        shown,
        tuned=(bandwidth_row("allgather", 4, 1 << 20, timing, "ours"),),
        bound_us=(1.0,),
        bounds=("switches",),
    )
    for text in (text_report(shown), html_report(shown)):
        assert (f"{row.speedup:.2f}x" in text) is comparable
        assert (text.count("not comparable") > text.count("is not comparable")) is not comparable
        assert "switches" in text
