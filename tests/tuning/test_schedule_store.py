"""Schedules on disk: shared by caches of one folder, and never believed unchecked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as change_of

from tuccl.errors import Infeasible
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Options, Problem, Schedule, ScheduleChoice, make_schedule
from tuccl.topology import join, load_profile
from tuccl.tuning import programs
from tuccl.tuning.programs import ProgramCache
from tuccl.tuning.studies.schedule_store import SCHEDULE, _Stored, stored_schedule

TOPOLOGY = load_profile("v100x4")
MESH = full_mesh(TOPOLOGY)
PROBLEM = Problem(Collective("allgather", 4), MESH, 1, 1 << 16, TOPOLOGY)
RIGHT = make_schedule(PROBLEM, "greedy")


def test_two_caches_of_a_folder_make_a_schedule_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(problem: Problem, method: str, options: Options) -> Schedule:
        made.append(method)
        return make_schedule(problem, method, options)

    monkeypatch.setattr(programs, "make_schedule", counted)
    texts = set()
    for _ in range(2):
        cache = ProgramCache(TOPOLOGY, PROBLEM.collective, folder=tmp_path)
        for method in ("greedy", "ring"):
            choice = ScheduleChoice(MESH.name, method, 1)
            texts.add(cache.program(MESH, choice, 1 << 16, "LL", 1).checksum)
    assert made == ["greedy", "ring", "ring"], "what takes no time is not stored"
    assert len(texts) == 2


def test_a_schedule_with_a_period_is_read_again(tmp_path: Path) -> None:
    pod = join(load_profile("dgx-a100"), 3)
    problem = Problem(Collective("allgather", 24), full_mesh(pod), 1, 1 << 20, pod)
    made = make_schedule(problem, "hierarchical-doubling")
    assert made.period == 8
    assert stored_schedule(tmp_path, "key", problem, lambda: made) == made

    def never() -> Schedule:
        raise AssertionError

    assert stored_schedule(tmp_path, "key", problem, never) == made


def test_a_refusal_is_kept(tmp_path: Path) -> None:
    def refuse() -> Schedule:
        raise Infeasible("too few links")

    def succeed() -> Schedule:
        return RIGHT

    for make in (refuse, succeed):
        with pytest.raises(Infeasible, match="too few links"):
            stored_schedule(tmp_path, "key", PROBLEM, make)


CHANGES: list[dict[str, Any]] = [{"dst": 4}, {"src": -1}, {"count": 1 << 40}, {"channel": -1}]


def damaged(schedule: Schedule) -> list[bytes]:
    """Files that hold no right schedule of the problem."""
    transfers = schedule.transfers
    fields: list[dict[str, Any]] = [
        {"transfers": transfers[len(transfers) // 2 :]},
        {"transfers": transfers[:1]},
        {"scratch": ()},
        {"nchunks": 2 * schedule.nchunks},
        {"collective": Collective("allgather", 8)},
        *({"transfers": (*transfers, change_of(transfers[0], **change))} for change in CHANGES),
        {
            "transfers": (
                *transfers,
                change_of(transfers[0], dst_at=transfers[0].dst_at.shifted(-9)),
            )
        },
    ]
    files = [msgspec.msgpack.encode(_Stored(replace(schedule, **each))) for each in fields]
    return [*files, b"", files[0][:40], b"\xff" * 64, msgspec.msgpack.encode({"schedule": 3})]


@pytest.mark.parametrize("data", damaged(RIGHT))
def test_a_file_that_holds_no_right_schedule_is_replaced(tmp_path: Path, data: bytes) -> None:
    stored_schedule(tmp_path, "key", PROBLEM, lambda: RIGHT)
    (path,) = tmp_path.glob(f"*{SCHEDULE}")
    good = path.read_bytes()
    path.write_bytes(data)
    calls: list[int] = []

    def make() -> Schedule:
        calls.append(1)
        return RIGHT

    assert stored_schedule(tmp_path, "key", PROBLEM, make) == RIGHT
    assert calls
    assert path.read_bytes() == good
    assert stored_schedule(tmp_path, "key", PROBLEM, make) == RIGHT
    assert len(calls) == 1
