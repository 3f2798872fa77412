"""A check that the machine is still the one that a table was tuned for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import msgspec

from tuccl.errors import TucclError
from tuccl.topology import Topology, differences, keep_gpus, probe_local, signature

_SYS = "sys: "  # what a link's source begins with where it was read from /sys


def changed_machine(
    tuned: Topology, current: Topology | None = None, root: str | os.PathLike[str] = "/"
) -> tuple[str, ...]:
    """Return why ``tuned`` does not describe this machine any more, a line each; none if it does.

    ``current`` is a description of the machine as it is: then signatures are compared, or hosts
    alone where the network was measured in one of the two only (`differences`). Without one
    this host is probed (below ``root``), where it has GPUs, and compared with the hosts of
    ``tuned`` as far as /sys shows: by signature where ``tuned`` was probed from there too, else by
    the number of GPUs. It shows neither NVLink nor the other hosts.

    >>> from tuccl.topology import join, load_profile
    >>> dgx = load_profile("dgx-1v")
    >>> changed_machine(dgx, dgx), changed_machine(dgx, join(dgx, 2))[0]
    ((), '8 GPUs before, 16 now')
    """
    if current is not None:
        return () if signature(current) == signature(tuned) else differences(tuned, current)
    try:
        local, _ = probe_local(root)
    except TucclError:  # no GPU here: the host that launches need not have one
        return ()
    hosts = Counter(gpu.host for gpu in tuned.gpus)
    if local.ranks not in hosts.values():
        counts = ", ".join(str(count) for count in sorted(set(hosts.values())))
        return (f"{counts} GPUs on a host before, {local.ranks} on this one now",)
    return _changed_host(tuned, local)


def _changed_host(tuned: Topology, local: Topology) -> tuple[str, ...]:
    """Return why no probed host of ``tuned`` is like this one; nothing where none was probed."""
    local_view, probed = _visible_part(local), None
    for host in _probed_hosts(tuned, local.ranks):
        if signature(_visible_part(host)) == signature(local_view) and not _renamed(host, local):
            return ()
        probed = probed or host
    if probed is None:
        return ()
    lines = _renamed(probed, local) or differences(_visible_part(probed), local_view)
    return lines or ("this host's PCIe tree is another one",)


def _probed_hosts(tuned: Topology, ranks: int) -> Iterator[Topology]:
    """The hosts of ``ranks`` GPUs whose PCIe tree was read from /sys, alone."""
    for host in dict.fromkeys(gpu.host for gpu in tuned.gpus):
        ranks_of_host = [rank for rank, gpu in enumerate(tuned.gpus) if gpu.host == host]
        if len(ranks_of_host) != ranks:
            continue
        host_topology = keep_gpus(tuned, ranks_of_host)
        if any(link.source.startswith(_SYS) for link in host_topology.links):
            yield host_topology


def _visible_part(host: Topology) -> Topology:
    """Return the part of a host that /sys shows: a profile or a fabric may have added the rest."""
    nodes = tuple(
        msgspec.structs.replace(node, model=None, port_gbs=None)
        for node in host.nodes
        if node.kind not in ("nvswitch", "switch")
    )
    links = tuple(link for link in host.links if link.kind in ("pcie", "cpu"))
    return msgspec.structs.replace(host, nodes=nodes, links=links, routes=())


def _renamed(before: Topology, current: Topology) -> tuple[str, ...]:
    """GPUs whose model is known and another one."""
    return tuple(
        f"rank {rank}: {gpu.model} before, {gpu_now.model} now"
        for rank, (gpu, gpu_now) in enumerate(zip(before.gpus, current.gpus, strict=True))
        if gpu.model and gpu_now.model and gpu.model != gpu_now.model
    )
