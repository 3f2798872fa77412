import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.conftest import HAND
from tests.tuning.conftest import Stand, evaluations
from tuccl.errors import InputError
from tuccl.program import Knobs, default_buffer_bytes, max_threads
from tuccl.runtime import (
    SimExecutor,
    Table,
    load_table,
    select,
    time_baseline,
)
from tuccl.topology import Topology, keep_gpus, load_profile
from tuccl.tuning import SEARCHES, TuneOptions, TuneResult, study_folder, tune, tuned_sizes
from tuccl.tuning.joint_search import no_progress

SIZES = [1 << 14, 1 << 18, 1 << 22]
BUDGET = 14


def tuned(
    out: Path, executor: Stand, topology: Topology, *, resume: bool = False, **other: object
) -> TuneResult:
    collectives: Any = other.pop("collectives", ["allgather"])
    progress: Any = other.pop("progress", no_progress)
    options: Any = {"budget": BUDGET, "resume": resume, **other}
    return tune(
        topology,
        collectives,
        SIZES,
        lambda _: executor,
        TuneOptions(**options),
        path=out,
        progress=progress,
    ).result


def table_json(out: Path) -> object:
    return json.loads((out / "table.json").read_text())


def default_us(executor: Stand, topology: Topology, collective: str, nbytes: int) -> float:
    return time_baseline(executor, topology, "nccl", collective, nbytes).timing.us


def chosen_us(stored: Table, executor: Stand, collective: str, nbytes: int) -> float:
    candidate = select(stored.lookup, collective, nbytes).candidate
    program = stored.program(candidate)
    if program is None or candidate.knobs is None:
        return default_us(executor, stored.topology, collective, nbytes)
    return executor.time(program, candidate.knobs.knobs, nbytes).us


@pytest.mark.parametrize("search", sorted(SEARCHES))
def test_the_table_is_whole_and_never_slower_than_the_default(
    search: str, topology: Topology, tmp_path: Path
) -> None:
    executor = Stand(topology)
    result = tuned(
        tmp_path / "table",
        executor,
        topology,
        search=search,
        collectives=["allgather", "allreduce"],
    )
    stored = load_table(tmp_path / "table")
    assert result.entries == len(stored.lookup.entries)
    assert stored.lookup.tuned_on == executor.label
    assert 0 < result.evaluations <= 2 * len(SIZES) * BUDGET
    for collective in ("allgather", "allreduce"):
        assert tuned_sizes(stored.lookup, collective) == SIZES
        for nbytes in SIZES:
            ours = chosen_us(stored, executor, collective, nbytes)
            assert ours <= default_us(executor, topology, collective, nbytes)
    for row in result.tuned:
        assert row.best_us is None or row.best_us < row.default_us
        chosen = select(stored.lookup, row.collective, row.size).candidate
        assert row.best == (None if chosen.is_default else chosen.name)


def test_odd_knobs_are_chosen_only_where_stock_ones_are_slower(
    topology: Topology, tmp_path: Path
) -> None:
    executor = Stand(topology)
    tuned(tmp_path / "table", executor, topology, budget=40)
    stored = load_table(tmp_path / "table")
    winners = 0
    for nbytes in SIZES:
        candidate = select(stored.lookup, "allgather", nbytes).candidate
        program = stored.program(candidate)
        if program is None or candidate.knobs is None:
            continue
        winners += 1
        k = candidate.knobs.knobs
        stock = Knobs(k.protocol, k.channels, max_threads(k.protocol)).normalised()
        stock = Knobs(k.protocol, k.channels, stock.threads, default_buffer_bytes(k.protocol))
        if (k.threads, k.buffer_bytes) != (stock.threads, stock.buffer_bytes):
            ours = executor.time(program, k, nbytes).us
            assert executor.time(program, stock, nbytes).us > 1.0005 * ours
    assert winners


def test_equal_programs_with_equal_knobs_are_timed_once(topology: Topology, tmp_path: Path) -> None:
    tuned(tmp_path / "table", Stand(topology), topology, search="mraco", budget=60)
    attrs = [json.loads(each) for each in evaluations(tmp_path / "table")]
    timed = [(a["program"], a["point"].split("/", 3)[3], a["samples_us"]) for a in attrs]
    keys = [(program, knobs) for program, knobs, samples in timed if samples]
    assert len(keys) > len({program for program, _ in keys})
    per_size = [keys.count(key) for key in keys]
    assert max(per_size) <= len(SIZES)  # a study a size


