"""NCCL's own choice of algorithm, protocol, channels and chunk, by its tuning model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuccl.errors import Infeasible, InputError
from tuccl.runtime.nccl.constants import (
    PROTOCOLS,
    SEND_RECV,
    THREADS,
    Algorithm,
    Protocol,
    TuningConstants,
    tuning_constants,
)
from tuccl.runtime.nccl.graph import NcclGraph, nccl_graph
from tuccl.runtime.nccl.launch import chunk_bytes, launch
from tuccl.runtime.nccl.model import allows_ll128, available, time_us
from tuccl.runtime.nccl.rccl import rccl_protocol
from tuccl.runtime.nccl.sends import p2p_channels, p2p_chunk_bytes, p2p_parts, p2p_protocol
from tuccl.runtime.nccl.thresholds import threshold_choice
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_group
from tuccl.topology import Topology

NCCL_CHOICES = ("Ring", "Tree", "NVLS", "NVLSTree", "PAT", "SendRecv")
_THRESHOLDS = "2.4"


@dataclass(frozen=True)
class NcclChoice:
    """NCCL's own choice; ``predicted_us`` is what NCCL believes, not a measurement.

    ``algorithm`` is one of `NCCL_CHOICES`; "SendRecv" is a group of sends and receives, where
    NCCL has no algorithm of its own. ``threads`` are those that move data, ``chunk_bytes`` the
    most payload of one call of a primitive, ``parts`` the channels over which the data of one
    peer is spread in SendRecv, ``version`` the group of versions that choose so.
    ``predicted_us`` is None where the version predicts nothing: SendRecv, and 2.4 throughout.
    """

    algorithm: Literal["Ring", "Tree", "NVLS", "NVLSTree", "PAT", "SendRecv"]
    protocol: Protocol
    channels: int
    threads: int
    chunk_bytes: int
    predicted_us: float | None
    parts: int = 1
    version: str = NCCL_VERSION

    @property
    def text(self) -> str:
        """Return one word for tables, like ``Ring/Simple/4ch``."""
        return f"{self.algorithm}/{self.protocol}/{self.channels}ch"


def nccl_choice(
    topology: Topology,
    collective: str,
    nbytes: int,
    version: str = NCCL_VERSION,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    channels: int | None = None,
    nvls: bool = True,
) -> NcclChoice:
    """Return what NCCL ``version`` runs for a call whose whole array has ``nbytes`` bytes.

    Args:
        topology: Of the machine.
        collective: The call.
        nbytes: Size of the whole array, as nccl-tests counts it.
        version: Like ``2.19`` or ``2.18.3`` (see `nccl_group`).
        algorithm: As NCCL_ALGO forces it, one of `NCCL_CHOICES`; None for NCCL's own.
        protocol: As NCCL_PROTO forces it, even LL128 where NCCL holds it to be unsafe.
        channels: As NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS together force them.
        nvls: False as NCCL_NVLS_ENABLE=0.

    Raises:
        InputError: the version's constants are not known, the size is not positive, or this version
            does not have the forced algorithm or protocol on this topology.

    Notes:
        ncclTopoTuneModel and ncclTopoGetAlgoTime of src/graph/tuning.cc, getAlgoInfo of
        src/enqueue.cc, with `tuning_constants`. NCCL ignores settings that it cannot follow; here
        they are refused, so that every comparison is with the requested ones.

    >>> from tuccl.topology import load_profile
    >>> nccl_choice(load_profile("dgx-a100"), "allreduce", 1 << 30).text
    'Ring/Simple/24ch'
    """
    group = nccl_group(version)
    if nbytes < 1:
        raise InputError(f"size {nbytes}: expected at least one byte")
    graph, constants = nccl_graph(topology, group), tuning_constants()[group]
    comm_channels = _comm_channels(constants, graph, channels)
    _check_protocol(group, protocol)
    if collective in SEND_RECV:
        if algorithm not in (None, "SendRecv"):
            raise _unavailable(group, collective, str(algorithm))
        return _send_recv(group, constants, graph, nbytes, comm_channels, protocol)
    if group == _THRESHOLDS:
        if algorithm not in (None, "Ring") and (algorithm, collective) != ("Tree", "allreduce"):
            raise _unavailable(group, collective, str(algorithm))
        return NcclChoice(
            **threshold_choice(
                graph, collective, nbytes, comm_channels, algorithm, protocol
            )._asdict(),
            predicted_us=None,
            version=group,
        )
    pairs = _candidates(group, constants, graph, collective, algorithm, protocol, nvls)
    times = {
        pair: time_us(constants, graph, collective, *pair, nbytes, comm_channels) for pair in pairs
    }
    pair = min(times, key=lambda pair: times[pair])
    predicted_us = times[pair]
    if protocol is None and pair[0] in ("Ring", "Tree"):
        pair = pair[0], rccl_protocol(topology, collective, nbytes) or pair[1]
    nchannels, threads = launch(constants, graph, collective, *pair, nbytes, comm_channels)
    chunk = chunk_bytes(constants, graph, collective, *pair, nbytes, nchannels)
    return NcclChoice(*pair, nchannels, threads, chunk, predicted_us, version=group)


def _comm_channels(constants: TuningConstants, graph: NcclGraph, channels: int | None) -> int:
    if channels is None:
        return graph.launch_channels
    most = constants.search.max_channels
    if not 1 <= channels <= most:
        raise InputError(f"{channels} channels: expected 1 to {most}")
    return channels


def _check_protocol(group: str, protocol: str | None) -> None:
    protocols = PROTOCOLS if group != _THRESHOLDS else ("LL", "Simple")
    if protocol is not None and protocol not in protocols:
        raise InputError(
            f"protocol {protocol[:20]!r} of NCCL {group}: expected one of {', '.join(protocols)}"
        )


def nccl_protocols(topology: Topology, version: str = NCCL_VERSION) -> tuple[Protocol, ...]:
    """Return the protocols that NCCL ``version`` holds safe on ``topology``, LL128 last."""
    safe = allows_ll128(tuning_constants()[nccl_group(version)], nccl_graph(topology, version))
    return ("LL", "Simple", "LL128") if safe else ("LL", "Simple")


def _candidates(
    group: str,
    constants: TuningConstants,
    graph: NcclGraph,
    collective: str,
    algorithm: str | None,
    protocol: str | None,
    nvls: bool,
) -> list[tuple[Algorithm, Protocol]]:
    """Return the pairs to choose from, in NCCL's order: the first of equals wins."""
    safe = protocol == "LL128" or allows_ll128(constants, graph)
    pairs = [
        (name, by)
        for name, by in available(constants, graph, collective)
        if (safe or by != "LL128")
        and (nvls or not name.startswith("NVLS"))
        and algorithm in (None, name)
        and protocol in (None, by)
    ]
    if not pairs:
        raise _unavailable(group, collective, "/".join(x for x in (algorithm, protocol) if x))
    return pairs


