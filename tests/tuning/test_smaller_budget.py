"""A tune that goes on with a smaller budget keeps what it found with the larger one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning.conftest import Stand
from tests.tuning.test_tune import SIZES, chosen_us, tuned
from tuccl.runtime import load_table
from tuccl.topology import Topology


@pytest.mark.parametrize("search", ["descent", "mraco"])
def test_a_smaller_budget_keeps_what_a_larger_one_found(
    search: str, topology: Topology, tmp_path: Path
) -> None:
    out, executor = tmp_path / "table", Stand(topology)
    tuned(out, executor, topology, budget=60, search=search)
    before = [chosen_us(load_table(out), executor, "allgather", size) for size in SIZES]
    tuned(out, executor, topology, budget=4, search=search, resume=True)
    after = [chosen_us(load_table(out), executor, "allgather", size) for size in SIZES]
    tuned(out, executor, topology, budget=4, search=search)
    alone = [chosen_us(load_table(out), executor, "allgather", size) for size in SIZES]
    # A search with a small budget begins elsewhere, and may find something faster itself.
    assert after == [min(pair) for pair in zip(before, alone, strict=True)]
    assert max(a / b for a, b in zip(alone, before, strict=True)) > 1
