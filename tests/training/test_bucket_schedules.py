"""Plans against brute force and the methods' formulas; the timeline against both."""

import itertools
import math
import random

import pytest

from tuccl.errors import InputError
from tuccl.training import GRADIENT_METHODS, Costs, Model, c2c_by_operations, method_of
from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.buckets import (
    Group,
    ddp_groups,
    fused_groups,
    groups_end_us,
    merged_groups,
    merged_groups_exact,
    partitions,
)
from tuccl.training.costs import c2c_by_time, linear, server_costs
from tuccl.training.model import Parameter
from tuccl.training.timeline import simulate_steps


def random_model(seed: int, most: int = 9) -> tuple[Model, Costs]:
    """Return a model of few tensors, and a start-up and rate that matter to it."""
    rng = random.Random(seed)
    parameters = tuple(
        Parameter(
            f"w{n}", rng.choice((8, 100, 4096, 50_000)), rng.uniform(0, 50), rng.uniform(0, 100)
        )
        for n in range(rng.randint(1, most))
    )
    model = Model(name="random", parameters=parameters, update_us=rng.uniform(0.1, 20))
    alpha_us, rate = rng.uniform(0, 80), rng.uniform(0, 2e-3)
    calls = dict.fromkeys(("allreduce", "reduce-scatter", "allgather"), linear(alpha_us, rate))
    stages = server_costs(None, rng.uniform(1, 9), rng.uniform(1, 9), 4, 4, alpha_us)
    return model, Costs({**calls, **stages}, alpha_us)


def all_groupings(count: int) -> list[list[Group]]:
    """Return each way of cutting ``count`` tensors into groups, from the last to the first."""
    out = []
    for cuts in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(n + 1 for n, cut in enumerate(cuts) if cut), count]
        out.append(list(reversed(list(itertools.pairwise(edges)))))
    return out


def test_the_exact_plan_is_as_good_as_the_best_of_all() -> None:
    for seed in range(200):
        check_exact_plan(*random_model(seed))


def check_exact_plan(model: Model, costs: Costs) -> None:
    sizes, ready, cost = model.sizes, model.ready_us, costs.of("allreduce")
    every = [groups_end_us(sizes, ready, groups, cost) for groups in all_groupings(len(sizes))]
    exact = merged_groups_exact(sizes, ready, cost)
    greedy = merged_groups(sizes, ready, cost, costs.alpha_us)
    assert groups_end_us(sizes, ready, exact, cost) == pytest.approx(min(every), rel=1e-12)
    bsp, wfbp = every[0], every[-1]
    assert groups_end_us(sizes, ready, greedy, cost) <= min(bsp, wfbp) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_the_timeline_is_the_formula_where_steps_have_a_barrier(seed: int) -> None:
    model, costs = random_model(seed)
    cost = costs.of("allreduce")
    for name in ("bsp", "wfbp", "mg-wfbp", "mg-wfbp-exact", "ddp"):
        schedule = GRADIENT_METHODS[name].schedule(model, costs)
        groups = [(bucket.first, bucket.last) for bucket in schedule.buckets]
        end = groups_end_us(model.sizes, model.ready_us, groups, cost)
        timeline = simulate_steps(model, schedule, costs)
        assert timeline.step_us == pytest.approx(end + model.update_us)
        assert timeline.exposed_us == pytest.approx(timeline.step_us - model.step_us)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", GRADIENT_METHODS)
def test_no_method_beats_what_computing_and_the_wire_allow(name: str, seed: int) -> None:
    model, costs = random_model(seed)
    schedule = GRADIENT_METHODS[name].schedule(model, costs)
    timeline = simulate_steps(model, schedule, costs)
    wires: dict[str, float] = {}
    for bucket in schedule.buckets:
        for call in schedule.calls:
            us = costs.of(call)(bucket.nbytes)
            wires[costs.wire(call)] = wires.get(costs.wire(call), 0.0) + us
    least = max(model.step_us, *wires.values())
    assert timeline.step_us >= least * (1 - 1e-9)
    assert timeline.step_us <= (model.step_us + math.fsum(wires.values())) * (1 + 1e-9) + 1000
    assert sum(b.nbytes for b in schedule.buckets) == model.nbytes
    for span in timeline.spans:
        assert -1e-6 <= span.start_us <= span.end_us <= timeline.step_us + 1e-6
    computing = [s for s in timeline.spans if s.kind in ("forward", "backward", "update")]
    assert math.fsum(s.end_us - s.start_us for s in computing) == pytest.approx(model.step_us)


def test_priorities_let_the_next_forward_begin_before_all_is_reduced() -> None:
    parameters = tuple(Parameter(f"w{n}", 25_000, 100.0, 100.0) for n in range(8))
    model = Model(name="m", parameters=parameters)
    costs = Costs({"allreduce": linear(0.0, 1.5e-3)}, 0.0)
    barrier = simulate_steps(model, GRADIENT_METHODS["wfbp"].schedule(model, costs), costs)
    parts = GRADIENT_METHODS["bytescheduler"].schedule(model, costs).buckets
    first = BucketSchedule(parts, order="priority", credit_bytes=100_000, barrier=False)
    overlapped = simulate_steps(model, first, costs)
    assert overlapped.step_us < barrier.step_us
    assert (
        overlapped.step_us
        <= simulate_steps(model, BucketSchedule(parts, barrier=False), costs).step_us
    )
    assert overlapped.exposed[0][0] >= 100.0, "the first layer computes at once"