def test_a_studys_folder_with_other_things_in_it_is_left_alone(
    topology: Topology, tmp_path: Path
) -> None:
    folder = study_folder(tmp_path / "table")
    (folder / "notes").mkdir(parents=True)
    (folder / "journal.log").write_text("")
    (folder / "notes" / "thesis.tex").write_text("years of work")
    executor = Stand(topology)
    with pytest.raises(InputError, match="notes"):
        tuned(tmp_path / "table", executor, topology)
    assert (folder / "notes" / "thesis.tex").read_text() == "years of work"
    assert (folder / "journal.log").exists()
    assert executor.calls == 0


@pytest.mark.parametrize("resume", [True, False])
def test_a_file_or_a_link_in_the_studys_place_is_left_alone(
    resume: bool, topology: Topology, tmp_path: Path
) -> None:
    study_folder(tmp_path / "a").write_text("mine")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "journal.log").write_text("mine")
    study_folder(tmp_path / "b").symlink_to(tmp_path / "real")
    for name in ("a", "b"):
        with pytest.raises(InputError, match="folder of studies"):
            tuned(tmp_path / name, Stand(topology), topology, resume=resume)
    assert study_folder(tmp_path / "a").read_text() == "mine"
    assert (tmp_path / "real" / "journal.log").read_text() == "mine"


def test_sizes_are_distinguished_by_root(topology: Topology, tmp_path: Path) -> None:
    tables = []
    for root, size in ((0, 1 << 14), (2, 1 << 18)):
        out = tmp_path / f"table{root}"
        tune(topology, ["broadcast"], [size], Stand, TuneOptions(budget=4, root=root), path=out)
        tables.append(load_table(out).lookup)
    entries = tables[0].entries + tables[1].entries
    both = msgspec.structs.replace(tables[0], entries=entries)
    assert tuned_sizes(both, "broadcast", 0) == [1 << 14]
    assert tuned_sizes(both, "broadcast", 2) == [1 << 18]
    assert tuned_sizes(both, "broadcast") == [1 << 14, 1 << 18]
    assert tuned_sizes(both, "broadcast", 1) == []


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_broadcast_between_hosts_is_not_tuned_under_simple(hosts: int, tmp_path: Path) -> None:
    """MSCCL's runtimes hang in it (docs/reference/msccl.md)."""
    topology = HAND.mesh(hosts, 4)
    executor = SimExecutor(topology)
    options = TuneOptions(budget=12)
    tune(topology, ["broadcast"], [1 << 25], lambda _: executor, options, path=tmp_path / "table")
    points = [json.loads(each)["point"] for each in evaluations(tmp_path / "table")]
    protocols = {
        protocol for p in points for protocol in ("Simple", "LL", "LL128") if f"/{protocol}/" in p
    }
    assert ("Simple" in protocols) == (hosts == 1) and protocols


@pytest.mark.parametrize(
    "collective", ["reduce-scatter", "alltoall", "broadcast", "reduce", "gather", "scatter"]
)
def test_every_collective_can_be_tuned(collective: str, topology: Topology, tmp_path: Path) -> None:
    tuned(tmp_path / "table", Stand(topology), topology, collectives=[collective], budget=6)
    entries = load_table(tmp_path / "table").lookup.entries
    assert {e.collective for e in entries} == {collective}
    assert all(e.candidates[-1].is_default for e in entries)


@pytest.mark.parametrize("dialect", ["rccl", "fork"])
def test_other_dialects(dialect: str, topology: Topology, tmp_path: Path) -> None:
    tuned(tmp_path / "table", Stand(topology), topology, dialect=dialect, budget=8)
    table = load_table(tmp_path / "table").lookup
    assert table.dialect == dialect
    threads = {c.knobs.threads for c in table.candidates if c.knobs}
    assert dialect != "rccl" or max(threads) <= 256
    assert any(not c.is_default for c in table.candidates)


def test_the_same_seed_gives_the_same_table(topology: Topology, tmp_path: Path) -> None:
    for name in ("a", "b"):
        tuned(tmp_path / name, Stand(topology), topology, seed=3)
    assert table_json(tmp_path / "a") == table_json(tmp_path / "b")


