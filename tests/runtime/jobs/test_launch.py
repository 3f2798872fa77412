"""Launching: the environment reaches the program, its exit code comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.runtime.jobs.launch import run_command, run_environment, shell_block
from tuccl.runtime.table.store import load_table, save_table

PRINT = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


@pytest.mark.parametrize("dialect", ["executor", "rccl", "fork"])
def test_the_environment_names_the_export(stored: Path, tmp_path: Path, dialect: str) -> None:
    values, notes = run_environment(stored, dialect, tmp_path / "cache")
    assert values["TUCCL_TABLE"] == str(stored)
    assert values["TUCCL_SIGNATURE"] == load_table(stored).lookup.signature
    assert any(str(tmp_path / "cache") in note for note in notes)
    if dialect == "fork":
        files = values["MSCCL_XML_FILES"].split(":")
        assert 1 <= len(files) <= 4 and all(Path(file).is_file() for file in files)
        assert values["NCCL_ALGO"].split(",")[0] == "MSCCL"
    else:
        assert Path(values["MSCCL_ALGO_DIR"]).is_dir()
        enable = "NCCL_MSCCL_ENABLE" if dialect == "executor" else "RCCL_MSCCL_ENABLE"
        assert values[enable] == "1"


def test_a_preference_has_an_export_of_its_own(stored: Path, tmp_path: Path) -> None:
    folders = {
        run_environment(stored, "executor", tmp_path / "c", prefer=prefer)[0]["MSCCL_ALGO_DIR"]
        for prefer in (None, "speed", "sms")
    }
    assert len(folders) == 3
    with pytest.raises(InputError, match="own order"):
        run_environment(stored, "executor", tmp_path / "c", scheduler=True, prefer="sms")


def test_a_communicator_gets_as_many_channels_as_the_programs(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the executor's releases for NCCL 2.17 and 2.18 fail the call."""
    most = max(p.nchannels for p in load_table(stored).programs.values())
    monkeypatch.delenv("NCCL_MIN_NCHANNELS", raising=False)
    for scheduler in (False, True):
        values, _ = run_environment(stored, "executor", tmp_path / "c", scheduler=scheduler)
        assert values["NCCL_MIN_NCHANNELS"] == str(most)
    monkeypatch.setenv("NCCL_MIN_NCHANNELS", "31")
    assert run_environment(stored, None, tmp_path / "c")[0]["NCCL_MIN_NCHANNELS"] == "31"
    assert "NCCL_MIN_NCHANNELS" not in run_environment(stored, "fork", tmp_path / "c")[0]


def test_rccl_gets_the_buffers_that_are_not_its_own(stored: Path, tmp_path: Path) -> None:
    values, _ = run_environment(stored, "rccl", tmp_path / "cache")
    assert values["NCCL_LL_BUFFSIZE"] == str(512 << 10)
    assert "NCCL_LL_BUFFSIZE" not in run_environment(stored, "executor", tmp_path / "c")[0]


def test_a_program_sees_it_and_its_exit_code_comes_back(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "as it was")
    values, _ = run_environment(stored, "executor", tmp_path / "cache")
    assert run_command([sys.executable, "-c", PRINT, str(tmp_path / "seen")], values) == 0
    seen = json.loads((tmp_path / "seen").read_text())
    assert values.items() <= seen.items() and seen["KEPT"] == "as it was"
    assert run_command([sys.executable, "-c", "raise SystemExit(7)"], values) == 7
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_command([sys.executable, "-c", killed], values) == 128 + signal.SIGKILL


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    target = tmp_path / "$(touch x); `y` *"
    assert run_command([sys.executable, "-c", PRINT, str(target)], {}) == 0
    assert target.is_file()


def test_the_block_means_the_same_to_a_shell() -> None:
    values = {"A": "plain", "B": "two words", "C": "it's $HOME `x`;\n#!", "D": ""}
    script = f"{shell_block(values)}\n{sys.executable} -c '{PRINT.replace(chr(39), chr(34))}' $0"
    answer = subprocess.run(
        ["/bin/sh", "-c", script, "/dev/stdout"], capture_output=True, check=True, text=True
    )
    assert values.items() <= json.loads(answer.stdout).items()


@pytest.mark.parametrize("command", [[], ["/no/such/command"], ["/etc"], ["a\0b"]])
def test_what_cannot_be_started_is_refused(command: list[str]) -> None:
    with pytest.raises(InputError, match="start"):
        run_command(command, {})


def test_termination_reaches_the_program(tmp_path: Path) -> None:
    """The launcher itself as a process: ending it ends what it started."""
    child = "import time, sys, os; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "from tuccl.runtime.jobs.launch import run_command; import sys; "
        f"sys.exit(run_command([sys.executable, '-c', {child!r}, sys.argv[1]], {{}}))"
    )
    started = tmp_path / "pid"
    launcher = subprocess.Popen([sys.executable, "-c", code, str(started)])
    deadline = time.monotonic() + 20
    while not (started.exists() and started.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(started.read_text())
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(20) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_agreed_buffers_are_set_and_default_ones_are_not(
    hand: SimpleNamespace, tmp_path: Path
) -> None:
    topology = hand.mesh()
    made = hand.files()
    knobs = Knobs("Simple", 1, 512, 1 << 20)
    entries = [
        hand.entry(1024, 2048, hand.candidate(made["LL"], 1.0)),
        hand.entry(2048, 4096, hand.candidate(made["Simple"], 1.0, knobs)),
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, made.values())
    values, _ = run_environment(tmp_path / "t", "executor", tmp_path / "cache")
    assert values["NCCL_BUFFSIZE"] == str(1 << 20)
    assert "NCCL_LL_BUFFSIZE" not in values


def test_the_users_cache_folder_is_the_usual_one(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    values, _ = run_environment(stored, "executor")
    assert Path(values["MSCCL_ALGO_DIR"]).is_relative_to(tmp_path / "xdg" / "tuccl")
