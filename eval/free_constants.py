"""Constants of a machine class that a fit may change, each with its prior's spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tuccl.topology import Constant, MachineFile


@dataclass(frozen=True)
class FreeConstants:
    """Constants that are fitted as one factor on all of them, and how far that may go.

    ``spread`` is the standard deviation of the logarithm: how much the value that the class
    already has is trusted.
    """

    paths: tuple[str, ...]
    spread: float
    most: float = math.inf


PROTOCOLS = ("Simple", "LL", "LL128")
_COPIES = ("send_gbs", "recv_gbs", "rcs_gbs", "copy_gbs")
_REDUCTIONS = ("rrs_gbs", "rrc_gbs", "rrcs_gbs", "reduce_gbs")


def free_constants(emulated: bool) -> Iterable[FreeConstants]:
    """Return what is fitted, on GPUs or in an emulation.

    Notes:
        On a CPU anything may be far from the estimates. LL's messages are eager, Simple's wait for
        their receiver; bytes cost both the same.
    """
    if not emulated:
        yield from _on_gpus()
        return
    for name in ("start_us", "dependency_us", "local_us", "net_message_us", "net_latency_us"):
        yield FreeConstants((name,), 1.0)
    yield FreeConstants(("network_efficiency",), 0.005, most=1.0)  # buckets are exact
    yield FreeConstants(("cpu_efficiency",), 1.0, most=1.0)
    yield FreeConstants(("pcie_efficiency",), 1.0, most=1.0)
    for protocol in ("Simple", "LL"):
        for name in ("transfer_us", "slice_us", "hop_us"):
            yield FreeConstants((f"{protocol}.{name}",), 1.0)
    rates = (*_COPIES, *_REDUCTIONS)
    yield FreeConstants(
        tuple(f"{protocol}.{rate}" for protocol in ("Simple", "LL") for rate in rates), 0.5
    )


def _on_gpus() -> Iterable[FreeConstants]:
    for name in ("host_gpu_us", "host_channel_us"):
        yield FreeConstants((name,), 0.7)
    for name in ("start_us", "start_graph_us", "dependency_us", "local_us", "nvls_us"):
        yield FreeConstants((name,), 0.5)
    for name in ("net_latency_us", "net_ll_us"):
        yield FreeConstants((name,), 0.7)
    for name in ("net_message_us", "nic_switch_us"):
        yield FreeConstants((name,), 0.3)
    for name in ("nvlink", "pcie", "cpu", "network", "nvls"):
        yield FreeConstants((f"{name}_efficiency",), 0.03, most=1.0)
    for protocol in PROTOCOLS:
        yield FreeConstants((f"{protocol}.transfer_us",), 0.5)
        if protocol == "Simple":
            yield FreeConstants((f"{protocol}.slice_us",), 0.5)
        else:
            yield FreeConstants((f"{protocol}.link_efficiency",), 0.2, most=1.0)
        yield FreeConstants((f"{protocol}.hop_us",), 0.5)
        yield FreeConstants(tuple(f"{protocol}.{rate}" for rate in _COPIES), 0.3)
        yield FreeConstants(tuple(f"{protocol}.{rate}" for rate in _REDUCTIONS), 0.3)


_BEFORE_FIT = "; before: "


def _fitted_constant(constant: Constant, value: float, source: str) -> Constant:
    """The constant with a fit's value, keeping what it was and why before any fit."""
    before = constant.source.rpartition(_BEFORE_FIT)[2]
    prior = constant.value if constant.prior is None else constant.prior
    return Constant(value, f"{source}{_BEFORE_FIT}{before}", prior)


def unfitted(machine: MachineFile) -> MachineFile:
    """Return the class with every constant as its sources have it, before any fit."""
    return _with_constants(machine, _prior_constant)


def _prior_constant(constant: Constant) -> Constant:
    if constant.prior is None:
        return constant
    return Constant(constant.prior, constant.source.rpartition(_BEFORE_FIT)[2])


def rounded(machine: MachineFile) -> MachineFile:
    """Return the class with its fitted constants to four figures, as a file shows them."""

    def four(constant: Constant) -> Constant:
        if constant.prior is None or constant.value is None:
            return constant
        return msgspec.structs.replace(constant, value=float(f"{constant.value:.4g}"))

    return _with_constants(machine, four)


def _with_constants(machine: MachineFile, change: Callable[[Constant], Constant]) -> MachineFile:
    holders = [machine.constants, *(getattr(machine.protocols, p) for p in PROTOCOLS)]
    changed = [
        msgspec.structs.replace(
            holder, **{name: change(getattr(holder, name)) for name in holder.__struct_fields__}
        )
        for holder in holders
    ]
    protocols = dict(zip(PROTOCOLS, changed[1:], strict=True))
    return msgspec.structs.replace(
        machine,
        constants=changed[0],
        protocols=msgspec.structs.replace(machine.protocols, **protocols),
    )


def _constant(machine: MachineFile, path: str) -> Constant:
    protocol, _, name = path.rpartition(".")
    holder = getattr(machine.protocols, protocol) if protocol else machine.constants
    constant: Constant = getattr(holder, name)
    return constant


def value_of(machine: MachineFile, path: str) -> float:
    """Return the value of the constant at ``path``; 0 where the class has none."""
    value = _constant(machine, path).value
    return value if value is not None else 0.0


def scaled(
    machine: MachineFile, groups: Sequence[FreeConstants], logs: Sequence[float], source: str
) -> MachineFile:
    """Return the class with the constants of each group multiplied by exp of its logarithm."""
    changes: dict[str, dict[str, Constant]] = {}
    for group, log in zip(groups, logs, strict=True):
        for path in group.paths:
            protocol, _, name = path.rpartition(".")
            value = min(value_of(machine, path) * math.exp(log), group.most)
            changes.setdefault(protocol, {})[name] = _fitted_constant(
                _constant(machine, path), value, source
            )
    constants = msgspec.structs.replace(machine.constants, **changes.pop("", {}))
    protocols = msgspec.structs.replace(
        machine.protocols,
        **{
            name: msgspec.structs.replace(getattr(machine.protocols, name), **fields)
            for name, fields in changes.items()
        },
    )
    return msgspec.structs.replace(machine, constants=constants, protocols=protocols)