@pytest.mark.parametrize(("name", "noise"), [("sim", 0.0), ("mpi", 0.02)])
def test_an_interrupted_tune_resumes_without_losing_an_evaluation(
    name: str, noise: float, topology: Topology, tmp_path: Path
) -> None:
    tuned(tmp_path / "whole", Stand(topology, name, noise), topology)
    broken = Stand(topology, name, noise)
    broken.break_after = 20
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "table", broken, topology)
    assert not (tmp_path / "table").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    before = evaluations(tmp_path / "table")
    tuned(tmp_path / "table", Stand(topology, name, noise), topology, resume=True)
    after = evaluations(tmp_path / "table")
    assert before and after[: len(before)] == before
    if not noise:
        assert after == evaluations(tmp_path / "whole")
        assert table_json(tmp_path / "table") == table_json(tmp_path / "whole")


@pytest.mark.parametrize("older", [False, True])
def test_an_interrupt_writes_the_sizes_that_are_finished(
    older: bool, topology: Topology, tmp_path: Path
) -> None:
    out, broken = tmp_path / "table", Stand(topology)
    if older:
        tuned(out, Stand(topology), topology, budget=3)

    def interrupt(done: int, total: int, what: str) -> None:
        if what.startswith("allgather 256K"):
            broken.break_after = broken.calls

    with pytest.raises(KeyboardInterrupt, match=r"1 size is in; missing: allgather 256K 4M$"):
        tuned(out, broken, topology, progress=interrupt)
    sizes = tuned_sizes(load_table(out).lookup, "allgather")
    assert sizes == (SIZES if older else SIZES[:1])
    tuned(out, Stand(topology), topology, resume=True)
    tuned(tmp_path / "whole", Stand(topology), topology)
    assert table_json(out) == table_json(tmp_path / "whole")


def test_a_second_resume_evaluates_nothing_again(topology: Topology, tmp_path: Path) -> None:
    tuned(tmp_path / "table", Stand(topology), topology)
    table, evaluated = table_json(tmp_path / "table"), evaluations(tmp_path / "table")
    tuned(tmp_path / "table", Stand(topology), topology, resume=True)
    assert evaluations(tmp_path / "table") == evaluated
    assert table_json(tmp_path / "table") == table


def test_an_unfinished_study_is_not_thrown_away_in_silence(
    topology: Topology, tmp_path: Path
) -> None:
    broken = Stand(topology)
    broken.break_after = 5
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "table", broken, topology)
    with pytest.raises(InputError, match="--resume"):
        tuned(tmp_path / "table", Stand(topology), topology)
    tuned(tmp_path / "table", Stand(topology), topology, resume=True, budget=3)
    tuned(tmp_path / "table", Stand(topology), topology, budget=3)  # finished: may start anew


def test_a_journal_cut_short_by_a_crash_is_repaired(topology: Topology, tmp_path: Path) -> None:
    broken = Stand(topology)
    broken.break_after = 12
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "table", broken, topology)
    journal = study_folder(tmp_path / "table") / "journal.log"
    journal.write_bytes(journal.read_bytes()[:-40])
    for _ in range(2):
        tuned(tmp_path / "table", Stand(topology), topology, resume=True)
    load_table(tmp_path / "table")


@pytest.mark.timeout(60)
def test_a_lock_that_a_killed_tune_left_does_not_hold_up_the_next(
    topology: Topology, tmp_path: Path
) -> None:
    """A tune of an earlier release left Optuna's own lock: a link whose target is not there."""
    broken = Stand(topology)
    broken.break_after = 5
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "table", broken, topology)
    folder = study_folder(tmp_path / "table")
    (folder / "journal.log.lock").symlink_to("table.study/journal.log")
    tuned(tmp_path / "table", Stand(topology), topology, resume=True, budget=3)
    load_table(tmp_path / "table")


def test_another_machines_study_is_not_mixed_in(
    topology: Topology, cluster: Topology, tmp_path: Path
) -> None:
    tuned(tmp_path / "table", Stand(topology), topology, budget=6)
    shutil.rmtree(tmp_path / "table")
    fresh = Stand(cluster)
    tuned(tmp_path / "table", fresh, cluster, resume=True, budget=6)
    assert fresh.calls >= len(SIZES) * 6


def test_samples_of_a_changed_simulator_are_not_reused(topology: Topology, tmp_path: Path) -> None:
    tuned(tmp_path / "table", Stand(topology), topology, budget=6)
    changed = Stand(topology)
    changed.inner = SimExecutor(topology, launch="graph")
    tuned(tmp_path / "table", changed, topology, resume=True, budget=6)
    assert changed.calls >= len(SIZES) * 6


