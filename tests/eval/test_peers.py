"""Our programs beside peers: the best of each is named, and the ratio is theirs over ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from tuccl._native import Call, Knobs, RankResult, read_result
from tuccl.errors import InputError
from tuccl.eval import NamedProgram, geometric_mean, peer_report, peer_text
from tuccl.eval.peers import Peer, PeerCall
from tuccl.runtime import Effort, MpiExecutor
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, synthesize
from tuccl.topology import load_profile

FEW = Effort(warmup=0, runs=2, seconds=0.01)
PEER_US = {"auto": 40.0, "ring": 30.0, "tree": 300.0}


def told(us: float, timed: int) -> list[RankResult]:
    return [read_result(f"wrong 0\nsent 0\ntimes {f'{us} ' * timed}\nfirst \n")] * 4


def executor_of(times: dict[str, float]) -> MpiExecutor:
    """Return something that runs programs in the time that their method has."""

    def run(call: Call) -> Sequence[RankResult]:
        by_steps = next(us for text, us in times.items() if text in call.text)
        return told(by_steps, int(call.text.split("timed ")[1].split()[0]))

    made = SimpleNamespace(run=run, label="measured by hand", sent_bytes=lambda: None, pause_us=0)
    return cast(MpiExecutor, made)


def peer_of(seen: list[PeerCall]) -> Peer:
    def run(call: PeerCall) -> Sequence[RankResult]:
        seen.append(call)
        return told(PEER_US[call.algorithm], call.timed)

    names = tuple(PEER_US)
    made = SimpleNamespace(name="other", version="1", algorithms=lambda c: names, run=run)
    return cast(Peer, made)


def program(method: str) -> NamedProgram:
    sketch = full_mesh(load_profile("v100x4"))
    made = lower(synthesize(Problem(Collective("allreduce", 4), sketch, 1, 1 << 20), method))
    return NamedProgram(method, made, Knobs())


def test_the_best_of_each_counts_and_long_runs_try_only_good_ones() -> None:
    ours = executor_of({program("ring").program.name: 20.0, "": 10.0})
    seen: list[PeerCall] = []
    named = [program("ring"), program("allpairs")]
    sizes = (4 << 20, 64 << 20)
    report = peer_report(ours, [peer_of(seen)], lambda n: named, "allreduce", sizes, effort=FEW)
    assert [(row.chosen, row.algorithm, row.speedup) for row in report.rows] == [
        ("allpairs", "ring", 3.0),
        ("allpairs", "ring", 3.0),
    ]
    tried = {n: {call.algorithm for call in seen if call.nbytes == n} for n in sizes}
    assert tried == {4 << 20: set(PEER_US), 64 << 20: {"auto", "ring"}}
    assert all(any(call.checked for call in seen if call.algorithm == a) for a in PEER_US)
    text = peer_text(report)
    assert "3.00x" in text and "measured by hand" in text


def test_where_runs_are_long_three_of_a_peer_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what a byte took at 8 MiB, a run of 64 MiB takes 0.56 s."""
    near = {f"way{n}": 70_000.0 + n for n in range(5)}
    monkeypatch.setattr(f"{__name__}.PEER_US", near)
    ours = executor_of({"": 70_000.0})
    seen: list[PeerCall] = []
    sizes, named = (4 << 20, 8 << 20, 64 << 20), [program("ring")]
    peer_report(ours, [peer_of(seen)], lambda n: named, "allreduce", sizes, effort=FEW)
    tried = {n: {call.algorithm for call in seen if call.nbytes == n} for n in sizes}
    assert tried == {sizes[0]: set(near), sizes[1]: set(near), sizes[2]: {"way0", "way1", "way2"}}


def test_of_long_runs_three_of_a_peer_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {f"way{n}": 600_000.0 + n for n in range(5)}
    monkeypatch.setattr(f"{__name__}.PEER_US", near)
    seen: list[PeerCall] = []
    named = [program("ring")]
    ours = executor_of({"": 600_000.0})
    peer_report(ours, [peer_of(seen)], lambda n: named, "allreduce", [4 << 20], effort=FEW)
    times = Counter(call.algorithm for call in seen)
    again = {name for name, count in times.items() if count > times["way4"]}
    assert set(times) == set(near) and again == {"way0", "way1", "way2"}


def test_without_a_program_of_ours_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="none of our programs"):
        peer_report(executor_of({"": 1.0}), [peer_of([])], lambda n: [], "allreduce", [64])


def test_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert geometric_mean([1.7, 1 / 1.7]) == pytest.approx(1.0)
