"""The methods: how each turns a model and the cost of its calls into a schedule, with its label."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.training.bucket_schedule import Bucket, BucketSchedule
from tuccl.training.buckets import (
    Group,
    ddp_groups,
    fused_groups,
    merged_groups,
    merged_groups_exact,
    partitions,
)
from tuccl.training.costs import Costs
from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.timeline import simulate_steps

_SERVER_CALLS = ("local-reduce", "push", "pull", "local-gather")
_BYTEPS_PARTITION = 4_096_000
_BYTESCHEDULER = 4_000_000 * ELEMENT_BYTES, 16_000_000 * ELEMENT_BYTES
_SERVER_CREDIT = 4_000_000 * ELEMENT_BYTES
_CAPS_MIB = (1, 2, 4, 8, 16, 25, 32, 50, 64, 100, 200)


@dataclass(frozen=True)
class Label:
    """The survey's six words for a method; transport and fabric are the machine's.

    Notes:
        Shi et al., "A Quantitative Survey of Communication Optimizations in Distributed Deep
        Learning", IEEE Network 35(3), 2021.
    """

    synchronization: str
    compression: str
    architecture: str
    scheduling: str
    transport: str = "machine's"
    fabric: str = "machine's"


@dataclass(frozen=True)
class GradientMethod:
    """A method by name: its label, and its schedule for a model under the cost of calls."""

    name: str
    label: Label
    schedule: Callable[[Model, Costs], BucketSchedule]

    @property
    def is_server(self) -> bool:
        """Return whether it needs parameter servers."""
        return self.label.architecture == "PS"


def _bucket(model: Model, group: Group, release_us: float = 0.0) -> Bucket:
    first, last = group
    sizes = model.sizes
    return Bucket(
        first, last, sum(sizes[first:last]), release_us=release_us, offset=sum(sizes[:first])
    )


def _buckets(model: Model, groups: Iterable[Group]) -> tuple[Bucket, ...]:
    return tuple(_bucket(model, group) for group in groups)


def _one_by_one(model: Model) -> list[Group]:
    return [(place, place + 1) for place in range(len(model.parameters) - 1, -1, -1)]


def _bsp(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_buckets(model, [(0, len(model.parameters))]))


def _wfbp(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_buckets(model, _one_by_one(model)))


def _mg_wfbp(model: Model, costs: Costs) -> BucketSchedule:
    cost = costs.of("allreduce")
    return BucketSchedule(
        _buckets(model, merged_groups(model.sizes, model.ready_us, cost, costs.alpha_us))
    )


def _mg_wfbp_exact(model: Model, costs: Costs) -> BucketSchedule:
    cost = costs.of("allreduce")
    return BucketSchedule(_buckets(model, merged_groups_exact(model.sizes, model.ready_us, cost)))


def _ddp(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_buckets(model, ddp_groups(model.sizes)))


def _ddp_searched(model: Model, costs: Costs) -> BucketSchedule:
    cap = best_bucket_cap(model, costs)
    return BucketSchedule(_buckets(model, ddp_groups(model.sizes, cap << 20)))


def best_bucket_cap(model: Model, costs: Costs) -> int:
    """Return DDP's ``bucket_cap_mb`` whose simulated step is shortest, the default 25 at ties."""

    def step_us(cap: int) -> tuple[float, bool]:
        schedule = BucketSchedule(_buckets(model, ddp_groups(model.sizes, cap << 20)))
        return simulate_steps(model, schedule, costs).step_us, cap != 25

    return min(_CAPS_MIB, key=step_us)


def _horovod(model: Model, _: Costs) -> BucketSchedule:
    groups = fused_groups(model.sizes, model.ready_us)
    return BucketSchedule(tuple(_bucket(model, group, tick) for group, tick in groups))


def _dear(model: Model, _: Costs) -> BucketSchedule:
    buckets = _buckets(model, ddp_groups(model.sizes))
    return BucketSchedule(buckets, ("reduce-scatter", "allgather"), barrier=False, late=True)