def test_nothing_enters_the_table_without_beating_the_default(
    topology: Topology, tmp_path: Path
) -> None:
    slow = Stand(topology, "cuda", noise=0.02)
    slow.slow_down = 100.0
    result = tuned(tmp_path / "table", slow, topology, budget=4)
    table = load_table(tmp_path / "table").lookup
    assert all(c.program is None for c in table.candidates)  # NCCL's own are not slowed
    assert all(row.best is None or row.best.startswith("nccl-") for row in result.tuned)


def test_programs_with_wrong_results_never_win(topology: Topology, tmp_path: Path) -> None:
    executor = Stand(topology, "mpi", noise=0.01)
    executor.wrong_methods = ("allpairs", "hierarchical", "recursive", "greedy")
    tuned(tmp_path / "table", executor, topology, budget=6)
    winners = {c.method for c in load_table(tmp_path / "table").lookup.candidates}
    assert not any(wrong in winner for winner in winners for wrong in executor.wrong_methods)


def test_progress_rises_to_its_end(topology: Topology, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    tuned(
        tmp_path / "table",
        Stand(topology),
        topology,
        budget=5,
        progress=lambda done, total, what: seen.append((done, total, what)),
    )
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (3 * 5, 3 * 5)
    assert {what for _, _, what in seen} >= {"allgather 16K", "allgather 4M"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"search": "annealing"}, "mraco"),
        ({"budget": 0}, "budget"),
        ({"dialect": "lisp"}, "dialect"),
        ({"collectives": ["allgather", "sendrecv"]}, "sendrecv"),
        ({"storage": "nosuch://user:secret@host/db"}, "storage nosuch://..."),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_timed(
    change: dict[str, object], words: str, topology: Topology, tmp_path: Path
) -> None:
    executor = Stand(topology)
    with pytest.raises(InputError) as caught:
        tuned(tmp_path / "table", executor, topology, **change)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert executor.calls == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_table_is_left_alone(topology: Topology, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    executor = Stand(topology)
    with pytest.raises(InputError, match=r"thesis\.tex"):
        tuned(tmp_path, executor, topology)
    assert executor.calls == 0


def test_the_executor_must_be_the_machine(
    topology: Topology, cluster: Topology, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="ranks"):
        tuned(tmp_path / "table", Stand(cluster), topology)


def test_a_storage_by_url_is_shared(topology: Topology, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    first = Stand(topology)
    tuned(tmp_path / "a", first, topology, storage=url, budget=5)
    second = Stand(topology)
    tuned(tmp_path / "b", second, topology, storage=url, budget=5, resume=True)
    assert second.calls < first.calls
    assert table_json(tmp_path / "a") == table_json(tmp_path / "b")
    assert not study_folder(tmp_path / "a").exists()


def test_sizes_that_ranks_cannot_share_are_tuned_at_one_nearby(tmp_path: Path) -> None:
    machine = keep_gpus(load_profile("v100x4"), [0, 1, 2])
    tuned = tune(
        machine,
        ["allgather"],
        [1 << 20],
        "sim",
        TuneOptions(budget=4),
        path=tmp_path / "t",
    ).result.tuned[0]
    assert tuned.size % 3 == 0
    assert (1 << 20) * 63 / 64 <= tuned.size <= 1 << 20
    assert tuned.evaluations >= 1


def test_a_time_limit_that_left_no_evaluation_is_no_search(
    topology: Topology, tmp_path: Path
) -> None:
    out = tmp_path / "table"
    with pytest.raises(InputError, match=r"before the first evaluation.*allow more time"):
        tuned(out, Stand(topology), topology, seconds=1e-6)
    assert not out.exists()
    tuned(out, Stand(topology), topology, budget=3)  # anew, without a word about the first
    assert load_table(out)


def test_a_table_is_of_one_nccl(topology: Topology, tmp_path: Path) -> None:
    out, size = tmp_path / "t", [1 << 16]
    tune(topology, ["reduce"], size, Stand, TuneOptions(budget=2, nccl_version="2.12"), path=out)
    assert load_table(out).lookup.baseline == "nccl 2.12"
    with pytest.raises(InputError, match=r"nccl 2\.12"):
        tune(topology, ["gather"], size, Stand, TuneOptions(budget=2), path=out)
    tune(topology, ["reduce"], size, Stand, TuneOptions(budget=2), path=out)
    assert load_table(out).lookup.baseline == "nccl 2.19"


def test_a_table_keeps_the_entries_of_other_roots(topology: Topology, tmp_path: Path) -> None:
    out = tmp_path / "t"
    for root in (0, 2, 0):
        tune(topology, ["gather"], [1 << 16], Stand, TuneOptions(budget=2, root=root), path=out)
    assert sorted(entry.root or 0 for entry in load_table(out).lookup.entries) == [0, 2]


def test_a_table_keeps_other_collectives_and_other_machines_are_refused(tmp_path: Path) -> None:
    machine, out = load_profile("v100x4"), tmp_path / "t"
    executor = SimExecutor(machine)
    tune(
        machine,
        ["allgather", "reduce"],
        [1 << 16],
        lambda _: executor,
        TuneOptions(budget=3),
        path=out,
    )
    before = load_table(out).lookup
    tune(machine, ["reduce"], [1 << 20], lambda _: executor, TuneOptions(budget=3), path=out)
    after = load_table(out).lookup
    kept = [e for e in before.entries if e.collective == "allgather"]
    assert [e for e in after.entries if e.collective == "allgather"] == kept
    reduce = {(e.min_bytes, e.max_bytes) for e in after.entries if e.collective == "reduce"}
    assert reduce == {(1 << 15, 1 << 17), (1 << 17, 1 << 19), (1 << 19, 1 << 21)}
    smaller = keep_gpus(machine, [0, 1])
    with pytest.raises(InputError, match="of machine"):
        tune(smaller, ["reduce"], [1 << 20], "sim", TuneOptions(budget=3), path=out)
    assert load_table(out).lookup == after


def answered(out: Path, collective: str, nbytes: int) -> str | None:
    """The first candidate of the entry that answers for a size; None: no entry does."""
    entries = (e for e in load_table(out).lookup.entries if e.collective == collective)
    return next((e.candidates[0].name for e in entries if e.covers(nbytes)), None)


def test_a_table_grows_and_the_newer_entry_wins_by_size(topology: Topology, tmp_path: Path) -> None:
    out, sizes = tmp_path / "t", [1 << 14, 1 << 17, 1 << 20, 1 << 23]
    wide = TuneOptions(budget=BUDGET)
    tune(topology, ["allgather", "reduce"], sizes, Stand, wide, path=out)
    before = {n: answered(out, "allgather", n) for n in sizes}
    reduce_before = [e for e in load_table(out).lookup.entries if e.collective == "reduce"]
    small = TuneOptions(budget=1, resume=True)
    tune(topology, ["allgather"], [1 << 15, 1 << 17], Stand, small, path=out)
    assert {n: answered(out, "allgather", n) for n in sizes[2:]} == {
        n: before[n] for n in sizes[2:]
    }
    assert [e for e in load_table(out).lookup.entries if e.collective == "reduce"] == reduce_before
    notes = {
        n for e in load_table(out).lookup.entries if e.covers(1 << 17) for n in e.default.notes
    }
    assert "tuned at 131072 bytes" in notes


def test_between_two_tunes_the_default_runs(topology: Topology, tmp_path: Path) -> None:
    out = tmp_path / "t"
    for sizes in ([1 << 12], [1 << 24], [1 << 18]):
        tune(topology, ["allgather"], sizes, Stand, TuneOptions(budget=BUDGET), path=out)
    assert sorted({(e.min_bytes, e.max_bytes) for e in load_table(out).lookup.entries}) == [
        (1 << 11, 1 << 13),
        (1 << 13, 1 << 17),
        (1 << 17, 1 << 19),
        (1 << 19, 1 << 23),
        (1 << 23, 1 << 25),
    ]
    assert answered(out, "allgather", 1 << 15) == answered(out, "allgather", 1 << 21) == "default"
    assert answered(out, "allgather", 1 << 24) != "default"


def test_entries_of_another_nccl_are_not_mixed_in(topology: Topology, tmp_path: Path) -> None:
    out, options = tmp_path / "t", TuneOptions(budget=2, nccl_version="2.12")
    tune(topology, ["allgather"], [1 << 14, 1 << 20], Stand, options, path=out)
    with pytest.raises(InputError, match=r"nccl 2\.12"):
        tune(topology, ["allgather"], [1 << 14], Stand, TuneOptions(budget=2), path=out)
