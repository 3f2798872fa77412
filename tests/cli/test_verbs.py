"""Each verb on good input: its keys, its files, its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.topology.fabric_renderings import fat_tree, ibnetdiscover
from tuccl._native import parse_xml

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


def test_probe_says_what_it_read(tuccl: Tuccl, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    answer = tuccl(
        "probe", "--profile", "dgx-a100", "--gpus", "0-3", "--nodes", 2, "-o", out, "--json"
    )
    facts = json.loads(answer.out)
    assert answer.code == 0
    assert (facts["ranks"], facts["hosts"]) == (8, 2)
    assert (
        facts["signature"] == json.loads(tuccl("probe", "--show", out, "--json").out)["signature"]
    )
    assert {"name", "links", "warnings"} <= facts.keys()


def test_probe_joins_the_hosts_of_several_files(tuccl: Tuccl, tmp_path: Path) -> None:
    for name, profile in (("old", "ndv2"), ("new", "dgx-a100")):
        tuccl("probe", "--profile", profile, "-o", tmp_path / f"{name}.json")
    out = tmp_path / "t.json"
    files = ("--from", tmp_path / "old.json", "--from", tmp_path / "new.json", "-o", out)
    assert tuccl("probe", *files).code == 0
    nodes = json.loads(out.read_text())["nodes"]
    gpus = [node["id"] for node in nodes if node["kind"] == "gpu"]
    assert gpus[0] == "old/gpu0"
    assert gpus[-1] == "new/gpu7"
    tuccl("probe", *files, "--names", "a,b", "--fabric", "clos", "--up", "20")
    assert json.loads(out.read_text())["nodes"][0]["host"] == "a"
    tuccl("probe", *files, "--names", "n[01-02]")
    assert json.loads(out.read_text())["nodes"][0]["host"] == "n01"
    for extra in (("--nodes", "2"), ("--names", "a"), ("--names", "a,a"), ("--by-rack",)):
        assert tuccl("probe", *files, *extra).code == 2
    for nodes in ("-3", "0", "2000000000"):
        refused = tuccl("probe", "--profile", "ndv2", "--nodes", nodes, "--names", "a")
        assert "expected 1 to 1024 hosts" in refused.err


def test_probe_names_the_file_of_a_warning(tuccl: Tuccl, tmp_path: Path) -> None:
    pci = '<pci busid="0000:01:00.0" class="0x030200"/><pci busid="0000:02:00.0" class="0x0207"/>'
    files = [tmp_path / "a.xml", tmp_path / "b.xml"]
    for file in files:
        file.write_text(f'<system version="1"><cpu numaid="0">{pci}</cpu></system>')
    answer = tuccl("probe", "--from", *files, "-o", tmp_path / "t.json")
    assert all(f"warning: {file}: link speed unknown" in answer.err for file in files)
    tuccl("probe", "--profile", "v100x4", "--gpus", "0", "-o", tmp_path / "t.json")
    drift = tuccl("probe", "--from", files[0], "--check", tmp_path / "t.json").out
    assert "unknown now" in drift
    # The place is refused before the file is read.
    refused = tuccl("probe", "--from", "nowhere.xml", "-o", tmp_path)
    assert (refused.code, "is a folder" in refused.err) == (2, True)


def test_probe_sums_up_a_fabric_file_and_joins_by_it(
    tuccl: Tuccl, tmp_path: Path, shared_data: Path
) -> None:
    file = shared_data / "topologies" / "fabric" / "ibnetdiscover_example.out"
    facts = json.loads(tuccl("probe", "--from", file, "--json").out)
    assert (facts["switches"], facts["adapters"], facts["parts"]) == (40, 582, 1)
    assert facts["tiers"] == [31, 9]
    assert tuccl("probe", "--from", file, "-o", tmp_path / "t.json").code == 2
    refused = tuccl("probe", "--profile", "ndv2", "--names", "n0,n1", "--fabric-file", file)
    assert refused.code == 2
    assert "host 'n0' has no place in it" in refused.err


def test_probe_joins_by_a_fabric_file_rack_after_rack(tuccl: Tuccl, tmp_path: Path) -> None:
    (tmp_path / "ib.out").write_text(ibnetdiscover(fat_tree(2, 1, 4, gbs=12.5)))
    out = tmp_path / "t.json"
    by_file = ("--profile", "ndv2", "--fabric-file", tmp_path / "ib.out", "-o", out)
    assert tuccl("probe", *by_file, "--names", "node04,node02,node01", "--by-rack").code == 0
    topology = json.loads(out.read_text())
    gpus = [node["host"] for node in topology["nodes"] if node["kind"] == "gpu"]
    assert list(dict.fromkeys(gpus)) == ["node01", "node02", "node04"]
    ends = {(x["src"], x["dst"]) for x in topology["links"] if x["kind"] == "network"}
    assert {("node02/nic0", "leaf0"), ("node04/nic0", "leaf1"), ("leaf1", "spine0")} <= ends
    for extra in (("--fabric", "clos"), ("--up", "9"), ("--fabric-file", tmp_path / "ib.out")):
        assert tuccl("probe", *by_file, "--names", "node01,node02", *extra).code == 2


def test_probe_show_prints_every_gpu(tuccl: Tuccl, work: Path) -> None:
    matrix = tuccl("probe", "--show", work / "topology.json").out
    assert matrix.startswith("n0, n1:\n\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\t")
    rates = tuccl("probe", "--show", work / "topology.json", "--rates").out
    assert all(f"GPU{rank}" in rates for rank in range(8))


def test_probe_check_tells_drift_by_its_exit_code(tuccl: Tuccl, work: Path) -> None:
    check = ("--check", work / "topology.json", "--json")
    same = tuccl("probe", "--profile", "v100x4", "--nodes", 2, *check)
    other = tuccl("probe", "--profile", "v100x4", "--nodes", 2, "--gpus", "0-2", *check)
    assert (same.code, json.loads(same.out)["drift"]) == (0, [])
    assert other.code == 1
    assert "8 GPUs before, 6 now" in json.loads(other.out)["drift"]


def test_bound_names_the_cut(tuccl: Tuccl, work: Path) -> None:
    answer = tuccl("bound", work / "topology.json", "-c", "allgather,allreduce", "--json")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [r["collective"] for r in rows] == ["allgather", "allreduce"]
    assert all(r["algbw_bound_gbs"] > 0 and r["bottleneck"] for r in rows)


def test_sketch_writes_ranked_files_that_synth_reads(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    topology = work / "topology.json"
    answer = tuccl(
        "sketch", topology, "-c", "allgather", "-s", "64M", "-o", tmp_path / "s", "--json"
    )
    sketches = json.loads(answer.out)["sketches"]
    assert sketches[-1]["name"] == "full-mesh"
    assert sketches[0]["internode_links"] < sketches[-1]["internode_links"]
    assert all(p["stage"] and p["reason"] for p in sketches[0]["pruned"])
    program = tmp_path / "p.xml"
    made = tuccl(
        "synth", topology, "-c", "allgather", "-s", "64M", "--sketch", sketches[0]["file"],
        "--method", "greedy", "-o", program, "--json",
    )  # fmt: skip
    facts = json.loads(made.out)
    assert made.code == 0
    assert 0 < facts["fraction_of_bound"] <= 1
    assert tuccl("verify", program, "-c", "allgather").code == 0


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


def test_the_baseline_is_the_nccl_that_was_asked_for(
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
    checked = tuccl("calibrate", table, topology, *told, "--check", "--json")
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
        ((table, topology, "-o", tmp_path / "x"), "which collective"),
        ((table, topology, "-c", "allreduce,allgather", "-o", "x"), "one collective"),
        ((table, topology, "-c", "allreduce", "--launch", "x", "-o", "x"), "--launch x"),
        ((table, "-c", "allreduce", "-o", "x"), "tuccl-calibration/1"),
        ((table, topology, "-c", "allreduce", "--algorithm", "Star", "-o", "x"), "Star"),
    ):
        answer = tuccl("calibrate", *args)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert why in answer.err


def test_select_and_explain_agree(tuccl: Tuccl, work: Path) -> None:
    chosen = json.loads(
        tuccl("select", work / "table", "-c", "allgather", "-s", "1M", "--json").out
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
        json.loads(tuccl("select", *call, "--prefer", p, "--json").out) for p in ("speed", "sms")
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
    assert tuccl("select", *call, "--prefer", "size").code == 2
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
    assert {r["baseline"] for r in rows} == {"nccl", "msccl-default", "msccl-default-robust"}
    assert all(r["speedup"] >= 0.99 for r in rows if r["baseline"] == "nccl")
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
        words = ["--dialect", "mscclpp", "--hosts", 2, "-o", out, "--json"]
        answer = tuccl("export", work / source, *words)
        assert answer.code == 0, answer.err
        files = json.loads(answer.out)["files"]
        plans = [file for file in files if "/tuccl-" in file]
        assert plans and len(plans) == len(files) - 2
        assert all(tuccl("verify", file).code == 0 for file in plans)
    answer = tuccl("export", work / "program.xml", "--dialect", "executor", "-o", tmp_path / "x")
    assert answer.code == 2 and answer.err.count("\n") == 1
    words = ["--dialect", "mscclpp", "--hosts", 3, "-o", tmp_path / "y"]
    answer = tuccl("export", work / "program.xml", *words)
    assert answer.code == 2 and "divides 8 ranks" in answer.err


def test_synth_writes_the_forks_scratch_and_threads(tuccl: Tuccl, work: Path) -> None:
    """The fork reserves scratch for maxBytes at start, and adds a warp to nthreads itself."""
    tuccl("probe", "--profile", "ndv2", "--nodes", 2, "-o", work / "ndv2x2.json")
    words = ["synth", work / "ndv2x2.json", "-c", "alltoall", "--method", "hierarchical2"]
    for size, top in (("1M", 1 << 30), ("2G", 4 << 30)):
        file = work / f"fork-{size}.xml"
        knobs = ["--protocol", "Simple", "--channels", "1", "--threads", "256"]
        order = [*words, "-s", size, "--dialect", "fork", *knobs, "-o", file]
        assert tuccl(*order).code == 0
        program = parse_xml(file.read_bytes())
        assert (program.max_bytes, program.nthreads) == (top, 256)
        assert any(gpu.scratch_chunks for gpu in program.gpus)
        assert tuccl("verify", file, "--dialect", "fork").code == 0
    knobs = ["--protocol", "Simple", "--threads", "384"]
    answer = tuccl(*words, "-s", "1M", "--dialect", "fork", *knobs, "-o", file)
    assert answer.code == 2 and "divide a slice" in answer.err


def test_synth_makes_no_broadcast_that_hangs_between_hosts(tuccl: Tuccl, work: Path) -> None:
    """Kernel and proxy count the slots of Simple differently there (docs/msccl.md)."""
    tuccl("probe", "--profile", "v100x4", "--nodes", 1, "-o", work / "one.json")
    words = ["-c", "broadcast", "-s", "256M", "--method", "packing", "-o", work / "b.xml"]
    for machine, asked, protocol, said in (
        ("topology.json", (), ("LL", "LL128"), "made for another protocol"),
        ("topology.json", ("--protocol", "Simple"), ("Simple",), "warning"),
        ("one.json", (), ("Simple", "LL", "LL128"), ""),
    ):
        answer = tuccl("synth", work / machine, *words, *asked)
        assert answer.code == 0, answer.err
        assert parse_xml((work / "b.xml").read_bytes()).protocol in protocol
        assert said in answer.err and ("hang" in answer.err) == bool(said)


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


def test_an_interrupted_tune_leaves_no_table_and_resumes(
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
    assert len(err.strip().splitlines()) == 1
    assert not out.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["table.study"]
    again = tuccl(*tune, "-o", out)
    assert again.code == 2
    assert "--resume" in again.err
    resumed = tuccl(*tune, "--budget", 8, "--resume", "-o", out)
    assert resumed.code == 0, resumed.err
    assert tuccl("explain", out).code == 0


def test_synth_by_the_solver_says_what_is_proved(
    tuccl: Callable[..., Any], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "exact.xml"
    order = (
        "synth", work / "topology.json", "-c", "allgather", "-s", "1M", "--method", "taccl",
        "--time-limit", 4, "-o", out,
    )  # fmt: skip
    answer = tuccl(*order)
    assert answer.code == 0
    assert "bound" in answer.out and "gap" in answer.out
    assert tuccl("verify", out).code == 0
    facts = json.loads(tuccl(*order, "--json").out)
    proof = facts["proof"]
    assert 0 < proof["bound_us"] <= proof["time_us"]
    assert proof["gap"] == pytest.approx(1 - proof["bound_us"] / proof["time_us"])
    for name in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, name, None)
    refused = tuccl(*order)
    assert refused.code == 2
    assert "pip install tuccl[solver]" in refused.err
    assert refused.err.count("\n") == 1


def test_synth_keeps_to_the_steps_asked_for_and_says_what_is_proved(
    tuccl: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("ortools")
    topology, out = tmp_path / "t.json", tmp_path / "p.xml"
    assert tuccl("probe", "--profile", "v100x4", "-o", topology).code == 0
    order = (
        "synth", topology, "-c", "allgather", "-s", "8K", "--method", "fewstep", "--steps", 1,
        "-o", out,
    )  # fmt: skip
    answer = tuccl(*order)
    assert answer.code == 0
    assert "1 step of" in answer.out and "proved the fewest for 1 step" in answer.out
    facts = json.loads(tuccl(*order, "--json").out)
    assert facts["hops"] == 1
    assert "proved" in facts["outcome"]


def test_synth_shows_a_row_a_method_the_bound_and_the_cut(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    order = ("synth", work / "topology.json", "-c", "allgather", "-s", "1M", "-o", tmp_path / "p")
    answer = tuccl(*order, "--time-limit", 0.5)
    assert answer.code == 0
    header, *rows = answer.out.splitlines()[:-1]
    assert header.split()[:5] == ["method", "sketch", "chunks", "protocol", "channels"]
    methods = [row.split()[0] for row in rows if "%" in row]
    assert methods[-1] == "(bound)"
    assert len(methods) == len(set(methods))
    assert "were not tried" in answer.err
    facts = json.loads(tuccl(*order, "--time-limit", 0.5, "--json").out)
    assert facts["search_ended"] in ("limit", "clock")  # the latter on a busy machine
    assert facts["untried"] > 0
    assert f"{facts['method']}, {facts['protocol']}, {facts['instances']} channel" in answer.out
    cut = json.loads(tuccl("bound", *order[1:4], "--json").out)["bottleneck"]
    assert answer.out.rstrip().endswith(cut)


def test_synth_refuses_a_protocol_that_may_corrupt_data(tuccl: Tuccl, tmp_path: Path) -> None:
    topology, out = tmp_path / "t.json", tmp_path / "p.xml"
    assert tuccl("probe", "--profile", "dgx-1v", "-o", topology).code == 0
    order = ("synth", topology, "-c", "allgather", "-s", "1M", "--method", "allpairs", "-o", out)
    refused = tuccl(*order, "--protocol", "LL128")
    assert refused.code == 2
    assert "LL128 does not keep data whole on links that it uses, such as PCIe" in refused.err
    assert tuccl(*order, "--protocol", "LL", "--improve", 9).code == 0


@pytest.mark.parametrize("profile", ["rtx2080tix4", "torus-2x2", "gb200"])
def test_synth_finds_a_protocol_that_the_machine_may_use(
    tuccl: Tuccl, tmp_path: Path, profile: str
) -> None:
    topology, out = tmp_path / "t.json", tmp_path / "p.xml"
    assert tuccl("probe", "--profile", profile, "-o", topology).code == 0
    order = ("synth", topology, "-c", "allgather", "-s", "1M", "--method", "ring", "-o", out)
    facts = json.loads(tuccl(*order, "--json").out)
    assert profile == "gb200" or facts["protocol"] != "LL128"
    assert tuccl("bench", out, topology, "-s", "1M").code == 0


def test_machines_and_sketches_are_drawn(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    topology, picture = work / "topology.json", tmp_path / "p.svg"
    answer = tuccl("probe", "--show", topology, "--picture", picture)
    assert answer.code == 0
    assert f"{picture}: picture of 2x v100x4" in answer.err
    assert picture.read_text().startswith("<svg ")
    order = ("sketch", topology, "-c", "allgather", "-s", "1M", "--picture", picture)
    assert tuccl(*order).code == 0
    assert "before: 56 links" in picture.read_text()
    assert tuccl(*order[:-1], tmp_path).code == 2
