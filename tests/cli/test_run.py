"""run: the table reaches every rank by the launcher's own options, or it is said how."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.fake_nccl_tests import make_fakes
from tests.runtime.conftest import HAND
from tests.runtime.nccl.test_nccl_table import nccl_table
from tuccl.cli import main
from tuccl.runtime import load_table, save_table
from tuccl.runtime.jobs import plugin_path
from tuccl.topology import (
    join,
    keep_gpus,
    load_profile,
    load_topology,
    save_topology,
    signature,
)

PRINT = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A table of programs and one of NCCL's own choices."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    topology = HAND.mesh()
    programs, files = HAND.usual_table(topology)
    save_table(programs, tmp_path / "programs", topology, files)
    save_table(nccl_table(HAND), tmp_path / "stock", topology, [])
    return SimpleNamespace(programs=tmp_path / "programs", stock=tmp_path / "stock")


def seen_by(folder: Path, *words: str) -> dict[str, str]:
    """The environment that the started program saw."""
    out = folder / "seen.json"
    before, after = words[: words.index("--") + 1], words[words.index("--") + 1 :]
    assert main(["run", *before, *after, sys.executable, "-c", PRINT, str(out)]) == 0
    seen: dict[str, str] = json.loads(out.read_text())
    return seen


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "srun"])
def test_each_launcher_hands_the_variables_on(
    tables: SimpleNamespace, tmp_path: Path, launcher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fake launchers pass on what they are told to, and nothing else."""
    start = make_fakes(tmp_path / "fakes").launcher(launcher)
    seen = seen_by(tmp_path, "--table", str(tables.stock), "--", start, "-n", "2")
    assert seen["NCCL_TUNER_PLUGIN"] == seen["NCCL_PROFILER_PLUGIN"] == str(plugin_path("tuner"))
    assert seen["TUCCL_TABLE"] == str(tables.stock) and len(seen["TUCCL_TABLE_SHA256"]) == 64
    told = capsys.readouterr().err
    assert f"export TUCCL_TABLE={tables.stock}" in told and f"{start} " in told
    ranks = load_table(tables.stock).lookup.ranks
    assert (f"the table is for {ranks} ranks, CMD starts 2" in told) == (ranks != 2)
    seen = seen_by(tmp_path, "--table", str(tables.programs), "--", start, "-n", "2")
    assert Path(seen["MSCCL_ALGO_DIR"]).is_dir() and "NCCL_TUNER_PLUGIN" not in seen


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpiexec.mpich"])
def test_real_launchers_do(tables: SimpleNamespace, tmp_path: Path, launcher: str) -> None:
    if shutil.which(launcher) is None:
        pytest.skip(f"no {launcher}")
    root = ["--allow-run-as-root"] if "openmpi" in launcher and os.geteuid() == 0 else []
    words = ["--table", str(tables.stock), "--", launcher, *root, "-n", "1"]
    assert seen_by(tmp_path, *words)["TUCCL_TABLE"] == str(tables.stock)


def test_the_scheduler_instead_of_a_folder(tables: SimpleNamespace, tmp_path: Path) -> None:
    words = ["--table", str(tables.programs), "--scheduler", "--"]
    seen = seen_by(tmp_path, *words)
    assert seen["MSCCL_SCHEDULER"] == str(plugin_path("scheduler"))
    assert "MSCCL_ALGO_DIR" not in seen and seen["TUCCL_TABLE"] == str(tables.programs)


