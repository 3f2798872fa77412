"""Iterations: their buckets fit the time alone, and simulated ones wait for release and link."""

from __future__ import annotations

import pytest

import tuccl
from tests import programs
from tuccl.errors import InputError
from tuccl.eval.congestion import ring_bytes
from tuccl.program import Knobs
from tuccl.runtime import LoopbackExecutor, SimExecutor
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.training import reference_model
from tuccl.training.iteration import (
    ITERATION_US,
    THESIS_MODELS,
    model_iteration,
    thesis_iteration,
)


def cluster(nodes: int) -> Topology:
    return join(keep_gpus(load_profile("ndv2"), [0]), nodes)


@pytest.mark.parametrize("name", THESIS_MODELS)
@pytest.mark.parametrize("nodes", [3, 4])
def test_a_ring_at_the_links_rate_hides_all_buckets(name: str, nodes: int) -> None:
    iteration = thesis_iteration(name, cluster(nodes))
    model = THESIS_MODELS[name]
    sent = ring_bytes(iteration.nbytes * len(iteration.releases_us), nodes, bits=8)
    assert sent / (12.5e3 * ITERATION_US) == pytest.approx(model.used, rel=1e-3)
    bucket_us = sent / len(iteration.releases_us) / 12.5e3
    end_us = 0.0
    for release_us in iteration.releases_us:
        assert end_us <= release_us  # no bucket waits for the one before
        end_us = release_us + bucket_us
    assert end_us == pytest.approx(ITERATION_US, rel=1e-3)


def test_buckets_of_a_model_are_released_when_they_are_full() -> None:
    model = reference_model("ResNet-50")
    iteration = model_iteration(model, 4)
    assert 4 * iteration.nbytes == pytest.approx(model.nbytes, rel=1e-6)
    assert list(iteration.releases_us) == sorted(iteration.releases_us)
    assert iteration.releases_us[-1] == pytest.approx(model.forward_us + model.backward_us)
    assert iteration.releases_us[0] > model.forward_us


def test_a_simulated_iteration_is_what_its_buckets_add_up_to() -> None:
    topology = cluster(2)
    program = tuccl.synthesize(topology, "allreduce", "1M", method="ring").best.program
    executor, knobs = SimExecutor(topology), Knobs()
    bucket_us = executor.time(program, knobs, 1 << 20).us
    late = executor.iterate(program, knobs, 1 << 20, [0.0, 10 * bucket_us], runs=2)
    assert late == pytest.approx((11 * bucket_us,) * 2)
    (early,) = executor.iterate(program, knobs, 1 << 20, [5.0, 6.0, 7.0])
    assert early == pytest.approx(5.0 + 3 * bucket_us)


def test_ranks_begin_no_bucket_before_its_release() -> None:
    executor, program = LoopbackExecutor(4), programs.ring_allreduce(4)
    times = executor.iterate(program, Knobs(), 4096, [0.0, 100e3, 300e3], runs=2)
    assert len(times) == 2
    assert all(time_us > 300e3 for time_us in times)
    (soon,) = executor.iterate(program, Knobs(), 4096, [0.0] * 3)
    assert soon < 300e3
    with pytest.raises(InputError, match="release -1"):
        executor.iterate(program, Knobs(), 4096, [-1.0])
    with pytest.raises(InputError, match="is for 4 ranks, there are 2"):
        LoopbackExecutor(2).iterate(program, Knobs(), 4096, [0.0])


def test_what_has_no_network_or_no_iterations_is_refused() -> None:
    with pytest.raises(InputError, match="model 'GPT': expected one of BERT-large"):
        thesis_iteration("GPT", cluster(2))
    with pytest.raises(InputError, match="no network to share"):
        thesis_iteration("VGG-16", load_profile("v100x4"))
