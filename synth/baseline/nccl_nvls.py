"""NCCL's NVLS collectives as programs: the NVLink switch as two more ranks of each GPU.

A GPU's reducing load pulls the shard it owns from all GPUs of its host at once, summed on the path;
its multicast store puts the sum on all of them. Each is one flow that takes the links of all GPUs
at the same time, which no route between two ranks says: so each GPU has a rank in the switch that
takes what is reduced for it and another that takes what it multicasts, and the routes to them
cross those links. Such a program is for the simulator alone: no runtime loads it, and it is not
verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuccl.errors import Infeasible, InputError
from tuccl.program import Gpu, Program, Step, ThreadBlock
from tuccl.simulation import Network, Resource, Route
from tuccl.synth.baseline.nccl_tree import (
    Move,
    blocks_in_turn,
    double_tree_parents,
    moves,
)

NVLS_COLLECTIVES = ("allreduce", "allgather", "reduce-scatter")

MOST_HEADS = 32
"""GPUs of a host that own a shard, at most (NCCL_MAX_NVLS_ARITY, src/include/device.h)."""

SWITCH_RANKS = 2
"""Ranks of the switch for each GPU: where its loads are reduced and its stores multicast."""


def nvls_program(collective: str, hosts: Sequence[Sequence[int]], channels: int) -> Program:
    """Return ``collective`` by NVLS on ``channels`` channels, for `nvls_network`.

    Each channel of a GPU has a block for each part of NCCL's: scatter (user's buffer to the
    multicast one), reduce, multicast and gather; those beyond `MOST_HEADS` own no shard and only
    copy. On several hosts (allreduce alone) the sums of a shard go up and down a binary tree over
    the GPUs that own it on each host, between reduce and multicast: NVLSTree.

    Args:
        collective: One of `NVLS_COLLECTIVES`.
        hosts: The ranks of each host, as many on each.
        channels: Number of channels.

    >>> nvls_program("allreduce", [range(8)], 16).ngpus
    24

    Raises:
        Infeasible: NCCL has no NVLS for the collective on as many hosts, or hosts differ in size.
        InputError: fewer than two ranks or one channel.

    Notes:
        NCCL src/device/all_reduce.h, all_gather.h and reduce_scatter.h, RunWorkColl of
        NCCL_ALGO_NVLS and NCCL_ALGO_NVLS_TREE, whose warps part alike.
    """
    near = len(hosts[0])
    ranks = near * len(hosts)
    if ranks < 2 or channels < 1:
        raise InputError(f"NVLS of {ranks} ranks, {channels} channels: expected two and one")
    if collective not in NVLS_COLLECTIVES or (len(hosts) > 1 and collective != "allreduce"):
        raise Infeasible(f"NCCL has no NVLS for {collective} on {len(hosts)} hosts")
    if any(len(host) != near for host in hosts):
        raise Infeasible("NVLS on several hosts needs as many GPUs on each")
    heads = min(near, MOST_HEADS)
    chunks = heads * channels
    trees = [_neighbours(len(hosts), mirrored=mirrored) for mirrored in (False, True)]
    gpus = []
    for number, host in enumerate(hosts):
        for local, rank in enumerate(host):
            blocks: list[ThreadBlock] = []
            for channel in range(channels):
                peers = [other[local] for other in hosts]
                up, down = (
                    [peers[other] for other in others] for others in trees[channel % 2][number]
                )
                parts = _parts(collective, ranks + SWITCH_RANKS * rank, up, down)
                if local >= heads:
                    parts = (part for part in parts if part[0] == "cpy")
                offset = channel * heads + local % heads
                blocks += blocks_in_turn(parts, len(blocks), channel, offset, heads)
            gpus.append(Gpu(rank, chunks, chunks, 0, blocks))
            gpus += _switch(rank, ranks, chunks, blocks)
    name = "nccl-nvls" if len(hosts) == 1 else "nccl-nvls-tree"
    gpus.sort(key=lambda gpu: gpu.id)
    return Program(name, collective, "Simple", channels, chunks, gpus)


def _parts(collective: str, switch: int, parents: list[int], children: list[int]) -> Iterator[Move]:
    """Yield what a channel of a GPU does with its shard, each part after the one before."""
    if collective != "allgather":
        yield "cpy", -1, -1, "i"
        yield "s", switch, -1, "o"
    if parents or children:
        parent = parents[0] if parents else None
        yield from ((op, to, by, "o") for op, to, by, _ in moves(parent, children))
    if collective != "reduce-scatter":
        yield "s", switch + 1, -1, "o" if collective == "allreduce" else "i"
        yield "cpy", -1, -1, "i"


def _neighbours(hosts: int, *, mirrored: bool) -> list[tuple[list[int], list[int]]]:
    """Return by host its parent in the tree, if any, and its children."""
    near: list[tuple[list[int], list[int]]] = [([], []) for _ in range(hosts)]
    for child, parent in double_tree_parents(hosts, mirrored=mirrored).items():
        near[child][0].append(parent)
        near[parent][1].append(child)
    return near


def _switch(rank: int, ranks: int, chunks: int, blocks: list[ThreadBlock]) -> Iterator[Gpu]:
    """Yield the switch's ranks of a GPU: they receive what it sends to them."""
    for number in range(ranks + SWITCH_RANKS * rank, ranks + SWITCH_RANKS * (rank + 1)):
        received = [
            ThreadBlock(
                tb.channel,
                -1,
                rank,
                tb.channel,
                [Step("r", "i", -1, "o", max(tb.steps[0].src_offset, 0), 1)],
            )
            for tb in blocks
            if tb.send_peer == number
        ]
        yield Gpu(number, chunks, chunks, 0, received)


def nvls_network(network: Network, hosts: Sequence[Sequence[int]]) -> Network:
    """Return the links between GPUs and their host's switch, with its ranks, and between hosts.

    The links keep their rates and get the kind ``nvls``, whose efficiency a machine class has
    apart: multicast and reduction do not reach what copies do.

    Raises:
        Infeasible: some GPU does not reach all others of its host by the same NVLinks.
    """
    host_of = {rank: number for number, host in enumerate(hosts) for rank in host}
    ranks = network.ranks
    up, down = [-1] * ranks, [-1] * ranks
    shared, routes, near = network.resources, [], []
    for route in network.routes:
        if host_of[route.src] != host_of[route.dst]:
            routes.append(route)
            continue
        near.append(route)
        ends = (up, route.src, route.resources[0]), (down, route.dst, route.resources[-1])
        for side, rank, resource in ends:
            if side[rank] not in (-1, resource) or shared[resource].kind != "nvlink":
                raise Infeasible("NVLS needs GPUs that reach each other by one NVLink switch")
            side[rank] = resource
    if min(up + down) < 0:
        raise Infeasible("NVLS needs GPUs that reach each other by one NVLink switch")
    first = len(shared)
    links = [shared[n] for n in up + down]
    resources = [Resource(link.name, "nvls", link.bandwidth_gbs) for link in links]
    latency = max(route.latency_us for route in near)
    for host in hosts:
        ups = [first + rank for rank in host]
        downs = [first + ranks + rank for rank in host]
        for local, rank in enumerate(host):
            switch = ranks + SWITCH_RANKS * rank
            routes += [
                Route(rank, switch, [*ups, downs[local]], latency),
                Route(rank, switch + 1, [ups[local], *downs], latency),
            ]
    return Network(ranks * (1 + SWITCH_RANKS), [*shared, *resources], routes)