def _parts(model: Model, most_bytes: int, *, after_all: bool = False) -> tuple[Bucket, ...]:
    """Parts of tensors from the last to the first; ``after_all``: ready with the whole model."""
    parts = []
    for first, last in _one_by_one(model):
        offset = sum(model.sizes[:first])
        elements = partitions(model.parameters[first].elements, most_bytes // ELEMENT_BYTES)
        for part, count in enumerate(elements):
            whole = (0, len(model.parameters)) if after_all else (first, last)
            nbytes = count * ELEMENT_BYTES
            parts.append(Bucket(*whole, nbytes, priority=first * 1000 + part, offset=offset))
            offset += nbytes
    return tuple(parts)


def _bytescheduler(model: Model, _: Costs) -> BucketSchedule:
    partition, credit = _BYTESCHEDULER
    buckets = _parts(model, partition)
    return BucketSchedule(buckets, order="priority", credit_bytes=credit, barrier=False)


def _bsp_ps(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_parts(model, _BYTEPS_PARTITION, after_all=True), _SERVER_CALLS)


def _wfbp_ps(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_parts(model, _BYTEPS_PARTITION), _SERVER_CALLS)


def _wfbp_ps_server_order(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(_parts(model, _BYTEPS_PARTITION), _SERVER_CALLS, server_order=True)


def _bytescheduler_ps(model: Model, _: Costs) -> BucketSchedule:
    return BucketSchedule(
        _parts(model, _BYTEPS_PARTITION),
        _SERVER_CALLS,
        order="priority",
        credit_bytes=_SERVER_CREDIT,
        barrier=False,
        server_order=True,
    )


def _method(
    name: str,
    architecture: str,
    scheduling: str,
    schedule: Callable[[Model, Costs], BucketSchedule],
) -> GradientMethod:
    return GradientMethod(name, Label("BSP", "none", architecture, scheduling), schedule)


GRADIENT_METHODS = {
    method.name: method
    for method in (
        _method("bsp", "A2A", "none", _bsp),
        _method("wfbp", "A2A", "WFBP", _wfbp),
        _method("mg-wfbp", "A2A", "MG-WFBP", _mg_wfbp),
        _method("mg-wfbp-exact", "A2A", "MG-WFBP (exact)", _mg_wfbp_exact),
        _method("bytescheduler", "A2A", "ByteScheduler", _bytescheduler),
        _method("ddp", "A2A", "DDP buckets", _ddp),
        _method("ddp-searched", "A2A", "DDP buckets (searched)", _ddp_searched),
        _method("horovod", "A2A", "Horovod fusion", _horovod),
        _method("dear", "A2A", "DeAR", _dear),
        _method("bsp-ps", "PS", "none", _bsp_ps),
        _method("wfbp-ps", "PS", "WFBP", _wfbp_ps),
        _method("wfbp-ps+server-order", "PS", "WFBP (server order)", _wfbp_ps_server_order),
        _method("bytescheduler-ps", "PS", "ByteScheduler", _bytescheduler_ps),
    )
}
SURVEY = {
    "BSP-A2A": "bsp",
    "WFBP-A2A": "wfbp",
    "MG-WFBP": "mg-wfbp",
    "ByteScheduler-A2A": "bytescheduler",
    "BSP-PS": "bsp-ps",
    "WFBP-PS": "wfbp-ps",
    "ByteScheduler-PS": "wfbp-ps+server-order",
}
"""The survey's methods by the names of its figure; its ByteScheduler-PS is a flag of BytePS."""


def method_of(name: str) -> GradientMethod:
    """Return the method ``name``.

    >>> method_of("wfbp").label.architecture
    'A2A'

    Raises:
        InputError: there is no such method.
    """
    if name not in GRADIENT_METHODS:
        raise InputError(f"method {name[:40]!r}: expected one of {', '.join(GRADIENT_METHODS)}")
    return GRADIENT_METHODS[name]
