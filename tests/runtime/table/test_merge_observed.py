"""What jobs learned is merged into the table: its order follows, nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.runtime.nccl.test_nccl_table import nccl_table
from tests.torch_backend.conftest import write_table
from tuccl.cli import main
from tuccl.errors import InputError
from tuccl.runtime import load_table, save_table
from tuccl.runtime.table import in_use, merge_observed, observed_timings
from tuccl.runtime.table.text import table_text
from tuccl.selection import Selector
from tuccl.topology.probing import read_use


@pytest.fixture
def table(hand: SimpleNamespace, tmp_path: Path) -> Path:
    """A table of NCCL's own choices: in its first entry the ring (0), the tree (1), the default."""
    save_table(nccl_table(hand), tmp_path / "table", hand.mesh(), ())
    return tmp_path / "table"


def learn(folder: Path, *times: tuple[int, float]) -> None:
    Selector(table_text(load_table(folder).lookup)).add_observed(
        str(folder), [t for t in times for _ in range(9)]
    )


def names(folder: Path, entry: int = 0) -> list[str]:
    return [c.name for c in load_table(folder).lookup.entries[entry].candidates]


def test_candidates_come_in_the_order_of_service(table: Path) -> None:
    before = load_table(table).lookup
    learn(table, (0, 50.0), (1, 6.0))
    assert merge_observed(table)
    after = load_table(table).lookup
    ring, tree, default = before.entries[0].candidates
    assert [c.name for c in after.entries[0].candidates][:2] == [tree.name, ring.name]
    assert default.name in names(table)
    assert after.entries[1:] == before.entries[1:]
    first, second = after.entries[0].candidates[:2]
    assert first.stats is not None and second.stats is not None
    assert first.stats.recent_us < second.stats.recent_us
    assert tree.stats is not None and first.stats.median_us == tree.stats.median_us
    assert "in service: 9 times" in first.notes[-1]


def test_what_was_measured_goes_on_counting_and_folding_twice_is_folding_once(table: Path) -> None:
    learn(table, (0, 50.0), (1, 6.0))
    before = {row.candidate: row.calls for row in observed_timings(table)[0]}
    assert merge_observed(table)
    once = (table / "table.json").read_bytes()
    assert {row.candidate: row.calls for row in observed_timings(table)[0]} == before
    assert not merge_observed(table)
    assert (table / "table.json").read_bytes() == once
    learn(table, (0, 6.0))  # the tree, now first, and others: they add up
    assert sum(row.calls for row in observed_timings(table)[0]) == sum(before.values()) + 9


def test_every_candidate_keeps_its_own_times_when_three_change_places(table: Path) -> None:
    """From ring, tree, default to tree, default, ring: no swap, so its inverse is another one."""
    learn(table, (0, 50.0), (1, 6.0), (2, 20.0))
    before = {row.candidate: row.median_us for row in observed_timings(table)[0]}
    order = names(table)
    assert merge_observed(table)
    assert names(table) == [order[1], order[2], order[0]]
    assert {row.candidate: row.median_us for row in observed_timings(table)[0]} == before


def test_nothing_learned_changes_nothing(table: Path) -> None:
    before = (table / "table.json").read_bytes()
    assert not merge_observed(table)
    assert (table / "table.json").read_bytes() == before


def test_a_running_job_keeps_its_table(table: Path) -> None:
    learn(table, (0, 50.0), (1, 6.0))
    with in_use(table), in_use(table), pytest.raises(InputError, match="a running job uses"):
        merge_observed(table)
    assert merge_observed(table)


def test_programs_stay_with_their_table(stored: Path) -> None:
    learn(stored, (0, 500.0), (1, 1.0))
    programs = load_table(stored).lookup.programs
    assert merge_observed(stored)
    assert load_table(stored).lookup.programs == programs


def test_a_full_disk_leaves_the_table_as_it_was(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(table, (0, 50.0), (1, 6.0))
    before = {p.name: p.read_bytes() for p in table.iterdir() if p.is_file()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        merge_observed(table)
    monkeypatch.undo()
    left = {p.name: p.read_bytes() for p in table.iterdir() if p.is_file()}
    assert {k: v for k, v in left.items() if k != "use.lock"} == before
    assert [p.name for p in table.parent.iterdir()] == ["table"]
    assert merge_observed(table)


_MERGES = """
import sys
from pathlib import Path
from tuccl.selection import Selector
from tuccl.topology.probing import read_use
from tuccl.runtime.table import load_table, merge_observed
from tuccl.runtime.table.text import table_text
folder = Path(sys.argv[1])
for turn in range(1000):
    text = table_text(load_table(folder).lookup)
    Selector(text).add_observed(str(folder), [(turn % 2, 50.0), (1 - turn % 2, 6.0)] * 9)
    print("learned", flush=True)
    merge_observed(folder)
"""


def test_a_killed_merge_leaves_the_old_or_the_new_table(table: Path) -> None:
    """Killed while merges reverse the order: the table opens, no time is lost."""
    learned = 0
    for wait in (0.01, 0.03, 0.05, 0.08, 0.1):
        command = [sys.executable, "-c", _MERGES, str(table)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as merging:
            try:
                assert merging.stdout is not None and merging.stdout.readline() == "learned\n"
                time.sleep(wait)
            finally:
                merging.kill()
            learned += 1 + merging.communicate(timeout=60)[0].count("learned")
        rows, left_aside = observed_timings(table)
        calls = sum(row.calls for row in rows)
        assert not left_aside and learned <= calls / 18 <= learned + 1
        learned = calls // 18


def test_learn_prints_and_writes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", str(table)]) == 0
    assert "no job measured anything" in capsys.readouterr().err
    learn(table, (0, 50.0), (1, 6.0))
    assert main(["learn", str(table)]) == 0
    assert "1 to 2" in capsys.readouterr().out
    row = next(row for row in observed_timings(table)[0] if row.place == 0)
    assert row.tuned_us and row.drift == pytest.approx(50.0 / row.tuned_us, rel=0.01)
    assert row.gain == pytest.approx(50.0 / 6.0, rel=0.01)
    assert main(["learn", str(table), "--write"]) == 0
    assert "written" in capsys.readouterr().err
    assert names(table)[0].startswith("nccl-Tree")
    assert main(["learn", str(table), "--write"]) == 0
    assert "nothing to change" in capsys.readouterr().err


def test_bytes_between_hosts_are_what_probe_prunes_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_table(tmp_path / "pair", 2, 1, largest=1 << 20, collectives=("allgather",))
    file = tmp_path / "traffic.txt"
    assert main(["learn", str(folder), "--traffic", str(file)]) == 2
    assert "no job was seen to send by a program between hosts" in capsys.readouterr().err
    learn(folder, (0, 5.0))
    calls = observed_timings(folder)[0][0].calls
    assert main(["learn", str(folder), "--traffic", str(file)]) == 0
    size = 1 << 10  # the middle of the entry's sizes; each of two hosts sends its half
    assert read_use(file) == {frozenset({"n0", "n1"}): calls * size}
