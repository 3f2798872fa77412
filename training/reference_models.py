"""Models that are known by their layers: ResNet-50, BERT-Base and BERT-Large, with estimated times.

A layer's time is its share of the multiply-adds of a step that was measured whole, forward and
backward as 1 : 2: an estimate. The steps are those of one RTX 2080 Ti.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tuccl.training.model import Model, Parameter

_BERT_WORDS, _BERT_POSITIONS, _BERT_TOKENS = 30522, 512, 64


class _Layer(NamedTuple):
    """A tensor: its name, elements and the multiply-adds of a sample's forward pass."""

    name: str
    elements: int
    operations: int


def _convolution(name: str, inside: int, out: int, kernel: int, side: int) -> Iterator[_Layer]:
    """A convolution with its batch norm, whose output is ``side`` squared."""
    weights = inside * out * kernel * kernel
    yield _Layer(f"{name}.weight", weights, weights * side * side)
    yield _Layer(f"{name}.norm.weight", out, out * side * side)
    yield _Layer(f"{name}.norm.bias", out, out * side * side)


def _resnet50() -> Iterator[_Layer]:
    """He et al., "Deep Residual Learning", CVPR 2016, table 1: 224 x 224, 1000 classes."""
    yield from _convolution("conv1", 3, 64, 7, 112)
    inside = 64
    for stage, (width, blocks, side) in enumerate(
        ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), start=1
    ):
        for block in range(blocks):
            name, out = f"layer{stage}.{block}", 4 * width
            before = side * 2 if stage > 1 and block == 0 else side
            yield from _convolution(f"{name}.conv1", inside, width, 1, before)
            yield from _convolution(f"{name}.conv2", width, width, 3, side)
            yield from _convolution(f"{name}.conv3", width, out, 1, side)
            if block == 0:
                yield from _convolution(f"{name}.downsample", inside, out, 1, side)
            inside = out
    yield _Layer("fc.weight", 2048 * 1000, 2048 * 1000)
    yield _Layer("fc.bias", 1000, 1000)


def _linear(name: str, inside: int, out: int, tokens: int, more: int = 0) -> Iterator[_Layer]:
    yield _Layer(f"{name}.weight", inside * out, inside * out * tokens + more)
    yield _Layer(f"{name}.bias", out, out * tokens)


def _norm(name: str, width: int, tokens: int) -> Iterator[_Layer]:
    yield _Layer(f"{name}.weight", width, width * tokens)
    yield _Layer(f"{name}.bias", width, width * tokens)


def _bert(width: int, blocks: int) -> Iterator[_Layer]:
    """Devlin et al., "BERT", NAACL 2019, pre-training of sequences of 64.

    The decoder shares the embedding's weights, whose gradient is so ready last.
    """
    tokens = _BERT_TOKENS
    yield _Layer("embeddings.word", _BERT_WORDS * width, width * tokens)
    yield _Layer("embeddings.position", _BERT_POSITIONS * width, width * tokens)
    yield _Layer("embeddings.token_type", 2 * width, width * tokens)
    yield from _norm("embeddings.norm", width, tokens)
    attention = 2 * tokens * tokens * width
    for block in range(blocks):
        name = f"encoder.{block}"
        for part, more in (("query", attention), ("key", 0), ("value", 0), ("output", 0)):
            yield from _linear(f"{name}.attention.{part}", width, width, tokens, more)
        yield from _norm(f"{name}.attention.norm", width, tokens)
        yield from _linear(f"{name}.intermediate", width, 4 * width, tokens)
        yield from _linear(f"{name}.output", 4 * width, width, tokens)
        yield from _norm(f"{name}.norm", width, tokens)
    yield from _linear("pooler", width, width, 1)
    decoder = width * _BERT_WORDS * tokens
    yield from _linear("predictions.transform", width, width, tokens, decoder)
    yield from _norm("predictions.norm", width, tokens)
    yield _Layer("predictions.bias", _BERT_WORDS, _BERT_WORDS * tokens)
    yield from _linear("relationship", width, 2, 1)


class _Reference(NamedTuple):
    layers: Callable[[], Iterator[_Layer]]
    batch: int
    samples_per_s: float


REFERENCE_MODELS = {
    "ResNet-50": _Reference(_resnet50, 64, 253.1),
    "BERT-Base": _Reference(lambda: _bert(768, 12), 64, 212.8),
    "BERT-Large": _Reference(lambda: _bert(1024, 24), 8, 49.0),
}
"""By name; samples/s of one RTX 2080 Ti: HKBU-HPML/ddl-benchmarks, results of 2020-05-29."""


def reference_model(name: str) -> Model:
    """Return the model ``name`` of `REFERENCE_MODELS`, its layers' times estimated.

    >>> model = reference_model("ResNet-50")
    >>> model.nbytes // 4, round(model.step_us)
    (25557032, 252864)
    """
    layers, batch, samples_per_s = REFERENCE_MODELS[name]
    every = list(layers())
    us_per_operation = batch / samples_per_s * 1e6 / math.fsum(each.operations for each in every)
    return Model(
        name=name,
        parameters=tuple(
            Parameter(each.name, each.elements, share / 3, share * 2 / 3)
            for each in every
            for share in [each.operations * us_per_operation]
        ),
        batch=batch,
        operations=6.0 * math.fsum(each.operations for each in every),
        source=f"estimate: shares by multiply-adds of {samples_per_s:g} samples/s, RTX 2080 Ti",
    )
