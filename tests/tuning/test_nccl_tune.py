"""Tuning NCCL's own configurations, by nccl-tests and simulated: a tuner plugin loads the table."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.fake_nccl_tests import make_fakes
from tuccl.cli import main
from tuccl.errors import InputError
from tuccl.runtime import NCCL_VERSION, SimExecutor, load_table
from tuccl.runtime.baseline import nccl_configurations, nccl_timings, time_nccl
from tuccl.runtime.jobs import TunerCall, ask_tuner
from tuccl.runtime.nccl_tests import executor
from tuccl.runtime.nccl_tests.run import run_tests
from tuccl.runtime.workload import Call, Workload
from tuccl.synth import Collective
from tuccl.topology import Topology, join, load_profile, save_topology
from tuccl.tuning import (
    TunedTable,
    TuneOptions,
    load_policy,
    save_policy,
    train_policy,
    tune,
    tune_workload,
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    save_topology(load_profile("dgx-a100"), tmp_path / "t.json")
    return tmp_path / "t.json"


def on_fakes(folder: Path, **faults: str) -> list[str]:
    fakes = make_fakes(folder / "fakes", **faults)  # type: ignore[arg-type]
    launcher = f"{fakes.launcher('mpirun')} -np 8"
    named = ["--nccl-tests", str(fakes.tests), "--launcher", launcher]
    return ["--on", "nccl-tests", *named, "--shared", str(folder / "shared")]


def test_the_plugin_chooses_what_was_fastest(machine: Path, tmp_path: Path) -> None:
    out = tmp_path / "table"
    words = ["tune", str(machine), "-c", "allreduce", "-s", "1K:16M:x16", "--dialect", "nccl"]
    assert main([*words, *on_fakes(tmp_path), "--budget", "7", "-o", str(out)]) == 0
    table = load_table(out).lookup
    assert table.dialect == "nccl" and {c.on for c in table.candidates} == {"nccl-tests"}
    small, large = ask_tuner(out, 4, 8, 1, [TunerCall("allreduce", n) for n in (1024, 1 << 22)])
    assert small is not None and (small.algorithm, small.protocol) == ("Tree", "LL")
    assert large is not None and large.protocol == "Simple"
    for entry in table.entries:
        times = [c.stats.median_us for c in entry.candidates if c.stats is not None]
        assert times == sorted(times) and entry.candidates[-1].is_default


@pytest.mark.slow
def test_compare_times_the_plugin_itself(machine: Path, tmp_path: Path) -> None:
    out = tmp_path / "table"
    where = on_fakes(tmp_path)
    words = ["tune", str(machine), "-c", "allgather", "-s", "1K:64K:x8", "--dialect", "nccl"]
    assert main([*words, *where, "--budget", "3", "-o", str(out)]) == 0
    seen = tmp_path / "fakes" / "seen.jsonl"
    before = len(seen.read_text().splitlines())
    assert main(["compare", str(out), *where, "--report", str(tmp_path / "r.html")]) in (0, 1)
    ran = [json.loads(line)["env"] for line in seen.read_text().splitlines()[before:]]
    tuned = [env for env in ran if env.get("TUCCL_TABLE") == str(out.resolve())]
    assert len(tuned) == len(ran) - len(tuned) == 5
    assert all(env["NCCL_TUNER_PLUGIN"].endswith("libnccl-tuner-tuccl.so") for env in tuned)
    assert not any("NCCL_TUNER_PLUGIN" in env for env in ran if env not in tuned)


def test_one_run_a_configuration_and_its_budget(machine: Path, tmp_path: Path) -> None:
    words = ["tune", str(machine), "-c", "allgather", "-s", "1K:64K:x4", "--dialect", "nccl"]
    assert main([*words, *on_fakes(tmp_path), "--budget", "2", "-o", str(tmp_path / "t")]) == 0
    lines = (tmp_path / "fakes" / "seen.jsonl").read_text().splitlines()
    seen = [json.loads(line)["env"] for line in lines]
    tried = {(e.get("NCCL_PROTO"), e.get("NCCL_MAX_NCHANNELS")) for e in seen} - {(None, None)}
    # At most two for each of four sizes, each timed once for all of them and seen to run once; the
    # default twice; five rounds of the default and the tried.
    assert 2 <= len(tried) <= 8
    assert len(seen) == 2 + 2 * len(tried) + 5 * (1 + len(tried))


def test_what_nccl_ignores_does_not_enter(machine: Path, tmp_path: Path) -> None:
    """Asked for a tree this NCCL runs a ring above 4 KiB; its log says so."""
    out = tmp_path / "table"
    words = ["tune", str(machine), "-c", "allreduce", "-s", "1K:256K:x16", "--dialect", "nccl"]
    on = on_fakes(tmp_path, fault="no-trees")
    assert main([*words, *on, "--budget", "6", "-o", str(out)]) == 0
    small, *others = load_table(out).lookup.entries
    assert small.candidates[0].nccl is not None and small.candidates[0].nccl.algorithm == "Tree"
    assert "ran where it was requested" in small.candidates[0].notes[0]
    chosen = [c.nccl for entry in others for c in entry.candidates if c.nccl is not None]
    assert chosen and all(knobs.algorithm == "Ring" for knobs in chosen)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_rooted_collective_of_which_nccls_own_choice_wins_some_sizes(
    collective: str, machine: Path, tmp_path: Path
) -> None:
    """The sizes that NCCL's default wins have it as their only candidate, which fits every root."""
    out = tmp_path / "table"
    words = ["tune", str(machine), "-c", collective, "-s", "1K:1M:x1024", "--dialect", "nccl"]
    on = on_fakes(tmp_path, fault="good-default")
    assert main([*words, *on, "--budget", "3", "-o", str(out)]) == 0
    small, large = load_table(out).lookup.entries
    assert not small.candidates[0].is_default and large.candidates[0].is_default
    calls = [TunerCall(collective, n) for n in (1024, 1 << 20)]
    advice = ask_tuner(out, 4, 8, 1, calls)
    assert advice[0] is not None and advice[1] is None