def _unavailable(group: str, collective: str, name: str) -> InputError:
    return InputError(
        f"{name[:40]} for {collective}: NCCL {group} does not have it "
        f"on this topology (of {', '.join(NCCL_CHOICES)} and {', '.join(PROTOCOLS)})"
    )


def _send_recv(
    group: str,
    constants: TuningConstants,
    graph: NcclGraph,
    nbytes: int,
    comm_channels: int,
    forced: str | None,
) -> NcclChoice:
    """Return grouped sends, a message's parts spread over channels, LL for small messages."""
    if not constants.p2p:
        raise Infeasible(f"NCCL {group} has no send and receive, they came with 2.7")
    message_bytes = nbytes / graph.ranks
    protocol = p2p_protocol(constants, graph, message_bytes)
    if forced not in (None, protocol):
        raise InputError(
            f"{forced} for send and receive by NCCL {group}: NCCL_PROTO does not reach them, "
            f"{protocol} is what it takes for this size"
        )
    parts = p2p_parts(constants, graph, message_bytes, comm_channels)
    chunk = p2p_chunk_bytes(constants, graph, protocol, message_bytes)
    channels = p2p_channels(graph, comm_channels, parts)
    return NcclChoice("SendRecv", protocol, channels, THREADS[protocol], chunk, None, parts, group)
