"""TuCCL's Figs. 8 and 9: steps of data-parallel training, computing slowed by the calls' SMs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from tuccl.eval.papers.clusters import topology_of
from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.eval.papers.taccl_calls import (
    baseline_us,
    executor_of,
    search_all_methods,
    size_on,
    taccl_program,
    tuned,
)
from tuccl.program import Knobs, Program
from tuccl.runtime import time_baseline
from tuccl.synth import MSCCL_DEFAULT_KNOBS, replicate
from tuccl.topology import machine_of
from tuccl.training import Model, method_of
from tuccl.training.costs import Cost, Costs
from tuccl.training.model import Parameter
from tuccl.training.simulated_costs import interpolated

CLUSTERS = ("V100 2 hosts", "A100 Dual-16")
TOKENS = 4096
# Assumed: 40 % of the nominal FLOP/s, of V100 in fp32 and of A100 in TF32.
SUSTAINED = {"V100 2 hosts": 0.4 * 15.7e12, "A100 Dual-16": 0.4 * 156e12}
_TUNED_BYTES = 32 << 20
_ITERATIONS = 10
Layers = Iterator[tuple[str, int, int]]  # elements, multiply-adds of a token's forward pass


def _block(name: str, width: int, inner: int) -> Layers:
    for part in ("query", "key", "value", "output"):
        yield f"{name}.{part}", width * width + width, width * width
    yield f"{name}.norms", 4 * width, 4 * width
    yield f"{name}.inner", width * inner + inner, width * inner
    yield f"{name}.outer", width * inner + width, width * inner


def _transformer_lm() -> Layers:
    """Baevski and Auli, adaptive inputs on WikiText-103: 267,744 words in three clusters, tied."""
    for words, width in ((20_000, 1024), (40_000, 256), (207_744, 64)):
        yield f"embedding.{words}", words * width + width * 1024, width * 1024
    for layer in range(16):
        yield from _block(f"layer.{layer}", 1024, 4096)
    yield "head.clusters", 1024 * 2, 20_000 * 1024


def _roberta() -> Layers:
    """Liu et al., RoBERTa-base: 50,265 words, tied to the head."""
    yield "embedding", 50_265 * 768 + 514 * 768, 768
    for layer in range(12):
        yield from _block(f"layer.{layer}", 768, 3072)
    yield "head", 768 * 768 + 50_265, 768 * 768 + 50_265 * 768


def _fusion() -> Layers:
    """Fan et al., Fusion: the layers are not in the paper; all but the words' are taken equal."""
    words = 104_960 * 256
    yield "embedding", words, 256
    for layer in range(24):
        yield f"layer.{layer}", (270_000_000 - 2 * words) // 24, (270_000_000 - 2 * words) // 24
    yield "head", words, words


MODELS = {
    "Transformer-LM-247M": _transformer_lm,
    "RoBERTa-125M": _roberta,
    "Fusion-270M": _fusion,
}


def model_on(name: str, cluster: str) -> Model:
    """Return a model whose layers take their operations at the sustained rate, 1 : 2."""
    us = 2e6 * TOKENS / SUSTAINED[cluster]
    parameters = tuple(
        Parameter(layer, elements, operations * us, 2 * operations * us)
        for layer, elements, operations in MODELS[name]()
    )
    return Model(name=name, parameters=parameters, batch=TOKENS, source="estimate")


@dataclass(frozen=True)
class Calls:
    """All-reduces of a kind: their time by bytes, and the part of the SMs that they occupy."""

    cost: Cost
    part: float


@cache
def _calls(cluster: str) -> dict[str, list[Calls]]:
    """The calls of each series; several: a tuner takes the best for the step."""
    nbytes = size_on(cluster, _TUNED_BYTES)
    sms = machine_of(topology_of(cluster)).sm_count
    _, found = tuned(cluster, "allreduce", nbytes)
    every = search_all_methods(cluster, "allreduce", nbytes)

    def of(program: Program, knobs: Knobs) -> Calls:
        def us(size: int) -> float:
            return executor_of(cluster).time(program, knobs, size_on(cluster, size)).us

        return Calls(interpolated(us), program.threadblocks / sms)

    def nccl_us(size: int) -> float:
        return baseline_us(cluster, "nccl", "allreduce", size_on(cluster, size))

    point = found.point
    base = taccl_program(cluster, "allreduce", point.choice.sketch, nbytes)
    fewer = [n for n in (1, 2, 4) if n < point.channels]
    alike = [
        of(
            replicate(base, n).replace(protocol=point.protocol),
            Knobs(point.protocol, n, point.threads, point.buffer_bytes),
        )
        for n in fewer
    ]
    best = of(found.program, point.knobs)
    nccl = time_baseline(executor_of(cluster), topology_of(cluster), "nccl", "allreduce", nbytes)
    mesh = taccl_program(cluster, "allreduce", "full-mesh", nbytes)
    return {
        "MSCCL default": [of(mesh, MSCCL_DEFAULT_KNOBS)],
        "NCCL": [Calls(interpolated(nccl_us), nccl.sms / sms)],
        "tuned": [best],
        "tuned for the step": [*alike, of(every.program, every.point.knobs), best],
    }


