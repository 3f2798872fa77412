"""Tables for MSCCL's runtimes that hold NCCL's own algorithms with knobs beside programs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tuccl.runtime import load_table, run_environment, save_table, select
from tuccl.runtime.export import export
from tuccl.runtime.jobs.plugins import (
    SchedulerCall,
    TunerCall,
    ask_scheduler,
    ask_tuner,
    plugin_path,
)
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.entry import Candidate

RING = NcclKnobs(algorithm="Ring", protocol="LL", channels=2)


@pytest.fixture
def folder(hand: SimpleNamespace, tmp_path: Path) -> Path:
    """NCCL's ring first to 64 KiB, a program first from there on."""
    topology, programs = hand.mesh(), hand.files()
    ring = Candidate(name=RING.name, on="sim", stats=hand.time_of(4.0), nccl=RING, sms=2)
    table = hand.table_of(
        topology,
        hand.entry(1024, 1 << 16, ring, hand.candidate(programs["LL"], 5.0)),
        hand.entry(1 << 16, 1 << 20, hand.candidate(programs["Simple"], 3.0), ring),
    )
    save_table(table, tmp_path / "table", topology, list(programs.values()))
    return tmp_path / "table"


def test_the_first_candidate_wins_whatever_it_is(folder: Path) -> None:
    table = load_table(folder).lookup
    assert select(table, "allgather", 4096).candidate.nccl == RING
    assert select(table, "allgather", 1 << 16).candidate.program is not None


def test_runtimes_that_run_programs_alone_take_the_next_program(folder: Path) -> None:
    table = load_table(folder).lookup
    chosen = select(table, "allgather", 4096, pads=True)
    assert chosen.candidate.program is not None and "tuner plugin" in chosen.reason


def test_the_scheduler_takes_the_programs_and_the_tuner_the_algorithms(folder: Path) -> None:
    sizes = (4096, 1 << 17)
    calls = [SchedulerCall("allgather", n // 4 // 4) for n in sizes]
    small, large = ask_scheduler(folder, 4, calls, 21903)
    assert small is None and large is not None and large.suffix == ".xml"
    knobs = ask_tuner(folder, 6, 4, 1, [TunerCall("allgather", n) for n in sizes])
    assert knobs[0] == RING


def test_run_loads_both_and_the_export_says_what_needs_the_tuner(
    folder: Path, tmp_path: Path
) -> None:
    variables, notes = run_environment(folder, cache=tmp_path / "cache")
    assert variables["NCCL_TUNER_PLUGIN"] == str(plugin_path("tuner"))
    assert list(Path(variables["MSCCL_ALGO_DIR"]).glob("*.xml"))
    assert int(variables["NCCL_MIN_NCHANNELS"]) >= RING.channels
    assert any("only tuccl's tuner plugin sets" in note for note in notes)
    exported = export(folder, "executor", tmp_path / "out")
    assert len(exported.files) == 1


def test_dialects_without_a_tuner_have_no_algorithms(hand: SimpleNamespace) -> None:
    ring = Candidate(name=RING.name, on="sim", stats=hand.time_of(4.0), nccl=RING)
    made = hand.table_of(hand.mesh(), hand.entry(1024, 1 << 16, ring))
    for dialect in ("fork", "mscclpp"):
        with pytest.raises(ValueError, match="has programs only"):
            type(made)(
                **{f: getattr(made, f) for f in made.__struct_fields__} | {"dialect": dialect}
            )


@pytest.mark.parametrize("dialect", ["fork", "mscclpp"])
def test_exports_without_a_tuner_give_the_next_program(
    folder: Path, tmp_path: Path, dialect: str
) -> None:
    executor = export(folder, "executor", tmp_path / "executor")
    without = export(folder, dialect, tmp_path / "out")
    programs = [f for f in without.files if f.suffix in (".xml", ".json") and f.stem[-1].isalnum()]
    assert len(programs) > len(executor.files)
    assert dialect == "mscclpp" or any("the next best runs" in note for note in without.notes)
