"""Ranks as processes: they agree on a table, or all keep the default, whatever happens to one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import tuccl
from tuccl.errors import InputError
from tuccl.runtime import load_table, run_environment
from tuccl.runtime.jobs.machine_check import changed_machine
from tuccl.selection import Selector, check_table_folder
from tuccl.topology import join, keep_gpus, load_profile

AGREE = Path(tuccl.__path__[0]) / "worker" / "tuccl-agree"
RANKS = 4


def start_ranks(folder: Path, timeout_ms: int, ranks: range) -> list[subprocess.Popen[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = ["--meet", f"127.0.0.1:{port}", "--ranks", str(RANKS)]
    meeting += ["--timeout-ms", str(timeout_ms)]
    return [
        subprocess.Popen(
            [AGREE, folder, load_table(folder).lookup.signature, "--rank", str(rank), *meeting],
            env={**os.environ, "TUCCL_TOKEN": "a token of this test"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs_leaves_the_default_to_all(
    stored: Path, how: signal.Signals
) -> None:
    jobs = start_ranks(stored, 2000, range(RANKS - 1))  # the last one never comes: all are waiting
    jobs[2].send_signal(how)
    try:
        outputs = [rank.communicate(timeout=60) for rank in jobs[:2]]
    finally:
        jobs[2].kill()
        jobs[2].communicate()
    assert [rank.returncode for rank in jobs[:2]] == [1, 1]
    assert all(not out and "default" in err and err.count("\n") == 1 for out, err in outputs)


def test_learned_times_stay_beside_the_table(stored: Path) -> None:
    before = load_table(stored).lookup
    selector = Selector((stored / "table.txt").read_bytes())
    selector.add_observed(str(stored), [(0, 5.0)] * 4 + [(1, 9.0)])
    [first, second], warning = selector.observed(str(stored))
    assert (first.count, second.count, warning) == (4, 1, "")
    assert first.recent_us == 5.0 and first.p10_us <= first.median_us <= first.p99_us
    assert load_table(stored).lookup == before
    (stored / "learned.txt").write_text("cut off")
    stats, warning = selector.observed(str(stored))
    assert not stats and "learned.txt" in warning
    with pytest.raises(InputError, match="candidate 99"):
        selector.add_observed(str(stored), [(99, 5.0)])


def test_the_plugins_refuse_what_python_refuses(stored: Path) -> None:
    check_table_folder(str(stored))
    program = next((stored / "algorithms").glob("*.xml"))
    program.unlink()
    with pytest.raises(InputError, match=program.name):
        check_table_folder(str(stored))
    with pytest.raises(InputError, match=program.name):
        run_environment(stored, "executor", stored.parent / "cache")


@pytest.mark.parametrize("name", ["table.txt", "algorithms", "a program"])
def test_no_link_leads_out_of_the_folder(stored: Path, tmp_path: Path, name: str) -> None:
    """Whatever a link points to, the very same file too: it is refused before it is read."""
    path = next((stored / "algorithms").glob("*.xml")) if name == "a program" else stored / name
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(InputError, match=path.name):
        check_table_folder(str(stored))


def test_ranks_hold_the_same_table(stored: Path) -> None:
    jobs = start_ranks(stored, 30_000, range(RANKS))
    outputs = [rank.communicate(timeout=60)[0].split() for rank in jobs]
    assert [rank.returncode for rank in jobs] == [0] * RANKS
    assert len({words[3] for words in outputs}) == 1


def test_another_machine_is_named() -> None:
    dgx = load_profile("dgx-1v")
    assert not changed_machine(dgx, load_profile("dgx-1v"))
    assert changed_machine(dgx, keep_gpus(dgx, range(4)))
    assert changed_machine(join(dgx, 2), dgx)
