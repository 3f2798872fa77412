"""Constants of a machine class that a fit may change, each with its prior's spread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PROTOCOLS", "Free", "free_constants"]


@dataclass(frozen=True)
class Free:
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


def free_constants(emulated: bool) -> Iterable[Free]:
    """Return what is fitted, on GPUs or in an emulation.

    Notes:
        On a CPU anything may be far from the estimates. LL's messages are eager, Simple's wait for
        their receiver; bytes cost both the same.
    """
    if not emulated:
        yield from _on_gpus()
        return
    for name in ("start_us", "dependency_us", "local_us", "net_message_us", "net_latency_us"):
        yield Free((name,), 1.0)
    yield Free(("network_efficiency",), 0.005, most=1.0)  # buckets are exact
    yield Free(("cpu_efficiency",), 1.0, most=1.0)
    yield Free(("pcie_efficiency",), 1.0, most=1.0)
    for protocol in ("Simple", "LL"):
        for name in ("transfer_us", "slice_us", "hop_us"):
            yield Free((f"{protocol}.{name}",), 1.0)
    rates = (*_COPIES, *_REDUCTIONS)
    yield Free(tuple(f"{protocol}.{rate}" for protocol in ("Simple", "LL") for rate in rates), 0.5)


def _on_gpus() -> Iterable[Free]:
    for name in ("host_gpu_us", "host_channel_us"):
        yield Free((name,), 0.7)
    for name in ("start_us", "start_graph_us", "dependency_us", "local_us", "nvls_us"):
        yield Free((name,), 0.5)
    for name in ("net_message_us", "net_latency_us", "net_ll_us"):
        yield Free((name,), 0.7)
    yield Free(("nic_switch_us",), 0.3)
    for name in ("nvlink", "pcie", "cpu", "network", "nvls"):
        yield Free((f"{name}_efficiency",), 0.03, most=1.0)
    for protocol in PROTOCOLS:
        yield Free((f"{protocol}.transfer_us",), 0.5)
        if protocol == "Simple":
            yield Free((f"{protocol}.slice_us",), 0.5)
        else:
            yield Free((f"{protocol}.link_efficiency",), 0.2, most=1.0)
        yield Free((f"{protocol}.hop_us",), 0.5)
        yield Free(tuple(f"{protocol}.{rate}" for rate in _COPIES), 0.3)
        yield Free(tuple(f"{protocol}.{rate}" for rate in _REDUCTIONS), 0.3)
