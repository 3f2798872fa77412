import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tuccl.errors import InputError
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import Collective, ScheduleChoice
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, aligned_size, load_policy, save_policy, train_policy, tune
from tuccl.tuning.policy_training import SimulatedCall
from tuccl.tuning.programs import ProgramCache
from tuccl.tuning.rl.action import Action
from tuccl.tuning.rl.bandit import Belief
from tuccl.tuning.rl.policy import Policy
from tuccl.tuning.rl.search import RlSearch
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point


def best_us(call: SimulatedCall, policy: Policy | None, budget: int) -> float:
    search = RlSearch(call.space, policy=policy, state=call.state)
    measurements = run_search(search, call.samples, budget)
    return measurements.us(measurements.ranked()[0])


def test_a_policy_gives_legal_points_of_an_unseen_machine(
    policy: Policy, calls: list[SimulatedCall]
) -> None:
    for call in calls:
        points = policy.points(call.space, call.state, 4)
        assert len(set(points)) == len(points) == 4
        assert all(point in call.space for point in points)
        assert min(call.us(p) for p in points) < call.us(call.space.default)


def test_it_names_no_sketch_of_the_machine_it_was_trained_on(
    policy: Policy, calls: list[SimulatedCall]
) -> None:
    trained = policy.trained("allgather")
    assert trained is not None
    for call in calls:
        for action in trained.actions:
            if action.method in call.space.methods:
                assert action.point(call.space).choice.sketch in call.space.sketches


def test_five_evaluations_with_a_policy_beat_five_without(
    policy: Policy, calls: list[SimulatedCall]
) -> None:
    with_policy = sum(math.log(best_us(call, policy, 5)) for call in calls)
    assert with_policy < sum(math.log(best_us(call, None, 5)) for call in calls)


def test_small_messages_prefer_ll_and_large_ones_simple(
    policy: Policy, calls: list[SimulatedCall]
) -> None:
    small, large = (policy.points(call.space, call.state, 1)[0] for call in calls)
    assert (small.protocol, large.protocol) == ("LL", "Simple")


def test_equal_seeds_train_equal_policies(policy: Policy, machine: Topology) -> None:
    sizes = [call.state.nbytes for each in policy.collectives for call in each.calls]
    assert train_policy([machine], ["allgather"], sizes, budget=25) == policy


def test_another_collective_was_not_learned(policy: Policy, calls: list[SimulatedCall]) -> None:
    assert policy.trained("alltoall") is None
    assert policy.machines == ("3x v100x4",)


def test_a_file_holds_the_policy(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json") == policy


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "tuccl-policy/9"}, "tuccl-policy/2"),
        ({"surplus": 1}, "surplus"),
        ({"collectives": [{"collective": "allgather", "actions": [], "calls": [{}]}]}, "machine"),
        ({"trained_on": 3}, "trained_on"),
    ],
)
def test_other_files_are_refused_in_one_line(
    change: dict[str, object], complaint: str, policy: Policy, tmp_path: Path
) -> None:
    path = tmp_path / "policy.json"
    save_policy(policy, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=complaint) as refusal:
        load_policy(path)
    assert "\n" not in str(refusal.value)
    assert "tuccl policy" in str(refusal.value)


def test_gains_are_one_for_each_action(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    save_policy(policy, path)
    content = json.loads(path.read_text())
    content["collectives"][0]["calls"][0]["gains"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="gains"):
        load_policy(path)


def test_an_interrupted_write_leaves_the_old_policy(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        save_policy(policy, tmp_path / "missing" / "policy.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("search", ["rl", "mraco", "tpe"])
def test_a_tune_uses_the_policy(
    search: str, policy: Policy, cluster: Topology, tmp_path: Path
) -> None:
    options = TuneOptions(search=search, budget=5, policy=policy)
    result = tune(
        cluster,
        ["allgather"],
        [16 << 20],
        "sim",
        options,
        path=tmp_path / "table",
    ).result
    [row] = result.tuned
    assert row.best_us is not None
    assert row.best_us < row.default_us
    assert result.lossless_saturated == ()  # no job was described


def order(belief: Belief, count: int) -> list[int]:
    return [step[0] for step in (belief.next() for _ in range(count)) if step is not None]


def test_belief_moves_to_the_call_that_predicts_what_is_seen() -> None:
    gains: list[list[float | None]] = [[3.0, 0.0, 3.5, None], [0.0, 1.0, 0.0, 3.0]]
    belief = Belief([0.0, 1.0], gains)
    assert order(belief, 1) == [2]
    belief.observe(2, 0.0)
    assert order(belief, 1) == [3]


def test_actions_cover_both_calls_before_they_repeat_one() -> None:
    belief = Belief([0.0, 0.0], [[1.0, 0.99, 0.0], [0.0, 0.0, 0.5]])
    assert order(belief, 4) == [0, 2, 1]


def test_sketches_map_by_kind_and_to_the_first_where_there_is_none(
    calls: list[SimulatedCall],
) -> None:
    space = calls[1].space
    kinds = {"one": "one", "mesh-congestion": "mesh-congestion-3", "paired-nvlink": "paired"}
    for kind, name in kinds.items():
        assert Action("ring", kind, 1, "LL", 1, 512, 512 << 10).point(space).choice.sketch == name
    unknown = Action("ring", "pairs", 1, "LL", 1, 512, 512 << 10).point(space)
    assert unknown.choice.sketch == space.sketches[0]


def test_parameters_of_a_sketch_are_kept_where_the_space_has_them(machine: Topology) -> None:
    size = aligned_size(1 << 20, machine.ranks)
    sketches, wider = searched_sketches(machine, "allgather", size)
    assert wider is not None
    cache = ProgramCache(machine, Collective("allgather", machine.ranks))
    wide, narrow = (cache.space(sketches, size, wider=each) for each in (wider, None))
    assert wide is not None and narrow is not None
    point = wide.nearest(Point(ScheduleChoice("one-free", "greedy", 1), "LL", 1, 512, 512 << 10))
    assert point.choice.sketch == "one-free"
    action = Action.of(point)
    assert action.sketch == "one-free"
    assert action.point(wide) == point
    assert action.point(narrow).choice.sketch == "one"
    assert Action.of(replace(point, choice=ScheduleChoice("pairs-2", "ring", 1))).sketch == "pairs"
