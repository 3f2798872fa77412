"""NCCL's NVLS allreduce as a program: the NVLink switch as two more ranks.

A GPU's reducing load pulls the shard it owns from all GPUs at once, summed on the way; its
multicast store puts the sum on all of them. Each is one flow that takes the links of all GPUs at
the same time, which no route between two ranks says: so the switch is a rank that takes what is
reduced and another that takes what is multicast, and the routes to them cross those links. Such
a program is for the simulator alone: no runtime loads it, and it is not verified.
"""

from __future__ import annotations

from tuccl._native import Gpu, Network, Program, Resource, Route, Step, ThreadBlock
from tuccl.errors import Infeasible, InputError

__all__ = ["SWITCH_RANKS", "nvls_network", "nvls_program"]

SWITCH_RANKS = 2
"""Ranks that stand for the switch: the last ones, where loads reduce and where stores multicast."""


def nvls_program(ranks: int, channels: int) -> Program:
    """Return the allreduce of ``ranks`` GPUs on ``channels`` channels, for `nvls_network`.

    Each channel of a GPU has a block for each part of NCCL's: scatter (user's buffer to the
    multicast one), reduce, multicast and gather.

    >>> nvls_program(8, 16).ngpus
    10

    Raises:
        InputError: fewer than two ranks or one channel.

    Notes:
        NCCL src/device/all_reduce.h, RunWorkColl of NCCL_ALGO_NVLS, whose warps part alike.
    """
    if ranks < 2 or channels < 1:
        raise InputError(f"NVLS of {ranks} ranks, {channels} channels: expected two and one")
    chunks = ranks * channels
    gpus = [
        Gpu(
            rank,
            chunks,
            chunks,
            0,
            [tb for c in range(channels) for tb in _blocks(rank, c, ranks, channels)],
        )
        for rank in range(ranks)
    ]
    gpus += [
        Gpu(ranks + n, chunks, chunks, 0, _switch_blocks(ranks, channels))
        for n in range(SWITCH_RANKS)
    ]
    return Program("nccl-nvls", "allreduce", "Simple", channels, chunks, gpus)


def _blocks(rank: int, channel: int, ranks: int, channels: int) -> list[ThreadBlock]:
    at, first = rank * channels + channel, 4 * channel
    steps = (
        Step("cpy", "i", at, "o", at, 1, has_dep=True),
        Step("s", "o", at, "o", -1, 1, dep_tb=first, dep_step=0, has_dep=True),
        Step("s", "o", at, "o", -1, 1, dep_tb=first + 1, dep_step=0, has_dep=True),
        Step("cpy", "i", at, "o", at, 1, dep_tb=first + 2, dep_step=0),
    )
    peers = (-1, ranks, ranks + 1, -1)
    return [
        ThreadBlock(first + n, peer, -1, channel, [step])
        for n, (peer, step) in enumerate(zip(peers, steps, strict=True))
    ]


def _switch_blocks(ranks: int, channels: int) -> list[ThreadBlock]:
    pairs = [(rank, channel) for rank in range(ranks) for channel in range(channels)]
    return [
        ThreadBlock(n, -1, rank, channel, [Step("r", "i", -1, "o", rank * channels + channel, 1)])
        for n, (rank, channel) in enumerate(pairs)
    ]


def nvls_network(network: Network) -> Network:
    """Return the links between GPUs and their switch, with the switch as two more ranks.

    The links keep their rates and get the kind ``nvls``, whose efficiency a machine class has
    apart: multicast and reduction do not reach what copies do.

    Raises:
        Infeasible: some GPU does not reach all others by the same NVLinks.
    """
    ranks = network.ranks
    up, down = [-1] * ranks, [-1] * ranks
    for route in network.routes:
        ends = (up, route.src, route.resources[0]), (down, route.dst, route.resources[-1])
        for side, rank, resource in ends:
            if side[rank] not in (-1, resource) or network.resources[resource].kind != "nvlink":
                raise Infeasible("NVLS needs GPUs that reach each other by one NVLink switch")
            side[rank] = resource
    if min(up + down) < 0:
        raise Infeasible("NVLS needs GPUs that reach each other by one NVLink switch")
    links = [network.resources[n] for n in up + down]
    resources = [Resource(link.name, "nvls", link.bandwidth_gbs) for link in links]
    latency = max(route.latency_us for route in network.routes)
    ups, downs = list(range(ranks)), list(range(ranks, 2 * ranks))
    routes = [
        route
        for rank in range(ranks)
        for route in (
            Route(rank, ranks, [*ups, downs[rank]], latency),
            Route(rank, ranks + 1, [ups[rank], *downs], latency),
        )
    ]
    return Network(ranks + SWITCH_RANKS, resources, routes)
