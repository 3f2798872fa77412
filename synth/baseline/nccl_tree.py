"""NCCL's double binary tree as a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from tuccl.errors import Infeasible
from tuccl.program import Gpu, Program, Step, ThreadBlock
from tuccl.synth.baseline.nccl_chains import Chain, chains
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.hierarchy import in_order_tree, mirror
from tuccl.topology import Topology

Move: TypeAlias = tuple[str, int, int, str]
"""Operation, peers to send to and to receive from (-1: none), and source."""


def nccl_tree(
    topology: Topology, collective: Collective, channels: int, protocol: str = "Simple"
) -> Program:
    """Return NCCL's double binary tree over hosts, a chain of GPUs inside each host.

    Even channels use one tree, odd channels its mirror image, in which the leaves of the first
    are inside. Sums go up and results come down in blocks of their own, each of which receives
    and passes on in one step, as the two halves of NCCL's threads do.

    Raises:
        Infeasible: the collective is no allreduce.

    Notes:
        Sanders, Speck, Träff 2009 (two-tree); the binary tree is that of NCCL's trees.cc, the
        blocks are those of runTreeSplit, src/device/all_reduce.h. A block has one peer to receive
        from: more children's sums are added one after another, where NCCL adds them at once.
    """
    if collective.name != "allreduce":
        raise Infeasible(
            f"NCCL has trees for allreduce only, not for {collective.name}: use 'ring'"
        )
    blocks: dict[int, list[ThreadBlock]] = {rank: [] for rank in range(collective.ranks)}
    for channel, hosts in enumerate(chains(topology, channels)):
        parents = _parents(hosts, mirrored=channel % 2 == 1)
        children: dict[int, list[int]] = defaultdict(list)
        for child, parent in parents.items():
            children[parent].append(child)
        for rank, of_rank in blocks.items():
            up_and_down = moves(parents.get(rank), children[rank])
            of_rank += blocks_in_turn(up_and_down, len(of_rank), channel, offset=channel)
    gpus = [Gpu(rank, channels, channels, 0, of_rank) for rank, of_rank in blocks.items()]
    return Program(f"nccl-tree-{channels}", "allreduce", protocol, channels, channels, gpus)


def blocks_in_turn(
    parts: Iterable[Move], first: int, channel: int, offset: int, shards: int = 1
) -> list[ThreadBlock]:
    """Return a thread block of one step for each part, each waiting for the one before it.

    Args:
        parts: of the blocks, in their order.
        first: number of the first block in its GPU.
        channel: of the blocks.
        offset: of the chunk that all of them move, but for copies:
        shards: these move so many chunks, among which it is.
    """
    order = list(parts)
    blocks = []
    for n, (op, send, receive, source) in enumerate(order):
        src = -1 if op in ("r", "rcs") else offset
        dst = -1 if op in ("s", "rrs") else offset
        waits = (first + n - 1, 0) if n else (-1, -1)
        count = 1
        if op == "cpy":
            src = dst = offset - offset % shards
            count = shards
        step = Step(op, source, src, "o", dst, count, *waits, has_dep=n < len(order) - 1)
        blocks.append(ThreadBlock(first + n, send, receive, channel, [step]))
    return blocks


def moves(parent: int | None, children: list[int]) -> Iterator[Move]:
    """Yield operation, peers to send to and receive from (-1: none) and source; sums first.

    The child received from last is sent to first: it is the one with most below it.
    """
    receivers = children[::-1]
    for number, child in enumerate(children):
        source = "o" if number else "i"
        if number < len(children) - 1:
            yield "rrc", -1, child, source
        elif parent is None:
            yield "rrcs", receivers.pop(0), child, source
        else:
            yield "rrs", parent, child, source
    if parent is not None and not children:
        yield "s", parent, -1, "i"
        yield "r", -1, parent, "i"
    elif parent is not None:
        yield "rcs", receivers.pop(0), parent, "i"
    for child in receivers:
        yield "s", child, -1, "o"


def _parents(hosts: tuple[Chain, ...], *, mirrored: bool) -> dict[int, int]:
    """Return the parent of each rank but the root; a host's own GPUs come before other hosts'."""
    parents = {child: parent for chain in hosts for parent, child in pairwise(chain.from_head)}
    for host, parent in double_tree_parents(len(hosts), mirrored=mirrored).items():
        parents[hosts[host].head] = hosts[parent].head
    return parents


def double_tree_parents(count: int, *, mirrored: bool) -> dict[int, int]:
    """Return the parent of each node but the root; in the mirrored tree leaves are inside.

    >>> double_tree_parents(4, mirrored=False)
    {1: 2, 2: 0, 3: 2}
    >>> double_tree_parents(4, mirrored=True)
    {2: 1, 1: 3, 0: 1}
    """
    parents = in_order_tree(count)
    if not mirrored:
        return parents
    return {mirror(node, count): mirror(parent, count) for node, parent in parents.items()}
