"""A small machine, a program and a table that the verbs can work on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tuccl.cli import main


class Answer(NamedTuple):
    """What a verb did."""

    code: int
    out: str
    err: str


Tuccl = Callable[..., Answer]


@pytest.fixture
def tuccl(capfd: pytest.CaptureFixture[str]) -> Tuccl:
    """Return a function that runs a verb in this process."""

    def run(*args: object) -> Answer:
        capfd.readouterr()
        try:
            code = main([str(a) for a in args])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


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
