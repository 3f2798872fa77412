"""The built plugins asked about every row of a table: one answer with Python's selection."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.runtime.nccl.test_nccl_table import nccl_table
from tuccl.cli import main
from tuccl.runtime import load_table, save_table
from tuccl.runtime.jobs import check_plugin


@pytest.fixture
def stock(hand: SimpleNamespace, tmp_path: Path) -> Path:
    save_table(nccl_table(hand), tmp_path / "stock", hand.mesh(), [])
    return tmp_path / "stock"


def test_the_scheduler_and_the_tuner_agree_with_python(stored: Path, stock: Path) -> None:
    for folder in (stored, stock):
        asked = check_plugin(folder, load_table(folder).lookup)
        assert asked and all(each.agrees for each in asked)
        assert {each.plugin for each in asked if each.sizes} - {"default", None}
        for each in asked:
            top = each.row.max_bytes
            assert all(each.row.min_bytes <= n and (top is None or n < top) for n in each.sizes)


def test_a_plugin_that_chooses_otherwise_is_found_out(stock: Path, hand: SimpleNamespace) -> None:
    """Another table in the folder than the one explained stands for a plugin gone wrong."""
    table = nccl_table(hand)
    first = table.entries[0]
    default_only = msgspec.structs.replace(first, candidates=(first.default,))
    other = msgspec.structs.replace(table, entries=(default_only, *table.entries[1:]))
    asked = check_plugin(stock, other)
    assert {each.agrees for each in asked} == {False, True}
    wrong = [each for each in asked if not each.agrees]
    assert all(each.row.candidate == "default" != each.plugin for each in wrong)


def test_explain_says_so_and_ends_with_one(
    stock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(stock)]) == 0
    text = capsys.readouterr().out
    assert "same" in text and "from 65536 bytes" in text and "0 rows disagree" in text
    monkeypatch.setenv("TUCCL_SIGNATURE", "0" * 16)  # the plugin refuses the table
    assert main(["explain", str(stock), "--json"]) == 1
    told = capsys.readouterr()
    assert '"agrees":false' in told.out and "the plugin chooses default" in told.err
