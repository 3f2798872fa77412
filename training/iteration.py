"""Iterations of a job for `bench --iterate`: equal buckets, released while backward runs.

The four models of a thesis on shared links (Salamy, "Network Requirements for Distributed Machine
Learning Training in the Cloud", MIT 2021) are given by what has no unit: the part of an iteration
that their bytes take at the link's rate, and the part of it that can hide them. An iteration then
takes as long at any rate; only its bytes differ.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.topology import Topology
from tuccl.topology.relays import merged_hops
from tuccl.training.model import ELEMENT_BYTES, Model

ITERATION_US = 500_000.0
_BUCKETS = 8


class Iteration(NamedTuple):
    """An iteration: buckets of ``nbytes`` each, none all-reduced before ``releases_us``."""

    name: str
    nbytes: int
    releases_us: tuple[float, ...]


class ThesisModel(NamedTuple):
    """``used``: D / (C t0), of tables 3.1; ``hidden``: D over what it is at the congestion point.

    D are the bytes that a ring sends on each link in an iteration, C is the link's rate, t0 the
    iteration's time alone.
    """

    used: float
    hidden: float


THESIS_MODELS = {
    "BERT-large": ThesisModel(0.77, 2011 / 2216),
    "VGG-16": ThesisModel(0.72, 830 / 929),
    "ResNet-50": ThesisModel(0.31, 153 / 183),
    "DenseNet-161": ThesisModel(0.145, 172 / 269),
}


def thesis_iteration(name: str, topology: Topology, buckets: int = _BUCKETS) -> Iteration:
    """Return the iteration of a model of the thesis on ``topology``, whose slowest NIC is C.

    Its bytes are those of which a ring over all hosts sends D = ``used`` C t0 on each link, and
    they are released evenly so that alone the last bucket ends at t0 = `ITERATION_US`.

    Raises:
        InputError: the thesis has no such model, or the topology no network.
    """
    if name not in THESIS_MODELS:
        raise InputError(f"model {name[:40]!r}: expected one of {', '.join(THESIS_MODELS)}")
    rates = [hop.bandwidth for hop in merged_hops(topology.links).values() if hop.kind == "network"]
    hosts = len(topology.hosts)
    if not rates or hosts < 2:
        raise InputError(f"iteration: topology {topology.name[:60]!r} has no network to share")
    model = THESIS_MODELS[name]
    last_us = ITERATION_US * (1 - model.used / buckets)
    first_us = ITERATION_US * (1 - model.hidden)
    step_us = (last_us - first_us) / max(buckets - 1, 1)
    sent = model.used * min(rates) * 1e3 * ITERATION_US
    nbytes = _whole(sent * hosts / (2 * (hosts - 1)) / buckets)
    return Iteration(name, nbytes, tuple(first_us + n * step_us for n in range(buckets)))


def model_iteration(model: Model, buckets: int = _BUCKETS) -> Iteration:
    """Return the iteration of ``model``: its gradients in equal buckets, each when it is full.

    >>> from tuccl.training.model import Parameter
    >>> layers = (Parameter("a", 8, 1.0, 2.0), Parameter("b", 8, 1.0, 2.0))
    >>> model_iteration(Model(name="m", parameters=layers), 2)
    Iteration(name='m', nbytes=32, releases_us=(4.0, 6.0))
    """
    ready = list(zip(accumulate(reversed(model.sizes)), reversed(model.ready_us), strict=True))
    ends = [math.ceil(model.nbytes * (n + 1) / buckets) for n in range(buckets)]
    releases = tuple(next(us for done, us in ready if done >= end) for end in ends)
    return Iteration(model.name, _whole(model.nbytes / buckets), releases)


def _whole(nbytes: float) -> int:
    return max(round(nbytes / ELEMENT_BYTES), 1) * ELEMENT_BYTES
