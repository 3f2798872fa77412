"""How a measured time is made of runs, whatever does the running; and threads as ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest

from tuccl.errors import InputError
from tuccl.execution import Call, RankResult, read_result
from tuccl.program import Knobs
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.executors.loopback import LoopbackExecutor
from tuccl.runtime.executors.measure import CpuExecutor, Effort, Operands, cpu_threads


class Ranks(CpuExecutor):
    """Two ranks whose n-th timed run takes n us on one and 2n on the other."""

    name = "test"
    label = "measured in a test"

    def __init__(
        self,
        scale: float = 1.0,
        wrong: int = 0,
        operands: Operands | None = None,
        effort: Effort | None = None,
    ) -> None:
        super().__init__(2, operands, effort)
        self.scale, self.wrong = scale, wrong
        self.timed: list[int] = []

    def run(self, call: Call) -> Sequence[RankResult]:
        fields = dict(line.split(" ", 1) for line in call.text.split("\n")[:17])
        timed = int(fields["timed"])
        self.timed.append(timed)
        wrong = self.wrong if int(fields["checked"]) else 0
        return [
            read_result(
                f"wrong {wrong}\nsent 0\ntimes "
                + "".join(f"{n * rank * self.scale} " for n in range(1, timed + 1))
                + f"\nfirst {'output chunk 0' if wrong else ''}\n"
            )
            for rank in (1, 2)
        ]


def test_the_slowest_rank_is_timed_in_rounds(handmade: ModuleType) -> None:
    ranks = Ranks()
    timing = ranks.time(handmade.ring_allgather(2), Knobs(), 64, repeats=5)
    assert ranks.timed == [1, 100] * 2  # out of place and in place
    assert timing.runs == 100 and timing.wrong is None
    assert timing.samples_us == tuple(2.0 * (20 * n + 10.5) for n in range(5))
    assert timing.us == timing.time_us_ip == 2 * 50.5


def test_long_runs_are_fewer(handmade: ModuleType) -> None:
    ranks = Ranks(scale=1e5)
    timing = ranks.time(handmade.ring_allgather(2), Knobs(), 64, repeats=5)
    assert timing.runs == 10 and len(timing.samples_us) == 5  # 2 s of 0.2 s each
    assert Effort(seconds=0.1).runs_of(1e6, 5) == 1


def test_where_a_round_is_one_run_the_first_counts_too(handmade: ModuleType) -> None:
    ranks = Ranks(scale=1e6, effort=Effort(runs=1))
    program = handmade.ring_allgather(2).replace(in_place=False)
    timing = ranks.time(program, Knobs(), 64, repeats=4)
    assert ranks.timed == [1, 3] and timing.runs == len(timing.samples_us) == 4
    once = ranks.time(program, Knobs(), 64)
    assert ranks.timed == [1, 3, 1] and once.samples_us == (2e6,)


def test_wrong_elements_are_reported_once_a_placement(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(2)
    timing = Ranks(wrong=3, operands=Operands(check=True)).time(program, Knobs(), 64)
    assert timing.wrong == 2 * 2 * 3  # ranks, placements
    assert timing.first_wrong == "rank 0 (out of place): output chunk 0"


def test_threads_share_the_cores() -> None:
    assert cpu_threads(Knobs(threads=512), 1) >= 1
    assert cpu_threads(Knobs(threads=512), 10_000) == 1


def test_the_loopback_is_an_executor(handmade: ModuleType) -> None:
    executor: Executor = LoopbackExecutor(4, Operands(check=True), Effort(1, 3, 0.2))
    timing = executor.time(handmade.ring_allreduce(4), Knobs(), 1000, repeats=2)
    assert timing.wrong == 0 and timing.on == executor.name == "loopback"
    assert len(timing.samples_us) == len(timing.samples_us_ip) == 2
    assert "measured" in executor.label and executor.ranks == 4
    only = executor.time(handmade.direct_alltoall(4), Knobs(), 1000)
    assert only.time_us_ip is None and only.time_us
    with pytest.raises(InputError, match="ranks"):
        executor.time(handmade.ring_allreduce(3), Knobs(), 1000)
    with pytest.raises(InputError, match="at least one"):
        executor.time(handmade.ring_allreduce(4), Knobs(), 0)
