"""The built plugins, asked through their interfaces, choose what the table in Python chooses."""

from __future__ import annotations

import ctypes
import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.runtime.jobs.plugins import (
    SchedulerCall,
    TunerCall,
    ask_scheduler,
    ask_tuner,
    plugin_environment,
    plugin_path,
)
from tuccl.runtime.nccl.knobs import ALGORITHMS, NcclKnobs
from tuccl.runtime.table.entry import Candidate, Entry, default_candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.selection import select
from tuccl.runtime.table.store import load_table, save_table

VERSIONS = [2, 3, 4, 5, 6, 7]


def random_knobs(pick: random.Random, collective: str) -> NcclKnobs:
    algorithm = pick.choice(ALGORITHMS[collective])
    lines = algorithm in ("Ring", "Tree")
    return NcclKnobs(
        algorithm=algorithm,
        protocol=pick.choice(["LL", "LL128", "Simple"]) if lines else "Simple",
        channels=pick.choice([0, 1, 8, 32]),
        chunk_bytes=pick.choice([0, 1920 << 6, 1920 << 8]),
    )


def random_table(hand: SimpleNamespace, pick: random.Random) -> LookupTable:
    """Every collective, sizes of all kinds, choices and the default in any order."""
    entries = []
    for collective in ALGORITHMS:
        edges: list[int | None] = [*sorted(pick.sample(range(1 << 20), 9)), None]
        for low, high in pairwise(edges):
            assert low is not None
            made = {k.name: k for k in (random_knobs(pick, collective) for _ in range(3))}
            candidates = [
                Candidate(name=n, on="nccl-tests", stats=hand.time_of(5.0), nccl=k)
                for n, k in made.items()
            ]
            candidates.insert(
                pick.randrange(len(candidates) + 1),
                default_candidate("nccl-tests", hand.time_of(6.0)),
            )
            reducing = collective in ("allreduce", "reduce", "reduce-scatter")
            entries.append(
                Entry(
                    collective=collective,  # type: ignore[arg-type]
                    min_bytes=low,
                    max_bytes=high,
                    reduction_class="plain" if reducing else "none",
                    candidates=tuple(candidates),
                )
            )
    empty: LookupTable = hand.table_of(hand.mesh(hosts=2, ranks=8))
    return msgspec.structs.replace(empty, dialect="nccl", entries=tuple(entries))


@pytest.fixture
def table(hand: SimpleNamespace, tmp_path: Path) -> Path:
    save_table(random_table(hand, random.Random(7)), tmp_path / "t", hand.mesh(2, 8), ())
    return tmp_path / "t"


