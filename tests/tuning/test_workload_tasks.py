"""Tasks of a job, and its gain, against times that are formulas."""

from collections.abc import Sequence

import pytest

from tuccl.errors import InputError
from tuccl.runtime import Candidate, Timing
from tuccl.runtime.workload import Call, Workload
from tuccl.tuning.workload_tasks import JobTask, job_tasks

RANKS = 8


class Clock:
    """The default takes 10 us and a us for each 10 KB."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, candidates: Sequence[Candidate], nbytes: int) -> dict[str, Timing | None]:
        self.sizes.append(nbytes)
        us = 10.0 + nbytes / 10_000
        return {c.name: Timing(us, us, (us,), "sim") for c in candidates}


def tasks_of(*calls: Call, budget: int = 100) -> tuple[JobTask, ...]:
    return job_tasks(Workload("w", calls), lambda collective: Clock(), RANKS, budget)


def test_effort_goes_where_time_is() -> None:
    tasks = tasks_of(
        Call("allreduce", 1 << 20, 300),
        Call("allreduce", 4096, 1),
        Call("allgather", 1 << 26, 2),
    )
    assert sum(task.budget for task in tasks) == 3 * 100
    assert min(task.budget for task in tasks) >= 16
    by_time = sorted(tasks, key=lambda task: task.us)
    assert [task.budget for task in by_time] == sorted(task.budget for task in tasks)
    assert by_time[-1].nbytes == 1 << 20
    assert by_time[-1].us == pytest.approx(300 * (10.0 + (1 << 20) / 10_000))


def test_measured_times_count_where_all_calls_have_one() -> None:
    calls = Call("allreduce", 1 << 20, 2, 5.0), Call("allgather", 1 << 20, 1, 500.0)
    assert [(t.collective, t.us) for t in tasks_of(*calls)] == [
        ("allgather", 500.0),
        ("allreduce", 10.0),
    ]
    assert tasks_of(*calls, Call("alltoall", 1 << 20))[0].us != 500.0


def test_near_sizes_are_one_task_at_the_heaviest() -> None:
    near = [Call("allreduce", (1 << 20) + 32 * n, n) for n in (1, 7, 3)]
    [task] = tasks_of(*near)
    assert task.nbytes == (1 << 20) + 32 * 7
    assert task.us == pytest.approx(11 * (10.0 + task.nbytes / 10_000), rel=0.01)
    many = [Call("allreduce", 32 * int(32 * 1.07**n)) for n in range(250)]
    assert len({call.nbytes for call in many}) > 200
    assert 8 <= len(tasks_of(*many)) <= 32


def test_sizes_that_no_program_divides_are_not_tuned() -> None:
    tasks = tasks_of(Call("allreduce", 4, 10_000), Call("allreduce", 119162), Call("allgather", 64))
    assert [(t.collective, t.nbytes, t.budget) for t in tasks] == [("allgather", 64, 100)]
    with pytest.raises(InputError, match="divides"):
        tasks_of(Call("allreduce", 4, 10_000))


def test_a_workload_is_restricted_to_what_is_requested() -> None:
    workload = Workload(
        "w", (Call("allreduce", 64, 2), Call("allreduce", 4096), Call("reduce", 64))
    )
    inside = workload.within(["allreduce"], [1, 1000])
    assert inside.calls == (Call("allreduce", 64, 2),)
    assert [(one.reason, one.count) for one in inside.left_out] == [("not requested", 2)]
    assert workload.within(["allreduce", "reduce"]) is workload
    with pytest.raises(InputError, match="no call of alltoall"):
        workload.within(["alltoall"])
