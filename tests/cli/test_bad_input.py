"""Bad input: one line that says what, where and how to fix it; exit 2; nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

Tuccl = Callable[..., Any]
GRAPH = (
    '<graphs version="1"><graph id="0" pattern="4">'
    '<channel><gpu dev="0"/></channel></graph></graphs>'
)

# Arguments after the verb; {t}, {p}, {x} are the topology, the program and the table.
BAD = [
    "probe --from nowhere.xml",
    "probe --from {p}",
    "probe --profile dgx-9",
    "probe --profile v100x4 --gpus 0-9",
    "probe --profile v100x4 --gpus zero",
    "probe --profile v100x4 --nodes 0",
    "probe --profile v100x4 --nodes 2 --fabric torus",
    "probe --profile v100x4 --nodes 2 --fabric clos --up -1",
    "probe --profile v100x4 -o nowhere/t.json",
    "probe --profile v100x4 -o {work}",
    "probe --profile v100x4 --by-rack",
    "probe --profile v100x4 --scale 0.1",
    "probe --show nowhere.json",
    "bound {t} -c gossip",
    "bound {p} -c allgather",
    "bound {t} -c broadcast --root 99",
    "sketch {t} -c allgather -s 0",
    "sketch {t} -c allgather,alltoall -s 1M",
    "synth {t} -c allgather -s 1M --method magic -o out.xml",
    "synth {t} -c allgather -s 1M --sketch {t} -o out.xml",
    "synth {t} -c allgather -s 1M --dialect nccl -o out.xml",
    "synth {t} -c allgather -s 1M --chunks 0 -o out.xml",
    "synth {t} -c allgather -s 1M --max-steps 2 -o out.xml",
    "synth {t} -c allgather -s 1M --method fewstep --max-steps 0 -o out.xml",
    "synth {t} -c allreduce -s 1M --method fewstep --max-steps 1 -o out.xml",
    "synth {t} -c allgather -s 1M --threads 33 -o out.xml",
    "synth {t} -c allgather -s 1M -o nowhere/out.xml",
    "verify nowhere.xml",
    "verify {t}",
    "verify {p} --dialect nccl",
    "synth {t} -c allgather -s 3 -o out.xml",
    "synth {t} -c allgather -s 900T -o out.xml",
    "sketch {t} -c allgather -s 3",
    "verify {p} -c alltoall,allgather",
    "bench {p} -s 1M",
    "bench {t} {t} -s 1M",
    "bench {p} {t} -s 1M:1K",
    "bench {p} {t} -s 1M --protocol LL256",
    "bench {p} {t} -s 1M --buffer 3",
    "bench {p} {t} -s 1M --channels 64",
    "bench {p} {t} -s 1M --on paper",
    "bench {p} {t} -s 1M --check",
    "bench {p} {t} -s 1M --op max",
    "bench {p} {t} -s 1M --on mpi --mpi nowhere/mpiexec",
    "bench {p} {t} -s 1M --on loopback --mpi openmpi",
    "bench {p} {t} -s 1M --on loopback --datatype int4",
    "bench {p} {t} -s 1M --on loopback --op xor",
    "bench {p} {t} -s 1M --peers gloo",
    "compare {x} --peers gloo",
    "bench --baseline nccl -c allgather {t} -s 1M --check",
    "bench {p} {t} -s 1M --launch-mode catapult",
    "bench {p} {t} -s 1M --machine nowhere.json",
    "bench {p} {t} -s 1M:4M:x2 --trace t.json",
    "bench {p} {t} -s 1M --trace nowhere/t.json",
    "bench {p} {t} -s 1M --trace-passes 2",
    "bench {p} {t} -s 1M --trace t.json --trace-passes 0",
    "bench {p} {t} -s 1T --protocol LL --buffer 256 --utilisation",
    "bench --baseline nccl {t} -s 1M",
    "bench --baseline gloo -c allgather {t} -s 1M",
    "bench --baseline nccl -c allgather {t} -s 1M --threads 64",
    "bench --baseline nccl -c allgather {t} -s 1M --nccl-version 2.3",
    "bench --baseline nccl -c allgather {t} -s 1M --nccl-version 2.99",
    "bench --baseline nccl -c alltoall {t} -s 1M --nccl-version 2.6",
    "bench --baseline msccl-default -c allgather {t} -s 1M --nccl-version 2.19",
    "bench {p} {t} -s 1M --nccl-version 2.19",
    "tune {t} -c allgather -s 1M --search luck -o table",
    "tune {t} -c allgather -s 1M --budget 0 -o table",
    "tune {t} -c allgather -s 1M --nccl-version two -o table",
    "tune {t} -c allgather -s 1M --on paper -o table",
    "tune {t} -c allgather -s 1M -o {t}",
    "tune {t} -c allgather -s 1M --on loopback -o table",
    "tune {t} -c allgather -s 1M --emulate -o table",
    "tune {t} -c allgather -s 1M --time-limit 0 -o table",
    "tune {t} -c allgather -s 1M --check -o table",
    "tune {t} -c allgather -o table",
    "tune {t} --workload {t} -o table",
    "tune {t} -c allgather -s 1M --warm-start {t} -o table",
    "compare nowhere",
    "compare {x} --baseline gloo",
    "compare {x} --baseline nccl --on mpi",
    "compare {x} --on loopback",
    "compare {x} --scale 0.1",
    "compare {x} --nccl-version 3",
    "compare {x} --report nowhere/r.html",
    "select {x} -c allgather -s much",
    "select {t} -c allgather -s 1M",
    "explain nowhere",
    "export {x} --dialect nccl -o out",
    "export {x} -o {work}",
    "run --table {x}",
    "run --table nowhere -- true",
    "run --table {x} -- no-such-command-anywhere",
    "dance",
    "tune",
]


@pytest.mark.parametrize("line", BAD)
def test_one_line_and_exit_2(
    tuccl: Tuccl, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = {p: p.stat().st_mtime_ns for p in work.rglob("*")}
    names = {
        "t": work / "topology.json",
        "p": work / "program.xml",
        "x": work / "table",
        "work": work,
    }
    answer = tuccl(*line.format(**names).split())
    assert answer.code == 2, answer
    assert answer.out == ""
    complaint = [
        x for x in answer.err.splitlines() if not x.startswith(("warning:", "export ", "#"))
    ]
    assert len(complaint) == 1, answer.err
    assert complaint[0].startswith("tuccl")
    assert not [p for p in tmp_path.iterdir() if p.name != "cache"]
    assert {p: p.stat().st_mtime_ns for p in work.rglob("*")} == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("verify {t}", "a tuccl-topology file; expected a program or a plan"),
        ("bench {t} {t} -s 1M", "a tuccl-topology file; expected a program or a plan"),
        ("explain {t}", "not a folder; expected one that `tuccl tune` wrote"),
        ("bench {p} {t} -s 64K:1M:4", "a step is in bytes, x4 multiplies"),
    ],
)
def test_a_refusal_says_what_is_wrong(tuccl: Tuccl, work: Path, line: str, words: str) -> None:
    names = {"t": work / "topology.json", "p": work / "program.xml"}
    assert words in tuccl(*line.format(**names).split()).err


def test_a_graph_file_is_named_as_such(tuccl: Tuccl, tmp_path: Path) -> None:
    graph = tmp_path / "graph.xml"
    graph.write_text(GRAPH)
    for args in (("probe", "--from", graph), ("bound", graph, "-c", "allgather")):
        answer = tuccl(*args)
        assert answer.code == 2
        assert "graph" in answer.err


def test_an_impossible_sketch_is_named_with_its_rule(
    tuccl: Tuccl, work: Path, tmp_path: Path
) -> None:
    tuccl("sketch", work / "topology.json", "-c", "allgather", "-s", "1M", "-o", tmp_path / "s")
    file = min((tmp_path / "s").iterdir())
    sketch = json.loads(file.read_text())
    sketch["links"] = [link for link in sketch["links"] if not link["inter"]]
    sketch["pruned"], sketch["relays"] = [], {}
    file.write_text(json.dumps(sketch))
    out = tmp_path / "p.xml"
    answer = tuccl(
        "synth", work / "topology.json", "-c", "allgather", "-s", "1M", "--sketch", file, "-o", out
    )
    assert answer.code == 2
    assert "rank" in answer.err
    assert not out.exists()


@pytest.mark.parametrize("seed", range(3))
def test_damage_at_any_byte_never_ends_in_a_traceback(
    tuccl: Tuccl, work: Path, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    verbs = {
        "program.xml": ("verify",),
        "topology.json": ("probe", "--show"),
    }
    for name, verb in verbs.items():
        data = (work / name).read_bytes()
        for _ in range(60):
            place = rng.randrange(len(data))
            damaged = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
            cut = damaged[: rng.randrange(len(data))] if rng.random() < 0.3 else damaged
            file = tmp_path / name
            file.write_bytes(cut)
            answer = tuccl(*verb, file)
            assert answer.code in (0, 1, 2)
            assert "Traceback" not in answer.err
            assert answer.code != 2 or len(answer.err.strip().splitlines()) == 1
