"""Other libraries' collectives: every algorithm they name computes what it should, or says no."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from race import Competitor, prescreen, race
from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.execution import RankResult, read_result
from tuccl.runtime.executors.measure import Effort
from tuccl.runtime.executors.mpi_find import find_mpi
from tuccl.runtime.executors.mpi_launch import usual_launch
from tuccl.runtime.libraries.library import GlooRanks, Library, LibraryCall, MpiRanks

RANKS = 4
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "broadcast", "alltoall", "gather")
ODD_BYTES = 4 * 10_007  # a prime number of floats: parts are padded


@pytest.fixture(scope="module", params=("openmpi", "mpich"))
def peer(request: pytest.FixtureRequest) -> Iterator[Library]:
    try:
        mpi = find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")
    with MpiRanks(RANKS, mpi, usual_launch(mpi)) as ranks:
        yield ranks.library


def wrong(results: Sequence[RankResult]) -> int:
    assert len(results) == RANKS
    return sum(result.wrong for result in results)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm_of_an_mpi_is_right_or_refuses(peer: Library, collective: str) -> None:
    names = peer.algorithms(collective)
    assert names[0] == "auto" and len(set(names)) == len(names) > 2
    refused = []
    for name in names:
        call = LibraryCall(collective, name, ODD_BYTES, root=2, checked=2, timed=1)
        try:
            results = peer.run(call)
        except InputError as error:
            refused.append(name)
            assert name in str(error)
        else:
            assert wrong(results) == 0, name
            assert all(len(result.times_us) == 1 for result in results)
    assert set(refused) <= {"two_proc"}  # Open MPI's for two ranks


def test_types_and_operations_reach_the_mpi(peer: Library) -> None:
    for datatype, op in (("int64", "max"), ("double", "prod"), ("uint8", "sum")):
        call = LibraryCall("allreduce", "auto", 4096, datatype=datatype, op=op, checked=1)
        assert wrong(peer.run(call)) == 0


def test_peers_rest_as_programs_do(peer: Library) -> None:
    begun = time.monotonic()
    results = peer.run(LibraryCall("allreduce", "auto", 64, timed=2, pause_us=300_000))
    assert time.monotonic() - begun >= 2 * 0.3
    assert all(min(result.times_us) < 300_000 for result in results)


def test_what_an_mpi_cannot_do_is_refused_and_the_ranks_stay_ready(peer: Library) -> None:
    for call in (
        LibraryCall("allreduce", "no-such-way", 4096),
        LibraryCall("allreduce", "auto", 4096, op="avg", timed=1),
        LibraryCall("allreduce", "auto", 4096, datatype="bfloat16", timed=1),
    ):
        with pytest.raises(InputError, match=r"no-such-way|avg|bfloat16"):
            peer.run(call)
    assert peer.algorithms("scatter") == ()
    assert wrong(peer.run(LibraryCall("allreduce", "auto", 4096, checked=1))) == 0


@pytest.mark.timeout(180)  # four processes import PyTorch
def test_gloo_is_right() -> None:
    pytest.importorskip("torch", reason="no PyTorch: make torch")
    try:
        mpi = find_mpi()
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")
    with GlooRanks(RANKS, mpi, usual_launch(mpi)) as ranks:
        gloo = ranks.library
        assert gloo.algorithms("scatter") == ()
        for collective in COLLECTIVES:
            assert gloo.algorithms(collective) == ("auto",)
            call = LibraryCall(collective, "auto", ODD_BYTES, root=2, checked=1, timed=2)
            assert wrong(gloo.run(call)) == 0
        begun = time.monotonic()
        rested = gloo.run(LibraryCall("allreduce", "auto", 64, timed=2, pause_us=300_000))
        assert time.monotonic() - begun >= 2 * 0.3
        assert all(min(result.times_us) < 300_000 for result in rested)
        with pytest.raises(InputError, match="avg"):
            gloo.run(LibraryCall("allreduce", "auto", 64, op="avg"))


def result(us: float, runs: int, bad: int = 0) -> list[RankResult]:
    """Return what two ranks tell, of which the second is the slower."""
    text = "wrong {}\nsent 0\ntimes {}\nfirst {}\n"
    first = "element 0" if bad else ""
    return [read_result(text.format(bad, f"{t} " * runs, first)) for t in (us / 2, us)]


class Fake:
    """A competitor that takes ``us``, and notes when it ran."""

    def __init__(self, name: str, us: float, log: list[str], bad: int = 0) -> None:
        self.name, self.us, self.log, self.bad = name, us, log, bad

    def __call__(self, checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        self.log.append(self.name)
        return result(self.us, timed, self.bad if checked else 0)

    @property
    def competitor(self) -> Competitor:
        return Competitor("fake", self.name, self)


def test_competitors_run_in_turns_and_slowest_ranks_count() -> None:
    log: list[str] = []
    fakes = [Fake("a", 10.0, log), Fake("b", 20.0, log)]
    results, notes = prescreen([f.competitor for f in fakes], lambda: None, 1.0)
    assert not notes
    log.clear()
    final, lost = race(results, Effort(warmup=1, runs=4, seconds=1.0), rounds=3)
    assert log == ["a", "b"] * 3 and not lost
    assert [(s.us, s.runs, s.spread) for s in final] == [(10.0, 12, 0.0), (20.0, 12, 0.0)]


def test_short_runs_are_prescreened_by_the_median_of_many() -> None:
    """One lucky run says nothing of runs that scatter; long ones are not repeated for it."""

    def lucky(us: float, checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        slow = f"{us} " * (timed - 1)
        return [read_result(f"wrong 0\nsent 0\ntimes {us / 10} {slow}\nfirst \n")] * 2

    competitors = [Competitor("fake", f"{us}", partial(lucky, us)) for us in (100.0, 1e6)]
    results, _ = prescreen(competitors, lambda: None, 1.0)
    assert [(s.us, s.runs) for s in results] == [(100.0, 21), (1e5, 3)]


def test_who_gets_stuck_once_is_tried_again() -> None:
    calls: list[int] = []

    def once(checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        calls.append(timed)
        if len(calls) in (1, 4):
            raise Stuck("rank 1 does not answer")
        return result(10.0, timed)

    results, notes = prescreen([Competitor("fake", "once", once)], lambda: None, 1.0)
    final, lost = race(results, Effort(seconds=1.0), rounds=2)
    assert [s.us for s in final] == [10.0] and not notes and not lost
    assert len(calls) == 6


def test_long_runs_have_fewer_rounds_but_two() -> None:
    log: list[str] = []
    fakes = [Fake("short", 1e4, log), Fake("long", 4e5, log), Fake("longest", 1e7, log)]
    results, _ = prescreen([f.competitor for f in fakes], lambda: None, 1.0)
    log.clear()
    final, _ = race(results, Effort(seconds=1.3), rounds=5)
    assert [log.count(name) for name in ("short", "long", "longest")] == [5, 3, 2]
    assert [s.runs for s in final][1:] == [3, 2]


def test_who_is_wrong_stuck_or_around_the_network_drops_out() -> None:
    log: list[str] = []
    calls: list[int] = []

    def stuck(checked: int, warmup: int, timed: int) -> Sequence[RankResult]:
        calls.append(timed)
        if len(calls) <= 2:
            return result(5.0, timed)
        raise Stuck("rank 1 does not answer")

    competitors = [
        Fake("wrong", 1.0, log, bad=3).competitor,
        Fake("right", 10.0, log).competitor,
        Competitor("fake", "late", stuck),
    ]
    results, notes = prescreen(competitors, lambda: None, 1.0)
    assert [s.competitor.name for s in results] == ["right", "late"]
    assert "6 wrong elements; element 0" in notes[0]
    final, lost = race(results, Effort(seconds=1.0))
    assert [s.competitor.name for s in final] == ["right"]
    assert "does not answer" in lost[0]
    results, notes = prescreen([Fake("shared", 1.0, log).competitor], lambda: 7, 1.0)
    assert not results and "went around the network" in notes[0]