def test_credit_bounds_what_is_under_way() -> None:
    parameters = tuple(Parameter(f"w{n}", 1000, 1.0, 1.0) for n in range(16))
    model = Model(name="m", parameters=parameters)
    costs = Costs({"allreduce": linear(5.0, 1e-3)}, 5.0)
    whole = GRADIENT_METHODS["bytescheduler"].schedule(model, costs)
    tight = BucketSchedule(whole.buckets, order="priority", credit_bytes=4000, barrier=False)
    timeline = simulate_steps(model, tight, costs)
    assert not [span for span in timeline.spans if span.kind == "queue"]
    assert [span for span in simulate_steps(model, whole, costs).spans if span.kind == "queue"]


def test_ddp_closes_a_bucket_with_the_tensor_that_fills_it() -> None:
    mib = 1 << 20
    assert ddp_groups([mib, 30 * mib, 4 * mib, mib // 2, mib]) == ((4, 5), (1, 4), (0, 1))
    assert ddp_groups([4, 4], 1 << 20) == ((0, 2),)


def test_horovod_fuses_what_became_ready_in_a_cycle_up_to_its_threshold() -> None:
    ready = [2900.0, 1700.0, 1600.0, 900.0]
    assert fused_groups([4, 4, 4, 4], ready) == (
        ((3, 4), 1000.0),
        ((1, 3), 2000.0),
        ((0, 1), 3000.0),
    )
    assert [g for g, _ in fused_groups([4, 4, 4, 4], ready, 4)] == [(3, 4), (2, 3), (1, 2), (0, 1)]


def test_partitions_cover_a_tensor() -> None:
    for nbytes in (1, 4096, 4_096_001, 10_000_000):
        parts = partitions(nbytes, 4_096_000)
        assert sum(parts) == nbytes and max(parts) <= 4_096_000 and max(parts) - min(parts) <= 1


def test_servers_answer_while_workers_push() -> None:
    model = Model(name="m", parameters=(Parameter("w", 1 << 22, 10.0, 10.0),))
    stages = server_costs(None, 1.0, 1.0, 4, 4, 0.0)
    timeline = simulate_steps(
        model, GRADIENT_METHODS["bsp-ps"].schedule(model, Costs(stages, 0.0)), Costs(stages, 0.0)
    )
    both_ways = 2 * stages["push"](model.nbytes)
    assert stages["push"](model.nbytes) < timeline.step_us - model.step_us < both_ways
    few = server_costs(None, 1.0, 1.0, 4, 1, 0.0)
    assert few["push"](1000) == pytest.approx(4 * stages["push"](1000))


def test_c2c_in_both_forms() -> None:
    assert c2c_by_time(50.0, 100.0) == 0.5
    one, two = (c2c_by_operations(4000, 8, batch, 1e6) for batch in (1, 2))
    assert one == pytest.approx(2 * two) == pytest.approx(2 * 7 / 8 * 1000 / 1e6)


def test_labels_have_six_words_and_unknown_names_are_refused() -> None:
    assert GRADIENT_METHODS["bsp-ps"].label.architecture == "PS"
    assert (
        GRADIENT_METHODS["wfbp-ps+server-order"].label != GRADIENT_METHODS["bytescheduler-ps"].label
    )
    with pytest.raises(InputError, match="expected one of bsp"):
        method_of("best")
    with pytest.raises(InputError, match="cost of push"):
        Costs({"allreduce": linear(1.0, 0.0)}, 1.0).of("push")


def test_scaled_bytes_under_scaled_costs_take_the_same_time() -> None:
    model, costs = random_model(7)
    for name in ("bsp", "mg-wfbp", "dear"):
        schedule = GRADIENT_METHODS[name].schedule(model, costs)
        as_planned = simulate_steps(model, schedule, costs)
        larger = simulate_steps(model, schedule.scaled(4.0), costs.scaled(0.25))
        assert larger.step_us == pytest.approx(as_planned.step_us)
        assert sum(b.nbytes for b in schedule.scaled(4.0).buckets) == 4 * model.nbytes


def test_a_cap_below_the_first_buckets_own_holds_for_the_first_too() -> None:
    assert ddp_groups([60, 60, 60, 60], 100) == ((2, 4), (0, 2))


def all_groups(count: int) -> list[tuple[Group, ...]]:
    """Return every way to cut tensors into groups, the last tensors first."""
    cuts = itertools.product((False, True), repeat=count - 1)
    edges = ([0, *(n + 1 for n, cut in enumerate(each) if cut), count] for each in cuts)
    return [tuple(reversed(list(itertools.pairwise(each)))) for each in edges]


@pytest.mark.parametrize("seed", range(150))
def test_of_equally_early_groups_those_of_fewer_calls_are_taken(seed: int) -> None:
    """By brute force over the groups that end earliest after each of their calls."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 3) for _ in range(6)]
    ready = sorted((float(rng.randint(0, 12)) for _ in sizes), reverse=True)
    cost = [float(rng.randint(0, 6)) for _ in range(sum(sizes) + 1)].__getitem__

    def ends(groups: tuple[Group, ...]) -> dict[int, float]:
        parts = (groups[: n + 1] for n in range(len(groups)))
        return {part[-1][0]: groups_end_us(sizes, ready, part, cost) for part in parts}

    every = all_groups(len(sizes))
    least = {n: min(e[n] for e in map(ends, every) if n in e) for n in range(len(sizes))}
    calls = [len(g) for g in every if all(least[n] == us for n, us in ends(g).items())]
    made = merged_groups_exact(sizes, ready, cost)
    assert groups_end_us(sizes, ready, made, cost) == least[0]
    assert len(made) == min(calls)
