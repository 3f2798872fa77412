"""Our programs beside peers: the best of each is named, and the ratio is theirs over ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from peer_report import NamedProgram, peer_report, peer_text
from tuccl.errors import InputError
from tuccl.execution import Call, RankResult, read_result
from tuccl.program import Knobs
from tuccl.runtime import Effort, MpiExecutor
from tuccl.runtime.libraries import Library, LibraryCall
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.topology import load_profile

FEW = Effort(warmup=0, runs=2, seconds=0.01)
PEER_US = {"auto": 40.0, "ring": 30.0, "tree": 300.0}


def results_of(us: float, timed: int) -> list[RankResult]:
    return [read_result(f"wrong 0\nsent 0\ntimes {f'{us} ' * timed}\nfirst \n")] * 4


def executor_of(times: dict[str, float]) -> MpiExecutor:
    """Return something that runs programs in the time that their method has."""

    def run(call: Call) -> Sequence[RankResult]:
        by_steps = next(us for text, us in times.items() if text in call.text)
        return results_of(by_steps, int(call.text.split("timed ")[1].split()[0]))

    made = SimpleNamespace(run=run, label="measured by hand", sent_bytes=lambda: None, pause_us=0)
    return cast(MpiExecutor, made)


def peer_of(seen: list[LibraryCall]) -> Library:
    def run(call: LibraryCall) -> Sequence[RankResult]:
        seen.append(call)
        return results_of(PEER_US[call.algorithm], call.timed)

    names = tuple(PEER_US)
    made = SimpleNamespace(name="other", version="1", algorithms=lambda c: names, run=run)
    return cast(Library, made)


def program(method: str) -> NamedProgram:
    sketch = full_mesh(load_profile("v100x4"))
    made = lower(make_schedule(Problem(Collective("allreduce", 4), sketch, 1, 1 << 20), method))
    return NamedProgram(method, made, Knobs())


def test_the_best_of_each_counts() -> None:
    ours = executor_of({program("ring").program.name: 20.0, "": 10.0})
    seen: list[LibraryCall] = []
    named = [program("ring"), program("allpairs")]
    sizes = (4 << 20, 64 << 20)
    report = peer_report(ours, [peer_of(seen)], lambda n: named, "allreduce", sizes, effort=FEW)
    assert [(row.chosen, row.algorithm, row.speedup) for row in report.rows] == [
        ("allpairs", "ring", 3.0),
        ("allpairs", "ring", 3.0),
    ]
    assert all(any(call.checked for call in seen if call.algorithm == a) for a in PEER_US)
    text = peer_text(report)
    assert "3.00x" in text and "measured by hand" in text


def test_only_what_is_near_the_best_is_timed_in_turns() -> None:
    seen: list[LibraryCall] = []
    named = [program("ring")]
    ours = executor_of({"": 20.0})
    peer_report(ours, [peer_of(seen)], lambda n: named, "allreduce", [4 << 20], effort=FEW)
    times = Counter(call.algorithm for call in seen)
    assert times["auto"] == times["ring"] > times["tree"]


def test_without_a_program_of_ours_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="none of our programs"):
        peer_report(executor_of({"": 1.0}), [peer_of([])], lambda n: [], "allreduce", [64])