def test_without_a_log_nothing_is_entered(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "table"
    words = ["tune", str(machine), "-c", "allreduce", "-s", "1K", "--dialect", "nccl"]
    on = on_fakes(tmp_path, fault="no-log")
    assert main([*words, *on, "--budget", "2", "-o", str(out)]) == 2
    assert "no log of what NCCL chose came back" in capsys.readouterr().err
    assert not out.exists()


def test_an_interrupted_sweep_goes_on(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after some runs: none is made again, and the table is the uninterrupted one's."""
    words = ["tune", str(machine), "-c", "allgather", "-s", "1K:64K:x64"]
    words += ["--dialect", "nccl", "--budget", "3", *on_fakes(tmp_path)]
    assert main([*words, "-o", str(tmp_path / "whole")]) == 0
    seen = tmp_path / "fakes" / "seen.jsonl"
    uninterrupted = len(seen.read_text().splitlines())
    out = tmp_path / "table"
    for left in (2, 9):
        stop_after(left, monkeypatch)
        more = ["--resume"] if left > 2 else []
        assert main([*words, "-o", str(out), *more]) == 130
        monkeypatch.undo()
        assert not out.exists()
    assert main([*words, "-o", str(out)]) == 2  # an unfinished study is there
    with (tmp_path / "table.study" / "sweeps.jsonl").open("ab") as journal:
        journal.write(b'{"run": "cut sh')
    assert main([*words, "-o", str(out), "--resume"]) == 0
    assert len(seen.read_text().splitlines()) == 2 * uninterrupted
    assert load_table(out).lookup.entries == load_table(tmp_path / "whole").lookup.entries
    assert main([*words, "-o", str(out)]) == 0  # finished: the next one starts anew


def stop_after(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come before run number ``runs`` of what is started from now on."""
    started = 0

    def counted(*words: object, **named: object) -> object:
        nonlocal started
        started += 1
        if started > runs:
            raise KeyboardInterrupt
        return run_tests(*words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "run_tests", counted)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--search", "annealing"], "expected one of descent"),
        (["--method", "ring"], "--method: --dialect nccl has none"),
        (["--workers", "2", "--prefer", "sms"], "--prefer, --workers: --dialect nccl has none"),
        (["-c", "alltoall"], "NCCL's tuners choose for"),
    ],
)
def test_what_it_cannot_do_is_said(
    machine: Path, tmp_path: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["tune", str(machine), "-c", "allreduce", "-s", "1K", "--dialect", "nccl"]
    plain += [*on_fakes(tmp_path), "-o", str(tmp_path / "t"), *words]
    assert main(plain) == 2
    assert why in capsys.readouterr().err


def test_only_nccl_or_its_model_times_them(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", str(machine), "-c", "allreduce", "-s", "1K", "--dialect", "nccl"]
    assert main([*words, "--on", "sim", "--machine", "cuda", "-o", str(tmp_path / "t")]) == 2
    assert "use --on nccl-tests or sim" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


@pytest.fixture(scope="module")
def cluster() -> Topology:
    return join(load_profile("dgx-h100"), 2)


def options(**more: object) -> TuneOptions:
    return TuneOptions(dialect="nccl", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("search", ["descent", "mraco", "tpe", "rl"])
def test_every_search_finds_the_best_of_a_simulated_nccl(search: str, cluster: Topology) -> None:
    table = tune(cluster, "allreduce", "256K", options=options(search=search))
    call = Collective("allreduce", 16)
    best = nccl_timings(SimExecutor(cluster), cluster, call, 256 << 10, NCCL_VERSION)[0]
    [row] = table.result.tuned
    assert table.lookup.baseline == f"nccl {NCCL_VERSION}" and row.evaluations <= 100
    assert row.best_us is not None and row.best_us <= best.timing.us < row.default_us
    chosen = table.lookup.entries[0].candidates[0].nccl
    assert chosen is not None
    timed = time_nccl(SimExecutor(cluster), cluster, call, 256 << 10, chosen)
    assert timed.timing.us == pytest.approx(row.best_us)


def test_a_budget_of_one_tries_one_beside_nccls_own_choice(cluster: Topology) -> None:
    result = tune(cluster, "allgather", ["64K", "1M"], options=options(budget=1)).result
    assert [row.evaluations for row in result.tuned] == [1, 1]
    assert all(row.best_us is None or row.best_us < row.default_us for row in result.tuned)


@pytest.mark.slow
def test_a_policy_of_other_machines_is_followed(cluster: Topology, tmp_path: Path) -> None:
    sizes = [16 << 10, 256 << 10, 4 << 20]
    machines = [load_profile("dgx-h100"), join(load_profile("dgx-h100"), 4)]
    policy = train_policy(machines, ["allreduce"], sizes, dialect="nccl")
    save_policy(policy, tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    with_it = tune(
        cluster, "allreduce", sizes, options=options(search="rl", policy=policy, budget=2)
    )
    without = tune(cluster, "allreduce", sizes, options=options(search="rl", budget=2))

    def us(table: TunedTable) -> float:
        return sum(row.best_us or row.default_us for row in table.result.tuned)

    assert us(with_it) < us(without)
    with pytest.raises(InputError, match="use it with --dialect nccl"):
        tune(cluster, "allreduce", "1M", options=TuneOptions(policy=policy))


def test_a_jobs_calls_are_tuned_at_their_own_sizes(cluster: Topology) -> None:
    job = Workload("job", (Call("allreduce", 262148, 10), Call("alltoall", 1 << 20, 1)))
    table = tune_workload(cluster, job, "sim", options())
    [row] = table.result.tuned
    assert row.size == 262148 and row.best_us is not None  # no chunks have to divide it
    gain = table.result.workload
    assert gain is not None and gain.gain > 1.5 and gain.indivisible == 0 and gain.calls == 10


def test_ll128_and_nvls_only_where_they_may_be() -> None:
    """Asked for by name LL128 runs anywhere, and corrupts data where NCCL has not enabled it."""
    h100 = load_profile("dgx-h100")
    older = [msgspec.structs.replace(n, model="P100") for n in h100.nodes]
    p100 = Topology(name="p100", nodes=tuple(older), links=h100.links)
    assert {k.protocol for k in nccl_configurations(p100, "allreduce")} == {"LL", "Simple"}
    assert {k.algorithm for k in nccl_configurations(p100, "allreduce")} == {"Ring", "Tree"}
    assert any(k.protocol == "LL128" for k in nccl_configurations(h100, "allreduce"))
    assert {k.algorithm for k in nccl_configurations(h100, "allgather")} == {"Ring", "NVLS"}
    with pytest.raises(InputError, match="only"):
        nccl_configurations(h100, "gather")
