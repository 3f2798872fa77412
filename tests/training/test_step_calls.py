"""Calls of a step: those of AICB's lists and of hand counts, whatever the layout."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.groups.layout import megatron_groups
from tuccl.training.step_calls import Batch, StepCall, step_calls
from tuccl.training.transformers import Transformer, load_transformer, published_transformers

AICB = Path(__file__).resolve().parents[3] / "shared/data/workloads/aicb_histogram.tsv"
NAMES = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reduce-scatter"}


def transformer(
    layers: int, hidden: int, ffn: int, parameters: float, *, gpt: bool = False
) -> Transformer:
    """A model of LLaMA's shape, or GPT's, whose sequences have 2048 tokens."""
    return Transformer(
        name="m",
        parameters=int(parameters),
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        vocabulary=50257 if gpt else 32000,
        attention=((hidden, hidden),) * 4,
        key_value=hidden,
        sequence=2048,
        gated=not gpt,
        tied=gpt,
    )


GPT_13B = transformer(40, 5120, 20480, 12.85e9, gpt=True)
LLAMA_7B = transformer(32, 4096, 11008, 6.74e9)
LLAMA_65B = transformer(80, 8192, 22016, 65.2e9)


def calls_of(model: Transformer, layout: str, ranks: int, batch: Batch) -> Counter[StepCall]:
    return step_calls(model, megatron_groups(layout, ranks), batch)


def by_collective(calls: Counter[StepCall], kind: str) -> dict[tuple[str, int], int]:
    return {(c.collective, c.nbytes): count for c, count in calls.items() if c.kind == kind}


def test_gpt_13b_has_the_calls_of_its_published_list() -> None:
    plain = calls_of(GPT_13B, "tp=8", 128, Batch(sequence_parallel=False))
    assert by_collective(plain, "tp") == {("allreduce", 20 << 20): 4 * 40 + 2}
    parts = calls_of(GPT_13B, "tp=8", 128, Batch())
    assert by_collective(parts, "tp") == {
        ("allgather", 20 << 20): 6 * 40,
        ("reduce-scatter", 20 << 20): 4 * 40,
        ("allreduce", 20 << 20): 2,
    }


@pytest.mark.parametrize(
    ("name", "model", "layout", "batch"),
    [
        ("G13B-M1-C01", GPT_13B, "tp=8", Batch(sequence_parallel=False)),
        ("G13B-M1-C02", GPT_13B, "tp=8", Batch()),
        ("L7B-M1-C04", LLAMA_7B, "tp=2", Batch(sequence_parallel=False)),
        ("L65B-M1-C05", LLAMA_65B, "tp=2", Batch(global_batch=64 * 64, sequence_parallel=False)),
    ],
)
def test_tensor_parallel_calls_are_those_of_aicb(
    name: str, model: Transformer, layout: str, batch: Batch
) -> None:
    """Its list for eight pipeline stages has the layers of all, so that here is one stage."""
    if not AICB.exists():
        pytest.skip("no ../shared/data/workloads here")
    with AICB.open() as file:
        rows = [r for r in csv.DictReader(file, delimiter="\t") if r["workload"].startswith(name)]
    expected = {
        (NAMES[row["op"]], int(row["bytes"])): int(row["count"])
        for row in rows
        if row["group"] == "tp_group" and int(row["bytes"]) > 10 << 20
    }
    assert by_collective(calls_of(model, layout, 128, batch), "tp") == expected
    if model is GPT_13B:  # of LLaMA it counts two weights an MLP
        found = Counter[str]()
        for (collective, nbytes), count in by_collective(
            calls_of(model, layout, 128, batch), "dp"
        ).items():
            found[collective] += nbytes * count
        for row in rows:
            if row["group"] == "dp_group" and row["op"] != "all_reduce":
                assert found[NAMES[row["op"]]] == pytest.approx(int(row["bytes"]), rel=0.01)


@pytest.mark.parametrize(("ranks", "buckets"), [(16, 40), (1024, 12)])
def test_buckets_hold_all_gradients_in_fp32_and_parameters_in_bf16(
    ranks: int, buckets: int
) -> None:
    """1.6e9 parameters a GPU in buckets of 40e6; of 128e6 where 128 ranks share them."""
    calls = by_collective(calls_of(GPT_13B, "tp=8", ranks, Batch()), "dp")
    parameters = (12 * 40 * 5120**2 + 50257 * 5120) / 8
    for (collective, nbytes), count in calls.items():
        element = {"reduce-scatter": 4, "allgather": 2}[collective]
        assert count == buckets
        assert nbytes % (ranks // 8 * element) == 0
        assert nbytes * count == pytest.approx(parameters * element, rel=1e-5)


def test_a_small_model_has_one_bucket() -> None:
    model = transformer(2, 1024, 4096, 2 * 12 * 1024**2 + 50257 * 1024, gpt=True)
    calls = by_collective(calls_of(model, "tp=2", 8, Batch()), "dp")
    half = (2 * 12 * 1024**2 + 50257 * 1024) // 2
    assert calls == {("reduce-scatter", half * 4): 1, ("allgather", half * 2): 1}


def test_micro_batches_repeat_all_but_the_gradients() -> None:
    one, eight = (calls_of(LLAMA_7B, "tp=2", 8, Batch(1, n)) for n in (4, 32))
    assert one.keys() == eight.keys()
    for call, count in one.items():
        assert eight[call] == count * (1 if call.kind == "dp" else 8)


def test_context_parallel_ranks_share_the_sequence() -> None:
    model, batch = load_transformer("llama-3-70b"), Batch(context="all_gather")
    calls = calls_of(model, "tp=4,cp=2,pp=4", 64, batch)
    sizes = by_collective(calls, "tp")
    assert {nbytes for _, nbytes in sizes} == {8192 // 2 * 8192 * 2}
    assert sizes["allgather", 64 << 20] == 6 * 20
    # Keys and values of 8192 tokens, 1024 / 4 wide: both twice, their gradients once.
    assert by_collective(calls, "cp") == {
        ("allgather", 4 << 20): 4 * 20,
        ("reduce-scatter", 4 << 20): 2 * 20,
    }
    assert not by_collective(calls, "dp") and by_collective(calls, "dp-cp")
    ring = calls_of(model, "tp=4,cp=2,pp=4", 64, Batch())
    assert by_collective(ring, "cp") == {("send", 4 << 20): 3 * 20}
    assert by_collective(ring, "pp") == {("send", 16 << 20): 2}


def test_experts_send_tokens_four_times_a_layer() -> None:
    model = load_transformer("mixtral-8x7b")
    calls = calls_of(model, "pp=4,ep=8", 64, Batch())
    assert by_collective(calls, "ep") == {("alltoall", 4096 * 2 * 4096 * 2): 4 * 8}
    expert = 8 * 3 * 4096 * 14336  # eight layers of a stage, an expert a GPU
    found = by_collective(calls, "edp")
    assert sum(nbytes * n for (_, nbytes), n in found.items()) == pytest.approx(
        expert * 6, rel=1e-5
    )
    inside = calls_of(model, "tp=2,pp=4,ep=4", 64, Batch())
    assert by_collective(inside, "ep") == {("alltoall", 32 << 20): 4 * 8}
    assert by_collective(inside, "etp") == {
        ("allgather", 64 << 20): 2 * 8,
        ("reduce-scatter", 64 << 20): 2 * 8,
    }
    assert by_collective(inside, "tp")["allgather", 32 << 20] == 3 * 8  # attention alone


def test_latent_attention_gathers_what_it_compressed() -> None:
    """Of 4 layers 2 gathers of each, and in the shared expert 3 of the whole width and 1 after."""
    calls = calls_of(load_transformer("deepseek-v3"), "tp=2,pp=16,ep=64,etp=1", 1024, Batch())
    gathers = {n: c for (name, n), c in by_collective(calls, "tp").items() if name == "allgather"}
    assert gathers == {4096 * 1536 * 2: 8, 4096 * 512 * 2: 8, 4096 * 7168 * 2: 16}


def test_published_sizes_make_the_published_parameters() -> None:
    """Reading a model refuses sizes that are 2 % off."""
    found = {name: each.parameters / 1e9 for name, each in published_transformers().items()}
    assert found == {
        "LLaMA-3-8B": 8.03,
        "LLaMA-3-70B": 70.6,
        "LLaMA-3-405B": 405.9,
        "GPT-3-175B": 175.0,
        "Mixtral-8x7B": 46.7,
        "Mixtral-8x22B": 140.6,
        "DeepSeek-V3": 671.0,
    }
    with pytest.raises(ValueError, match="its sizes make 6738"):
        msgspec.structs.replace(LLAMA_7B, parameters=7_000_000_000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers": 0}, "sizes of 1 to"),
        ({"attention": ((4096, -1),)}, "sizes of 1 to"),
        ({"experts": 8, "top_k": 9, "expert_ffn": 8}, "top_k up to experts"),
        ({"dense_layers": 32}, "fewer dense_layers"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        msgspec.structs.replace(LLAMA_7B, **changes)


@pytest.mark.parametrize(
    ("model", "layout", "batch", "reason"),
    [
        ("llama-3-8b", "tp=2", Batch(global_batch=6), "multiple of 4"),
        ("llama-3-8b", "tp=2", Batch(0), "--micro-batch 0"),
        ("llama-3-8b", "tp=2", Batch(1, -4), "--global-batch -4"),
        ("llama-3-8b", "tp=2", Batch(sequence=101), "--sequence 101"),
        ("llama-3-8b", "ep=4", Batch(), "has no experts"),
        ("mixtral-8x7b", "tp=2,ep=2", Batch(sequence_parallel=False), "sequence parallelism"),
    ],
)
def test_what_does_not_fit_is_refused(model: str, layout: str, batch: Batch, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        calls_of(load_transformer(model), layout, 8, batch)