def step_us(model: Model, calls: Calls) -> tuple[float, float]:
    """Return a step of DDP in us, and the part in us that waits for calls after all computing.

    Calls run one at a time; while one runs, computing is slower by the SMs that it occupies.
    """
    schedule = method_of("ddp").schedule(model, Costs({"allreduce": calls.cost}, 0.0))
    ready = {bucket.first: bucket.nbytes for bucket in schedule.buckets}
    now, busy = model.forward_us, list[tuple[float, float]]()
    for layer in range(len(model.parameters) - 1, -1, -1):
        now = _computed_at(now, model.parameters[layer].backward_us, busy, calls.part)
        if layer in ready:
            begin = max([now, *(end for _, end in busy[-1:])])
            busy.append((begin, begin + calls.cost(ready[layer])))
    end = max(now, busy[-1][1])
    return end, end - now


def _computed_at(
    now: float, work_us: float, busy: Sequence[tuple[float, float]], part: float
) -> float:
    """The time at which work is complete that begins ``now`` and is slower during calls."""
    rate = max(1 - part, 0.01)
    for begin, end in busy:
        free = max(begin - now, 0.0)
        if end <= now or work_us <= free:
            continue
        work_us, now = work_us - free, max(now, begin)
        if work_us <= (end - now) * rate:
            return now + work_us / rate
        work_us, now = work_us - (end - now) * rate, end
    return now + work_us


@cache
def _steps(cluster: str, name: str) -> dict[str, tuple[float, float, float]]:
    """By series: the step in us, what of it waits for calls, and the calls' time in us."""
    model = model_on(name, cluster)
    return {
        series: (*min(step_us(model, calls) for calls in kinds), _all_calls_us(model, kinds[-1]))
        for series, kinds in _calls(cluster).items()
    }


def _all_calls_us(model: Model, calls: Calls) -> float:
    schedule = method_of("ddp").schedule(model, Costs({"allreduce": calls.cost}, 0.0))
    return math.fsum(calls.cost(bucket.nbytes) for bucket in schedule.buckets)


def fig8(progress: Progress) -> FigureData:
    """Rebuild Fig. 8: training throughput of three models under each kind of calls."""
    rows: list[Row] = []
    for cluster, name in product(CLUSTERS, MODELS):
        progress(f"{cluster} {name}")
        steps, model = _steps(cluster, name), model_on(name, cluster)
        default = steps["MSCCL default"]
        for series, (us, waits_us, calls_us) in steps.items():
            speed = topology_of(cluster).ranks * TOKENS / us * 1e6
            over = default[0] / us, steps["NCCL"][0] / us, default[2] / calls_us
            row = (cluster, name, series, model.step_us / 1e3, us / 1e3, waits_us / 1e3)
            rows.append((*row, calls_us / 1e3, speed, *over))
    times = ("computing ms", "step ms", "waits ms", "calls ms", "tokens/s")
    overs = ("over MSCCL default", "over NCCL", "without computing")
    columns = ("cluster", "model", "calls", *times, *overs)
    best = [row for row in rows if row[2] == "tuned for the step"]
    most = ", ".join(f"{row[1]} on {row[0]} {float(str(row[8])):.2f}x" for row in best)
    limit = max(float(str(row[10])) for row in best)
    notes = (
        (
            f"Over MSCCL's default, tuned for the step: {most}. Were computing free, the calls "
            f"alone would give at most {limit:.2f}x."
        ),
    )
    chart = Chart("calls", ("tokens/s",), "tokens/s", ("cluster", "model"), "bars")
    return FigureData(columns, tuple(rows), notes, chart)


def fig9(progress: Progress) -> FigureData:
    """Rebuild Fig. 9: the end of each iteration of three models under each kind of calls."""
    rows: list[Row] = []
    names: tuple[str, ...] = ()
    for cluster, name, number in product(CLUSTERS, MODELS, range(1, _ITERATIONS + 1)):
        progress(f"{cluster} {name}")
        steps = _steps(cluster, name)
        names = tuple(steps)
        ends = tuple(number * us / 1e3 for us, _, _ in steps.values())
        gain = steps["MSCCL default"][0] / steps["tuned for the step"][0]
        rows.append((cluster, name, number, *ends, gain))
    columns = ("cluster", "model", "iteration", *names, "over MSCCL default")
    gains = [float(str(row[-1])) for row in rows]
    notes = (
        f"Over MSCCL's default {min(gains):.2f}x to {max(gains):.2f}x, every iteration alike.",
    )
    chart = Chart("iteration", names, "end of the iteration, ms", ("cluster", "model"))
    return FigureData(columns, tuple(rows), notes, chart)
