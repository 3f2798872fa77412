"""Each verb on good input: its keys, its files, its exit code."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuccl.synth import COLLECTIVES
from tuccl.topology import load_profile, save_topology

Tuccl = Callable[..., Any]

VERBS = [
    "probe",
    "bound",
    "sketch",
    "synth",
    "verify",
    "bench",
    "tune",
    "compare",
    "explain",
    "export",
    "run",
    "learn",
    "policy",
    "doctor",
]


def test_bound_names_the_cut(tuccl: Tuccl, work: Path) -> None:
    answer = tuccl("bound", work / "topology.json", "-c", "allgather,allreduce", "--json")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [r["collective"] for r in rows] == ["allgather", "allreduce"]
    # Half of the shards leave a host by its two NICs of 12.5 GB/s; sums come back as well.
    assert [r["algbw_bound_gbs"] for r in rows] == pytest.approx([50.0, 25.0])
    assert "4 of 8 shards must leave" in rows[0]["bottleneck"]
    assert "between the 2 hosts" in rows[1]["bottleneck"]


def test_verify_answers_no_with_the_reason(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.xml"
    text = (work / "program.xml").read_text()
    step = text.index('<step s="0" type="')
    broken.write_text(text[:step] + text[step:].replace('cnt="1"', 'cnt="2"', 1))
    answer = tuccl("verify", broken, "--json")
    report = json.loads(answer.out)
    assert answer.code == 1
    assert not report["ok"]
    assert report["errors"][0]["message"].startswith(str(broken))


def test_bench_prints_nccl_tests_columns(tuccl: Tuccl, work: Path) -> None:
    answer = tuccl("bench", work / "program.xml", work / "topology.json", "-s", "1K:1M:x32")
    data = [line.split() for line in answer.out.splitlines() if not line.startswith("#")]
    assert [int(row[0]) for row in data] == [1024, 32768, 1048576]
    assert answer.out.startswith("# simulated")
    times = [float(row[5]) for row in data]
    assert times == sorted(times)


def test_bench_runs_on_real_data_and_checks_it(tuccl: Tuccl, work: Path) -> None:
    command = [
        "bench",
        work / "program.xml",
        work / "topology.json",
        "-s",
        "1K",
        "--on",
        "loopback",
    ]
    answer = tuccl(*command, "--check", "--datatype", "half", "--json")
    assert answer.code == 0
    told = json.loads(answer.out)
    [row] = told["rows"]
    assert told["on"] == row["on"] == "loopback" and told["label"].startswith("measured")
    assert row["wrong"] == 0 and row["time_us"] > 0 and row["datatype"] == "half"
    assert row["count"] == 1024 // 2 // 8
    header = tuccl(*command).out.splitlines()[2].split()
    assert header[-3:] == ["runs", "spread", "chosen"]


def test_bench_times_baselines_and_instances(tuccl: Tuccl, work: Path) -> None:
    topology = work / "topology.json"
    for name in ("nccl", "msccl-default", "msccl-default-robust"):
        answer = tuccl(
            "bench", "--baseline", name, "-c", "allreduce", topology, "-s", "1M", "--json"
        )
        [row] = json.loads(answer.out)["rows"]
        assert row["time_us"] > 0
        assert row["chosen"]
    rows = [
        json.loads(
            tuccl(
                "bench", work / "program.xml", topology, "-s", "64M", "--channels", n, "--json"
            ).out
        )["rows"][0]
        for n in (1, 4)
    ]
    assert rows[0]["time_us"] != rows[1]["time_us"]


def test_the_baseline_is_the_nccl_that_was_requested(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    topology = work / "topology.json"
    bench = ("bench", "--baseline", "nccl", "-c", "allreduce", topology, "-s", "1M")
    assert "NCCL 2.19's" in tuccl(*bench).out
    old = json.loads(tuccl(*bench, "--nccl-version", "v2.4.8-1", "--json").out)
    assert old["nccl_version"] == "2.4.8"
    newest = json.loads(tuccl(*bench, "--nccl-version", "newest", "--json").out)
    assert newest["nccl_version"] == "2.30"
    table = tmp_path / "table"
    tune = ("tune", topology, "-c", "reduce", "-s", "64K", "--budget", "2", "-o", table)
    tuned = json.loads(tuccl(*tune, "--nccl-version", "2.12", "--json").out)
    assert tuned["nccl_version"] == "2.12"
    assert tuned["tuned"][0]["default_sms"] > 0
    printed = tuccl(*tune, "--nccl-version", "2.12").out
    assert printed.splitlines()[0].split().count("SMs") == 2
    assert json.loads(tuccl("compare", table, "--json").out)["nccl_version"] == "2.12"
    again = tuccl("compare", table, "--nccl-version", "2.18.3")
    assert "nccl is 2.18.3" in again.out


def test_bench_writes_a_trace_of_one_size(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    topology, out = work / "topology.json", tmp_path / "t.json"
    plain = json.loads(
        tuccl("bench", work / "program.xml", topology, "-s", "1M", "--trace", out, "--json").out
    )
    events = json.loads(out.read_text())["traceEvents"]
    end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert end == pytest.approx(plain["rows"][0]["time_us"], abs=2e-3)
    baseline = ("bench", "--baseline", "nccl", "-c", "allreduce", topology, "-s", "1M")
    answer = tuccl(*baseline, "--trace", out, "--trace-passes", 1)
    assert (answer.code, [p.name for p in tmp_path.iterdir()]) == (0, ["t.json"])
    assert "simulated" in answer.err and str(out) in answer.err


def test_bench_says_how_links_were_used(tuccl: Tuccl, work: Path) -> None:
    command = ("bench", work / "program.xml", work / "topology.json", "-s", "64K:1M:x16")
    uses = json.loads(tuccl(*command, "--utilisation", "--json").out)["utilisation"]
    assert [use["size"] for use in uses] == [65536, 1 << 20]
    for use in uses:
        kinds = {c["kind"]: c for c in use["links"]["classes"]}
        assert kinds.keys() >= {"nvlink", "network"}
        assert all(len(c["over_time"]) == 50 and 0 <= c["used"] <= 1 for c in kinds.values())
        assert {s["of"] for s in use["spent"]} == {"thread blocks", "proxies"}
    text = tuccl(*command, "--utilisation").out
    assert text.count("busiest links") == 2


def test_calibrate_writes_a_class_that_bench_uses(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    topology, table = work / "topology.json", tmp_path / "times.csv"
    table.write_text("size_bytes,time_us\n4096,90\n65536,120\n1048576,260\n4194304,800\n")
    mine = tmp_path / "mine.json"
    told = ("-c", "allreduce", "--nccl-version", "2.18")
    checked = tuccl("calibrate", table, topology, *told, "--no-fit", "--json")
    answer = tuccl("calibrate", table, topology, *told, "-o", mine, "--json")
    assert (checked.code, answer.code) == (0, 0)
    [before], result = json.loads(checked.out)["errors"], json.loads(answer.out)
    [after], [unseen] = result["errors"], result["left_out"]
    assert after["large"] < before["large"]
    assert unseen["large"] >= 0
    bench = ("bench", "--baseline", "nccl", "-c", "allreduce", topology, "-s", "1M", "--json")
    [default] = json.loads(tuccl(*bench).out)["rows"]
    [fitted] = json.loads(tuccl(*bench, "--machine", mine).out)["rows"]
    assert abs(fitted["time_us"] - 260) < abs(default["time_us"] - 260)


def test_calibrate_says_what_is_missing(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    topology, table = work / "topology.json", tmp_path / "times.csv"
    table.write_text("size_bytes,time_us\n4096,90\n")
    for args, why in (
        ((table, topology, "-c", "allreduce"), "-o CLASS"),
        ((table, topology, "-o", tmp_path / "x"), "expected the collective"),
        ((table, topology, "-c", "allreduce,allgather", "-o", "x"), "one collective"),
        ((table, topology, "-c", "allreduce", "--launch-mode", "x", "-o", "x"), "--launch-mode"),
        ((table, "-c", "allreduce", "-o", "x"), "tuccl-calibration/1"),
        ((table, topology, "-c", "allreduce", "--algorithm", "Star", "-o", "x"), "Star"),
    ):
        answer = tuccl("calibrate", *args)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert why in answer.err


def test_select_and_explain_agree(tuccl: Tuccl, work: Path) -> None:
    chosen = json.loads(
        tuccl("explain", work / "table", "-c", "allgather", "-s", "1M", "--json").out
    )
    rows = [
        json.loads(line) for line in tuccl("explain", work / "table", "--json").out.splitlines()
    ]
    here = [
        r
        for r in rows
        if r["min_bytes"] <= 1 << 20 and (not r["max_bytes"] or r["max_bytes"] > 1 << 20)
    ]
    assert chosen["candidate"]["name"] in {r["candidate"] for r in here}
    assert chosen["reason"]


def test_verbs_print_sms_and_take_a_preference(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    call = (work / "table", "-c", "allgather", "-s", "1M")
    both = [
        json.loads(tuccl("explain", *call, "--prefer", p, "--json").out) for p in ("speed", "sms")
    ]
    assert 0 < both[1]["sms"] <= both[0]["sms"]
    assert both[0]["candidate"]["name"] != "default"
    assert [c["name"] for c in both[0]["candidates"]].count("default") == 1
    assert "SMs" in tuccl("explain", *call).out
    study = both[0]["study"]
    assert study["evaluations"] > 0
    assert min(study["best_by"]["method"].values()) == study["best_us"]
    assert "best of" in tuccl("explain", *call).out
    assert "no study" in tuccl("explain", *call, "--study", tmp_path).err
    rows = tuccl("explain", work / "table", "--prefer", "sms", "--json").out.splitlines()
    assert all(json.loads(row)["sms"] >= 0 for row in rows)
    out = tmp_path / "files"
    assert tuccl("export", work / "table", "--prefer", "sms", "-o", out).code == 0
    assert tuccl("explain", *call, "--prefer", "size").code == 2
    compared = tuccl("compare", work / "table", "--prefer", "sms", "-s", "1M", "--json")
    assert compared.code == 0
    tuned = [r for r in json.loads(compared.out)["tuned"] if r["collective"] == "allgather"]
    times = {c["name"]: c["stats"]["median_us"] for c in both[0]["candidates"]}
    assert tuned[0]["time_us"] == pytest.approx(times[both[1]["candidate"]["name"]])


def test_compare_reports_every_baseline(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    answer = tuccl("compare", work / "table", "--on", "sim", "--report", report, "--json")
    rows = json.loads(answer.out)["rows"]
    assert answer.code == 0
    baselines = {"nccl", "nccl-best", "msccl-default", "msccl-best"}
    assert {r["baseline"] for r in rows} == baselines
    assert all(r["speedup"] >= 0.99 for r in rows if r["baseline"].startswith("nccl"))
    assert "simulated" in report.read_text()
    assert "The search" in report.read_text()


def test_export_writes_programs_that_verify(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    for dialect in ("executor", "rccl", "fork"):
        out = tmp_path / dialect
        answer = tuccl("export", work / "table", "--dialect", dialect, "-o", out, "--json")
        assert answer.code == 0, answer.err
        for file in json.loads(answer.out)["files"]:
            if file.endswith(".xml"):
                assert tuccl("verify", file, "--dialect", dialect).code == 0


def test_export_writes_plans_of_a_table_and_of_a_program(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    for source in ("table", "program.xml"):
        out = tmp_path / source
        words = ["--dialect", "mscclpp", "--nodes", 2, "-o", out, "--json"]
        answer = tuccl("export", work / source, *words)
        assert answer.code == 0, answer.err
        files = json.loads(answer.out)["files"]
        plans = [file for file in files if "/tuccl-" in file]
        assert plans and len(plans) == len(files) - 2
        assert all(tuccl("verify", file).code == 0 for file in plans)
    answer = tuccl("export", work / "program.xml", "--dialect", "executor", "-o", tmp_path / "x")
    assert answer.code == 2 and answer.err.count("\n") == 1
    words = ["--dialect", "mscclpp", "--nodes", 3, "-o", tmp_path / "y"]
    answer = tuccl("export", work / "program.xml", *words)
    assert answer.code == 2 and "divides 8 ranks" in answer.err
    words = ["--dialect", "mscclpp", "--switch", "allreduce", "-o", tmp_path / "z"]
    answer = tuccl("export", work / "topology.json", *words)
    assert answer.code == 2 and "a switch adds up on one host" in answer.err


def test_run_passes_the_environment_and_the_exit_code(
    tuccl: Tuccl, work: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = "import os, sys; sys.exit(7 if os.path.isdir(os.environ['MSCCL_ALGO_DIR']) else 1)"
    answer = tuccl("run", "--table", work / "table", "--", sys.executable, "-c", check)
    assert answer.code == 7
    assert "export MSCCL_ALGO_DIR=" in answer.err


def test_doctor_finds_what_every_verb_needs(tuccl: Tuccl) -> None:
    answer = tuccl("doctor", "--json")
    assert answer.code == 0
    assert {c["name"] for c in json.loads(answer.out)["checks"]} >= {"tuccl", "optuna"}


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_that_parses(tuccl: Tuccl, verb: str) -> None:
    answer = tuccl(verb, "--help")
    assert answer.code == 0
    assert f"tuccl {verb}" in answer.out


def test_a_reader_that_goes_away_is_no_error(work: Path) -> None:
    command = f"{sys.executable} -m tuccl.cli explain {work / 'table'} | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""


def test_a_tune_says_that_there_is_nothing_to_resume(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    call = ("tune", work / "topology.json", "-c", "allgather", "-s", "1K", "--budget", 1)
    answers = [tuccl(*call, "-o", tmp_path / "table", "--resume") for _ in range(2)]
    assert [answer.code for answer in answers] == [0, 0]
    assert ["table.study is not there; this begins anew" in each.err for each in answers] == [
        True,
        False,
    ]


def test_a_tune_interrupted_before_its_first_size_leaves_no_table_and_resumes(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "table"
    tune = [
        "tune",
        str(work / "topology.json"),
        "-c",
        "allreduce",
        "-s",
        "1K:64M:x4",
        "--budget",
        "40",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tuccl.cli", *tune, "-o", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    study = out.with_name("table.study")
    deadline = time.monotonic() + 60
    while not any(study.glob("*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    *states, last = err.strip().splitlines()
    assert last.startswith("tuccl tune: interrupted") and "--resume" in last
    said = r"\d+/\d+ |preparing|tuccl tune: no size is finished; missing: allreduce 1K 4K "
    assert not [line for line in states if not re.match(said, line)]
    assert not out.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["table.study"]
    again = tuccl(*tune, "-o", out)
    assert again.code == 2
    assert "--resume" in again.err
    resumed = tuccl(*tune, "--budget", 8, "--resume", "-o", out)
    assert resumed.code == 0, resumed.err
    assert tuccl("explain", out).code == 0


def test_a_tune_on_a_full_disk_names_the_file(work: Path, tmp_path: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tuccl.cli", "tune", str(work / "topology.json")),
            *("-c", "allgather", "-s", "1M", "--budget", "20", "-o", str(tmp_path / "table")),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=small_files_only,
    )
    assert done.returncode == 2
    assert "table.study: cannot be written: File too large" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tuccl tune: ")
    assert "Traceback" not in done.stderr


def test_a_table_is_tuned_for_the_interpreter_by_its_class(tuccl: Tuccl, tmp_path: Path) -> None:
    """Its default is a program, for it runs no NCCL; several hosts are refused."""
    one, two, out = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "table"
    tuccl("probe", "--profile", "v100x4", "-o", one)
    tuccl("probe", "--profile", "v100x4", "--nodes", 2, "-o", two)
    tune = ["-c", "allreduce", "-s", "1M", "--budget", 10, "--machine", "cuda", "-o", out]
    answer = tuccl("tune", one, *tune)
    assert answer.code == 0, answer.err
    assert "class cuda-a100 (none for v100), estimates" in answer.out
    assert "against msccl-default-robust" in answer.out
    refused = tuccl("tune", two, *tune)
    assert refused.code == 2 and "expected one host" in refused.err
    refused = tuccl("tune", one, *tune, "--dialect", "mscclpp")
    assert refused.code == 2 and "runs no plans" in refused.err


def test_bound_without_a_collective_does_all(tuccl: Tuccl, work: Path) -> None:
    rows = tuccl("bound", work / "topology.json", "--json").out.splitlines()
    assert [json.loads(row)["collective"] for row in rows] == list(COLLECTIVES)


def test_verify_answers_no_to_the_wrong_collective(tuccl: Tuccl, work: Path) -> None:
    answer = tuccl("verify", work / "program.xml", "-c", "alltoall")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out == "wrong-collective: computes allgather, expected alltoall\n"
    assert tuccl("verify", work / "program.xml", "-c", "allgather").code == 0


def test_explain_says_what_its_marks_are(tuccl: Tuccl, work: Path) -> None:
    for more in ((), ("-c", "allgather", "-s", "1M")):
        assert "\n# >: " in "\n" + tuccl("explain", work / "table", *more).out


@pytest.mark.parametrize("width", [60, 80, 200])
def test_doctor_fits_the_terminal(
    tuccl: Tuccl, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = tuccl("doctor").out.splitlines()
    assert not [x for x in lines if len(x) > width and len(x.split("  ")[-1].split()) > 1]
    assert sum(len(line) > width for line in lines) < len(lines) / 4  # paths stay whole
    assert lines[0].startswith("found     tuccl ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compare", "table", "--idle", "nope"), "--idle: a table to compare under --cross"),
        (("compare", "table", "--study", "nope"), "--study: what --report draws"),
        (("compare", "table", "-s", ""), "size"),
        (("explain", "table", "--rank", "3"), "no job.json in"),
    ],
)
def test_arguments_that_would_have_no_effect_are_refused(
    tuccl: Tuccl, work: Path, arguments: tuple[str, ...], reason: str
) -> None:
    verb, table, *rest = arguments
    result = tuccl(verb, work / table, *rest)
    assert result.code == 2
    assert reason in result.err and len(result.err.splitlines()) == 1


def test_a_folder_without_a_table_starts_no_job(tuccl: Tuccl, tmp_path: Path) -> None:
    result = tuccl("run", "--table", tmp_path, "--", "true")
    assert result.code == 2
    assert "holds no table" in result.err and len(result.err.splitlines()) == 1


def test_an_empty_name_and_a_file_of_another_kind_are_refused(tuccl: Tuccl, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}")
    refused = tuccl("bound", tmp_path / "empty.json")
    assert refused.code == 2
    assert "missing required field" in refused.err and "not readable" not in refused.err
    save_topology(load_profile("v100x4"), machine := tmp_path / "machine.json")
    assert tuccl("bound", machine, "-c", "").code == 2
