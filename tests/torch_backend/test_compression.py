"""Hooks that send sparse gradients, on real processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torch_backend.test_backend import all_well, reported

torch = pytest.importorskip("torch")

from tuccl.errors import InputError
from tuccl.training.compression.indices import (
    largest_indices,
    layer_indices,
    threshold_indices,
)
from tuccl.training.compression.state import ARTopkState, mean_of_states

Job = Callable[..., list[tuple[int, str]]]
Table = Callable[..., Path]


def test_sparse_gradients_lose_nothing_and_go_on_bitwise(job: Job, table: Table) -> None:
    # Products of matrices are to be the same wherever in memory their operands lie.
    same_everywhere = {"MKL_CBWR": "COMPATIBLE"}
    all_well(job("nothing_is_lost,sparse_training", 4, table(2, 2), **same_everywhere))


@pytest.mark.slow
def test_ratio_and_exchange_follow_gradients_and_network(job: Job, table: Table) -> None:
    pytest.importorskip("scipy")
    all_well(job("controlled_training", 2, table(1, 2)))


def test_one_rank_needs_no_exchange(job: Job) -> None:
    all_well(job("nothing_is_lost", 1))


@pytest.mark.slow
def test_a_wrong_ratio_ends_all_ranks_with_a_line(job: Job, table: Table) -> None:
    outcomes = job("wrong_ratio", 2, table(1, 2))
    all_well(outcomes)
    assert "compression ratio 7" in reported(outcomes[1][1])
    assert re.search(r"rank 1 (closed its connection|has left)", reported(outcomes[0][1]))


@pytest.mark.parametrize("count", [1, 7, 100])
def test_indices_are_of_the_largest(count: int) -> None:
    gradient = torch.randn(100, generator=torch.Generator().manual_seed(count))
    largest = set(gradient.abs().argsort(descending=True)[:count].tolist())
    for choose in (largest_indices, threshold_indices):
        index = choose(gradient, count)
        assert index.dtype == torch.int32 and set(index.tolist()) == largest
    halves = layer_indices(gradient, (60, 40), (3, 2)).tolist()
    assert len(set(halves)) == 5 and all(i < 60 for i in halves[:3])
    assert all(60 <= i < 100 for i in halves[3:])
    equal = threshold_indices(torch.ones(100), count)
    assert len(set(equal.tolist())) == count


def test_another_number_of_ranks_gets_the_mean_residual() -> None:
    states = []
    for rank in range(3):
        state = ARTopkState(compression_ratio=0.1)
        state.lay_out((0, 1), (2, 3), torch.zeros(5))
        state.keep(torch.arange(5.0) * rank, 1)
        states.append(state.state_dict())
    new = ARTopkState()
    new.load_state_dict(mean_of_states(states))
    assert [part.tolist() for part in new.error_dict.values()] == [[0, 1], [2, 3, 4]]
    new.lay_out((1, 0), (3, 2), torch.zeros(5))
    assert torch.equal(new.add_residual(torch.zeros(5)), torch.tensor([2.0, 3, 4, 0, 1]))
    with pytest.raises(InputError, match="other sizes"):
        new.lay_out((0, 1), (3, 2), torch.zeros(5))
    with pytest.raises(InputError, match="there are none"):
        mean_of_states([])
    with pytest.raises(InputError, match="state of AR-Topk"):
        new.load_state_dict({"iter": 1})


def test_wrong_arguments_are_refused() -> None:
    for arguments, message in (
        ({"compression_ratio": 0.0}, "compression ratio 0"),
        ({"selection": "moon"}, "expected star or var"),
        ({"collective": "gossip"}, "expected auto, allgather"),
        ({"collective": "tree-allreduce"}, "needs tree_group"),
        ({"start_ARTopk_iter": -1}, "0 or more steps"),
    ):
        with pytest.raises(InputError, match=message):
            ARTopkState(**arguments)
