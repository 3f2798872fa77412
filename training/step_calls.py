"""The calls of one training step of a transformer on a layout of Megatron-LM.

They are those of a GPU of the first pipeline stage, which has the embedding and alone cuts its
gradients in buckets. Its layers are rounded up, and are of experts where the model has so many;
tokens go to all experts alike.

Notes:
    Megatron-LM d98e8a64: core/tensor_parallel/layers.py, core/transformer/moe/token_dispatcher.py
    (all-to-all), core/distributed/distributed_data_parallel.py (buckets). Transformer Engine,
    context_parallel.py. The calls of the embedding and the output layer are all-reduces also with
    sequence parallelism, as in AICB's lists; Megatron makes two halves of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tuccl.errors import InputError
from tuccl.groups.layout import ProcessGroups
from tuccl.training.transformers import Transformer

SEND = "send"
_BF16, _FP32 = 2, 4
_MOST_BATCH = 1 << 24
ContextCalls = Literal["p2p", "all_gather"]


class StepCall(NamedTuple):
    """A call that a GPU makes in a step.

    Attributes:
        kind: Of the groups that make it.
        collective: Its name, or `SEND`: from one GPU to another.
        nbytes: The whole array, as nccl-tests counts; of `SEND` what is sent.
    """

    kind: str
    collective: str
    nbytes: int


class Batch(NamedTuple):
    """Sequences that a step trains on, and how ranks share them.

    Attributes:
        micro_batch: Sequences that go through a stage at once.
        global_batch: Sequences of a step; 0: a micro-batch of each data parallel rank.
        sequence: Tokens of a sequence; 0: as the model was trained.
        sequence_parallel: Whether tensor parallel groups gather and scatter sequences, else they
            all-reduce.
        context: How context parallel groups exchange keys and values: in a ring, or by collectives.
    """

    micro_batch: int = 1
    global_batch: int = 0
    sequence: int = 0
    sequence_parallel: bool = True
    context: ContextCalls = "p2p"


class _Step(NamedTuple):
    """A step with the sizes of its groups by kind, 1 for those that there are not."""

    model: Transformer
    batch: Batch
    sizes: Counter[str]
    micro_batches: int
    tokens: int  # of a micro-batch on a GPU, before tensor parallelism

    def size(self, kind: str) -> int:
        return max(1, self.sizes[kind])

    @property
    def layers(self) -> int:
        return -(-self.model.layers // self.size("pp"))

    @property
    def expert_layers(self) -> int:
        return min(self.layers, self.model.expert_layers)

    @property
    def parts(self) -> int:
        """The parts that tensor parallel ranks make of the activations between layers."""
        return self.size("tp") if self.batch.sequence_parallel else 1


def step_calls(model: Transformer, job: ProcessGroups, batch: Batch) -> Counter[StepCall]:
    """Return the calls of a step, each with how often it is made.

    >>> from tuccl.groups.layout import megatron_groups
    >>> from tuccl.training.transformers import load_transformer
    >>> calls = step_calls(load_transformer("llama-3-8b"), megatron_groups("tp=8", 8), Batch())
    >>> for call, count in calls.items():
    ...     print(count, *call)
    192 tp allgather 67108864
    128 tp reduce-scatter 67108864
    2 tp allreduce 67108864

    Raises:
        InputError: the batch, the model and the layout do not fit each other.
    """
    step = _checked(model, job, batch)
    calls: Counter[StepCall] = Counter()
    for part in (_tensor, _context, _experts, _gradients, _pipeline):
        for kind, collective, nbytes, count in part(step):
            if step.size(kind) > 1 and count:
                calls[StepCall(kind, collective, nbytes)] += count
    return calls


_Calls = Iterator[tuple[str, str, int, int]]


def _tensor(step: _Step) -> _Calls:
    """The calls of column and row parallel layers: of attention, MLPs and the embedding."""
    model, hidden = step.model, step.model.hidden
    mlps = step.layers - (0 if model.shared_experts else step.expert_layers)
    for inputs, layers in (((model.gathered or (hidden,)), step.layers), ((hidden,), mlps)):
        times = layers * step.micro_batches
        for width in inputs:
            nbytes = step.tokens * width * _BF16
            if step.batch.sequence_parallel:
                yield "tp", "allgather", nbytes, 2 * times  # forward; for the weights' gradients
                yield "tp", "reduce-scatter", nbytes, times
            else:
                yield "tp", "allreduce", nbytes, times
        output = step.tokens * hidden * _BF16
        if step.batch.sequence_parallel:
            yield "tp", "reduce-scatter", output, times
            yield "tp", "allgather", output, times
        else:
            yield "tp", "allreduce", output, times
    ends = 1 if step.size("pp") > 1 else 2
    yield "tp", "allreduce", step.tokens * hidden * _BF16, ends * step.micro_batches


def _context(step: _Step) -> _Calls:
    """The exchange of keys and values, and of their gradients."""
    cp, times = step.size("cp"), step.layers * step.micro_batches
    own = step.tokens * step.model.key_value * _BF16 // step.size("tp")
    if step.batch.context == "all_gather":
        yield "cp", "allgather", cp * own, 4 * times  # both, forward and again backward
        yield "cp", "reduce-scatter", cp * own, 2 * times
    else:
        yield "cp", SEND, 2 * own, 3 * (cp - 1) * times  # forward; backward, and the gradients


def _experts(step: _Step) -> _Calls:
    """Tokens to their experts and back, forward and backward."""
    nbytes = step.tokens * step.model.top_k * step.model.hidden * _BF16 // step.parts
    times = step.expert_layers * step.micro_batches
    inside = "etp" if step.size("ep") > 1 else "tp"
    yield "ep", "alltoall", nbytes, 4 * times
    yield inside, "allgather", step.size(inside) * nbytes, 2 * times
    yield inside, "reduce-scatter", step.size(inside) * nbytes, 2 * times


def _gradients(step: _Step) -> _Calls:
    """Gradients to the distributed optimizer, and parameters back, once a step."""
    model, dense_layers = step.model, step.layers - step.expert_layers
    ends = 1 if step.size("pp") > 1 or model.tied else 2
    dense = dense_layers * (model.attention_parameters + model.mlp(model.ffn))
    dense += step.expert_layers * model.shared_parameters + ends * model.embedding_parameters
    experts = step.expert_layers * model.expert_parameters
    if step.size("ep") == 1:
        dense, experts = dense + experts, 0
    kind = "dp-cp" if step.size("cp") > 1 else "dp"
    shards = {kind: dense // step.size("tp")}
    shards["edp"] = experts // (step.size("ep") * step.size("etp"))
    least = max(40_000_000, 1_000_000 * step.size("dp"))
    for kind, parameters in shards.items():
        buckets = max(1, parameters // least)
        bucket = -(-parameters // (buckets * step.size(kind))) * step.size(kind)
        yield kind, "reduce-scatter", bucket * _FP32, buckets
        yield kind, "allgather", bucket * _BF16, buckets


def _pipeline(step: _Step) -> _Calls:
    """Activations to the next stage, and their gradients back."""
    nbytes = step.tokens * step.model.hidden * _BF16 // step.parts
    yield "pp", SEND, nbytes, 2 * step.micro_batches


def _checked(model: Transformer, job: ProcessGroups, batch: Batch) -> _Step:
    """The step, after refusing what does not fit."""
    sizes = Counter({kind.name: len(kind.groups[0]) for kind in job.kinds})
    step = _Step(model, batch, sizes, 1, 1)
    tp, cp, dp, pp, ep = (step.size(kind) for kind in ("tp", "cp", "dp", "pp", "ep"))
    if tp * cp * dp * pp != job.ranks:
        raise InputError(
            f"layout: tp, cp, dp and pp make {tp * cp * dp * pp} of {job.ranks} ranks; expected "
            "Megatron's kinds of groups"
        )
    if pp > model.layers or model.key_value % tp or model.experts % ep:
        raise InputError(
            f"--layout: tp={tp},pp={pp},ep={ep} does not divide {model.name}: {model.layers} "
            f"layers, keys {model.key_value} wide, {model.experts} experts"
        )
    if ep > 1 and not model.experts:
        raise InputError(f"--layout: ep={ep}, but {model.name} has no experts; leave ep out")
    if model.experts and tp > 1 and not batch.sequence_parallel:
        raise InputError(
            "--no-sequence-parallel: experts with tp need sequence parallelism, in Megatron too"
        )
    micro_batches, tokens = _divided(model, batch, dp, tp, cp)
    return step._replace(micro_batches=micro_batches, tokens=tokens)


def _divided(model: Transformer, batch: Batch, dp: int, tp: int, cp: int) -> tuple[int, int]:
    """The micro-batches of a rank, and the tokens of one on a GPU."""
    sequence = batch.sequence or model.sequence
    whole = batch.global_batch or batch.micro_batch * dp
    given = {"micro-batch": batch.micro_batch, "global-batch": whole, "sequence": sequence}
    for name, value in given.items():
        if not 0 < value <= _MOST_BATCH:
            raise InputError(f"--{name} {value}: expected 1 to {_MOST_BATCH}")
    if whole % (batch.micro_batch * dp):
        raise InputError(
            f"--global-batch {whole}: expected a multiple of {batch.micro_batch * dp}, a "
            f"micro-batch of {batch.micro_batch} for each of {dp} data parallel ranks"
        )
    if sequence % (cp * tp):
        raise InputError(f"--sequence {sequence}: expected a multiple of cp x tp = {cp * tp}")
    return whole // (batch.micro_batch * dp), batch.micro_batch * sequence // cp
