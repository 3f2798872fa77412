"""`tuccl sketch` and `tuccl synth`: their files, and what they refuse."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuccl.mscclpp import ExecutionPlan
from tuccl.program import parse_xml
from tuccl.synth.few_step.few_step import _solve_briefly

Tuccl = Callable[..., Any]


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


def test_synth_writes_the_forks_scratch_and_threads(tuccl: Tuccl, work: Path) -> None:
    """The fork reserves scratch for maxBytes at start, and adds a warp to nthreads itself."""
    tuccl("probe", "--profile", "ndv2", "--nodes", 2, "-o", work / "ndv2x2.json")
    words = ["synth", work / "ndv2x2.json", "-c", "alltoall", "--method", "hierarchical2"]
    for size, nbytes in (("1K", 1 << 10), ("1M", 1 << 20), ("2G", 2 << 30)):
        file = work / f"fork-{size}.xml"
        knobs = ["--protocol", "Simple", "--channels", "1", "--threads", "256"]
        order = [*words, "-s", size, "--dialect", "fork", *knobs, "-o", file]
        answer = tuccl(*order)
        assert answer.code == 0
        program = parse_xml(file.read_bytes())
        chunks = max(gpu.scratch_chunks for gpu in program.gpus)
        top = max(2 * nbytes, min(1 << 30, (1 << 30) // chunks * program.nchunks))
        assert abs((program.max_bytes or 0) - top) < program.nchunks and program.nthreads == 256
        reserved = -(-(program.max_bytes or 0) * chunks // program.nchunks)
        assert reserved <= 1 << 30 or program.max_bytes == 2 * nbytes
        assert f"reserves {reserved} bytes" in answer.err
        assert tuccl("verify", file, "--dialect", "fork").code == 0
    knobs = ["--protocol", "Simple", "--threads", "384"]
    answer = tuccl(*words, "-s", "1M", "--dialect", "fork", *knobs, "-o", file)
    assert answer.code == 2 and "divide a slice" in answer.err


def test_synth_writes_a_plan_of_mscclpp(tuccl: Tuccl, work: Path) -> None:
    tuccl("probe", "--profile", "ndv4", "-o", work / "ndv4.json")
    order = ["synth", work / "ndv4.json", "-c", "allgather", "-s", "1M", "--method", "allpairs"]
    file = work / "plan.json"
    answer = tuccl(*order, "--dialect", "mscclpp", "-o", file)
    assert answer.code == 0, answer.err
    assert "GB/s simulated for MSCCL++" in answer.out
    assert tuccl("verify", file, "-c", "allgather").out.endswith("8 ranks, mscclpp\n")
    facts = json.loads(tuccl(*order, "--dialect", "mscclpp", "-o", file, "--json").out)
    plan = ExecutionPlan.read(file)
    assert facts["time_us"] > 0 and facts["max_bytes"] == plan.max_message_size >= 1 << 20
    assert plan.run(1 << 20).wrong == 0
    refused = tuccl(*order, "--dialect", "mscclpp", "-o", work / "no" / "plan.json")
    assert refused.code == 2 and refused.err.count("\n") == 1
    refused = tuccl(*order[:2], "-c", "gather", "-s", "1M", "--dialect", "mscclpp", "-o", file)
    assert refused.code == 2 and "MSCCL++ has no plans" in refused.err


def test_synth_makes_no_broadcast_that_hangs_between_hosts(tuccl: Tuccl, work: Path) -> None:
    """Kernel and proxy count the slots of Simple differently there (docs/reference/msccl.md)."""
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
    assert "pip install 'ortools==9.15.*'" in refused.err
    assert refused.err.count("\n") == 1


def test_without_a_solver_all_else_is_tried(
    tuccl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allreduce within groups of ranks asks for the solver later than other schedules do."""
    _solve_briefly.cache_clear()
    for name in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, name, None)
    cluster = tmp_path / "t.json"
    assert tuccl("probe", "--profile", "v100x4", "--nodes", 2, "-o", cluster).code == 0
    call = (cluster, "-c", "allreduce", "-s", "64K")
    answer = tuccl("synth", *call, "-o", tmp_path / "p.xml")
    assert answer.code == 0, answer.err
    answer = tuccl("tune", *call, "--budget", 20, "-o", tmp_path / "table")
    assert answer.code == 0, answer.err
    answer = tuccl("synth", *call, "--method", "fewstep", "-o", tmp_path / "q.xml")
    assert answer.code == 2
    assert "OR-Tools is not installed" in answer.err and answer.err.count("\n") == 1


def test_synth_keeps_to_the_requested_steps_and_says_what_is_proved(
    tuccl: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("ortools")
    topology, out = tmp_path / "t.json", tmp_path / "p.xml"
    assert tuccl("probe", "--profile", "v100x4", "-o", topology).code == 0
    order = (
        "synth", topology, "-c", "allgather", "-s", "8K", "--method", "fewstep", "--max-steps", 1,
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
    assert tuccl(*order, "--protocol", "LL").code == 0


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
