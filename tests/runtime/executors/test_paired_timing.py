"""Programs timed against each other meet the same disturbances, and each sample counts once."""

from __future__ import annotations

from types import ModuleType

import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime import MSCCL_LOOP, ConfiguredProgram, Executor, StepLoop, Timing
from tuccl.runtime.executors.paired_timing import paired_timings


class Drifting(Executor):
    """An executor that gets slower with every call it times."""

    label = "measured in a test"
    ranks = 2

    def __init__(self, name: str = "mpi") -> None:
        self.name = name
        self.deterministic = name == "sim"
        self.seen: list[int] = []

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        self.seen.append(knobs.threads)
        us = float(len(self.seen))
        return Timing(us, us + 0.5, (us,), self.name, 1, (us + 0.5,), repeats, "rank 0")


def entrants(handmade: ModuleType) -> list[ConfiguredProgram]:
    program = handmade.ring_allgather(2)
    return [ConfiguredProgram(program, Knobs(threads=threads)) for threads in (128, 256, 512)]


def test_rounds_alternate_so_that_drift_hits_all_alike(handmade: ModuleType) -> None:
    executor = Drifting()
    timings = paired_timings(executor, entrants(handmade), 64, rounds=4)
    assert executor.seen == [128, 256, 512, 512, 256, 128] * 2
    assert len({t.us for t in timings}) == 1  # the same mean place in time
    for timing in timings:
        assert len(timing.samples_us) == len(timing.samples_us_ip) == timing.runs == 4
        assert timing.wrong == 4 and timing.first_wrong == "rank 0"
    assert sorted(us for t in timings for us in t.samples_us) == list(range(1, 13))


def test_rounds_end_on_request_but_never_before_the_first(handmade: ModuleType) -> None:
    timings = paired_timings(Drifting(), entrants(handmade), 64, rounds=9, until=lambda done: True)
    assert [t.runs for t in timings] == [1, 1, 1]
    timings = paired_timings(Drifting(), entrants(handmade), 64, rounds=9, until=lambda n: n >= 3)
    assert [t.runs for t in timings] == [3, 3, 3]
    with pytest.raises(InputError, match="rounds"):
        paired_timings(Drifting(), entrants(handmade), 64, rounds=0)


def test_without_noise_one_round_is_all(handmade: ModuleType) -> None:
    executor = Drifting("sim")
    paired_timings(executor, entrants(handmade), 64, rounds=9)
    assert len(executor.seen) == 3
