"""A small machine, a program and a table that the verbs can work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuccl.cli import main


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with topology.json, program.xml and a tuned table."""
    folder = tmp_path_factory.mktemp("cli")
    topology = str(folder / "topology.json")
    assert main(["probe", "--profile", "v100x4", "--nodes", "2", "-o", topology]) == 0
    synth = ["synth", topology, "-c", "allgather", "-s", "1M", "--method", "ring", "--chunks", "1"]
    assert main([*synth, "-o", str(folder / "program.xml")]) == 0
    tune = ["tune", topology, "-c", "allgather", "-s", "64K:1M:x16", "--budget", "20"]
    assert main([*tune, "-o", str(folder / "table")]) == 0
    return folder