def test_tuccls_library_in_nccls_place(
    tables: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another library serves as it: any can be loaded before a program."""
    for name in ("libtuccl-cuda.so", "libnccl-tuccl.so"):
        shutil.copy(plugin_path("tuner"), tmp_path / name)
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(tmp_path / "libtuccl-cuda.so"))
    words = ["--table", str(tables.programs), "--cuda", "--"]
    seen = seen_by(tmp_path, *words)
    assert seen["LD_PRELOAD"] == str(tmp_path / "libnccl-tuccl.so")
    assert seen["TUCCL_TABLE"] == str(tables.programs) and "MSCCL_ALGO_DIR" not in seen
    assert seen["TUCCL_BOOTSTRAP"].startswith("127.0.0.1:") and seen["TUCCL_TOKEN"]
    monkeypatch.setenv("LD_PRELOAD", str(plugin_path("tuner")))
    both = f"{tmp_path / 'libnccl-tuccl.so'}:{plugin_path('tuner')}"
    assert seen_by(tmp_path, *words)["LD_PRELOAD"] == both
    (tmp_path / "libnccl-tuccl.so").unlink()
    assert main(["run", *words, "true"]) == 2


def test_a_machine_of_other_measured_rates_is_reported_and_keeps_the_table(
    tables: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = load_table(tables.stock).topology
    paths = []
    for name, part in (("same", 1.0), ("slower", 0.6)):
        links = tuple(replace(x, measured=part * x.bandwidth) for x in tuned.links)
        save_topology(replace(tuned, links=links), tmp_path / f"{name}.json")
        paths.append(str(tmp_path / f"{name}.json"))
    measured = load_topology(paths[0])
    save_table(nccl_table(HAND), tmp_path / "measured", measured, [])
    for path, drifted in zip(paths, (False, True), strict=True):
        words = ["--table", str(tmp_path / "measured"), "--topology", path, "--"]
        assert "TUCCL_TABLE" in seen_by(tmp_path, *words)
        assert ("GB/s measured before" in capsys.readouterr().err) == drifted


def test_a_changed_machine_runs_without_the_table(
    tables: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without what an older run left in the shell, too: that is of the same old machine."""
    save_topology(load_profile("ndv2"), tmp_path / "now.json")
    monkeypatch.setenv("TUCCL_TABLE", "/left/over")
    words = ["--table", str(tables.stock), "--topology", str(tmp_path / "now.json"), "--"]
    seen = seen_by(tmp_path, *words)
    assert "TUCCL_TABLE" not in seen and "NCCL_TUNER_PLUGIN" not in seen
    assert "run `tuccl tune` again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--dialect", "fork"], "a nccl table; expected --dialect nccl"),
        (["--dialect", "star"], "expected one of executor, rccl, fork, nccl"),
        (["--scheduler"], "serves executor tables"),
        (["--cuda"], "expected a table of programs"),
        (["--cuda", "--explore", "9"], "not the library of --cuda"),
    ],
)
def test_what_cannot_load_the_table_is_refused(
    tables: SimpleNamespace, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--table", str(tables.stock), *words, "--", "true"]) == 2
    assert why in capsys.readouterr().err


def test_options_of_plugins_are_of_no_effect_on_a_folder_of_programs(
    tables: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--table", str(tables.programs), "--bootstrap", "127.0.0.1:4711", "--explore", "9"]
    seen = seen_by(tmp_path, *words, "--")
    warned = capsys.readouterr().err
    assert "--bootstrap: no effect" in warned and "--explore: no effect" in warned
    assert "TUCCL_BOOTSTRAP" not in seen and "TUCCL_EXPLORE" not in seen
    assert main(["run", *words[:3], "127.0.0.1:port", "--", "true"]) == 2


def test_bench_says_where_nothing_proves_that_msccl_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology, t = HAND.mesh(), tmp_path / "t.json"
    save_topology(topology, t)
    synth = ["synth", str(t), "-c", "allgather", "-s", "1M", "--method", "ring"]
    synth += ["--protocol", "Simple"]
    assert main([*synth, "-o", str(tmp_path / "p.xml")]) == 0
    fakes = make_fakes(tmp_path / "fakes", fault="no-log")
    launcher = f"{fakes.launcher('mpirun')} -np {topology.ranks}"
    named = ["--nccl-tests", str(fakes.tests), "--shared", str(tmp_path / "s")]
    words = ["bench", str(tmp_path / "p.xml"), str(t), "-s", "1M", "--on", "nccl-tests"]
    assert main([*words, *named, "--launcher", launcher]) == 0
    assert "not proven that MSCCL ran" in capsys.readouterr().err
    assert main([*words[:-1], "sim", "--launcher", launcher]) == 2
    assert "--launcher: --on sim starts none" in capsys.readouterr().err


def test_torchrun_gets_other_hosts(
    tables: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/bin/sh\nexec env\n")
    torchrun.chmod(0o755)
    assert main(["run", "--table", str(tables.stock), "--", str(torchrun), "a.py"]) == 0
    assert "start it by `tuccl run` on every host" in capsys.readouterr().err


def several(folder: Path, hosts: int, name: str) -> Path:
    """A folder of tables with one of NCCL's own choices for so many hosts of two GPUs."""
    topology = join(keep_gpus(load_profile("ndv2"), range(2)), hosts)
    here = {"signature": signature(topology), "ranks": topology.ranks, "hosts": hosts}
    save_table(replace(nccl_table(HAND), **here), folder / name, topology, [])
    return folder


def test_of_several_tables_that_of_the_hosts_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = several(several(tmp_path / "tables", 4, "four"), 3, "three")
    words = ["--table", str(tables), "--hosts"]
    assert seen_by(tmp_path, *words, "n0,n3,n2", "--")["TUCCL_TABLE"] == str(tables / "three")
    assert seen_by(tmp_path, *words, "a,b,c,d", "--")["TUCCL_TABLE"] == str(tables / "four")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[4-6]")
    assert seen_by(tmp_path, *words[:2], "--")["TUCCL_TABLE"] == str(tables / "three")
    capsys.readouterr()
    assert "TUCCL_TABLE" not in seen_by(tmp_path, *words, "n1,n2", "--")
    assert "no table is for 4 ranks on 2 hosts" in capsys.readouterr().err


def test_a_lost_host_gets_a_table_in_time_or_the_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = several(tmp_path / "tables", 4, "four")
    words = ["--table", str(tables), "--hosts", "n0,n1,n2", "--elastic"]
    assert "TUCCL_TABLE" not in seen_by(tmp_path, *words, "0.05", "--")
    assert "none could be derived: not done after 0.05 s" in capsys.readouterr().err
    seen = seen_by(tmp_path, *words, "100", "--")
    derived = load_table(seen["TUCCL_TABLE"])
    assert (derived.lookup.ranks, derived.lookup.hosts, derived.lookup.dialect) == (6, 3, "nccl")
    assert seen["TUCCL_SIGNATURE"] == signature(derived.topology)
    assert "derived in" in capsys.readouterr().err
    assert seen_by(tmp_path, *words, "0", "--")["TUCCL_TABLE"] == seen["TUCCL_TABLE"]
    assert main(["run", "--table", str(tables / "four"), "--elastic", "9", "--", "true"]) == 2
    assert "is one table; name the folder it is in" in capsys.readouterr().err