def honoured(knobs: NcclKnobs | None, version: int) -> NcclKnobs | None:
    """What a version of the interface can say of a choice."""
    if knobs is None or version >= 6:
        return knobs
    return msgspec.structs.replace(knobs, chunk_bytes=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tuner_answers_as_the_table_does(table: Path, version: int) -> None:
    pick = random.Random(version)
    calls = [TunerCall(pick.choice(list(ALGORITHMS)), pick.randrange(1 << 21)) for _ in range(600)]
    loaded = load_table(table).lookup
    given = 0
    for call, answer in zip(calls, ask_tuner(table, version, 8, 2, calls), strict=True):
        choice = select(loaded, call.collective, call.nbytes, element_bytes=1)
        wanted = choice.candidate.nccl
        if version == 2 and wanted is not None and wanted.protocol == "LL128":
            assert answer is None or answer.protocol != "LL128"
        elif version == 2 and wanted is not None and wanted.algorithm == "PAT":
            assert answer is None or answer.algorithm != "PAT"
        else:
            assert answer == honoured(wanted, version)
        given += answer is not None
    assert given > 100


def test_other_calls_and_communicators_are_left_alone(table: Path) -> None:
    loaded = load_table(table).lookup
    sizes = [n for n in range(1 << 16, 1 << 20, 4096)]
    found = [n for n in sizes if select(loaded, "allreduce", n).candidate.nccl is not None]
    assert found
    odd = [TunerCall("allreduce", n, operations=2) for n in found]
    odd += [TunerCall("allreduce", n, registered=True) for n in found]
    plain = [TunerCall("allreduce", n) for n in found]
    assert not any(ask_tuner(table, 6, 8, 2, odd))
    for ranks, hosts in ((8, 1), (4, 2), (16, 2)):
        assert not any(ask_tuner(table, 6, ranks, hosts, plain))
    assert all(ask_tuner(table, 6, 8, 2, plain))


def test_the_scheduler_answers_as_the_table_does(hand: SimpleNamespace, stored: Path) -> None:
    loaded = load_table(stored).lookup
    pick = random.Random(3)
    calls = [
        SchedulerCall(
            "allgather",
            int(2 ** pick.uniform(0, 28)) // 16 * 16 + pick.choice([0, 0, 0, 1]),
            pick.choice([1, 2, 4, 8]),
            in_place=pick.random() < 0.5,
            rank=pick.randrange(hand.ranks),
        )
        for _ in range(1500)
    ]
    run = 0
    for call, answer in zip(calls, ask_scheduler(stored, hand.ranks, calls), strict=True):
        nbytes = call.count * call.element_bytes * hand.ranks
        choice = select(
            loaded,
            "allgather",
            nbytes,
            in_place=call.in_place,
            element_bytes=call.element_bytes,
        ).candidate
        program = choice.program if call.count else None
        assert answer == (None if program is None else stored.resolve() / program)
        run += answer is not None
    assert run > 300


def test_runtimes_that_never_connect_get_nothing(hand: SimpleNamespace, stored: Path) -> None:
    calls = [SchedulerCall("allgather", 1 << 16)]
    assert ask_scheduler(stored, hand.ranks, calls)[0] is not None
    assert ask_scheduler(stored, hand.ranks, calls, nccl_version=22304) == [None]


def test_the_environment_is_what_the_plugins_accept(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_table(table).lookup
    calls = [TunerCall("allreduce", n) for n in range(1 << 16, 1 << 20, 4096)]
    usual = ask_tuner(table, 5, 8, 2, calls)
    values = plugin_environment(table)
    assert values["NCCL_TUNER_PLUGIN"] == values["NCCL_PROFILER_PLUGIN"]
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert ask_tuner(table, 5, 8, 2, calls) == usual and any(usual)
    for name in ("TUCCL_SIGNATURE", "TUCCL_TABLE_SHA256"):
        monkeypatch.setenv(name, "0" * len(values[name]))
        assert not any(ask_tuner(table, 5, 8, 2, calls))
        monkeypatch.setenv(name, values[name])
    assert values["TUCCL_SIGNATURE"] == loaded.signature


def test_a_damaged_table_leaves_all_calls_alone(table: Path) -> None:
    calls = [TunerCall("allreduce", 1 << 20)]
    text = (table / "table.txt").read_bytes()
    (table / "table.txt").write_bytes(text[:-70] + text[-69:])
    assert ask_tuner(table, 6, 8, 2, calls) == [None]


def test_odd_questions_are_refused_in_a_line(table: Path) -> None:
    with pytest.raises(InputError, match="alltoall"):
        ask_tuner(table, 6, 8, 2, [TunerCall("alltoall", 1)])
    with pytest.raises(InputError, match="version 8"):
        ask_tuner(table, 8, 8, 2, [])


@pytest.mark.parametrize(
    ("kind", "symbols"),
    [
        ("tuner", [f"ncclTunerPlugin_v{n}" for n in VERSIONS]),
        ("profiler", [f"ncclProfiler_v{n}" for n in (4, 5, 6, 7)]),
        ("scheduler", ["mscclScheduler"]),
    ],
)
def test_the_shared_objects_export_their_symbols(kind: str, symbols: list[str]) -> None:
    library = ctypes.CDLL(str(plugin_path(kind)))  # type: ignore[arg-type]
    assert all(ctypes.c_void_p.in_dll(library, symbol).value for symbol in symbols)
