"""Thread blocks and channels of the connections that trees use, by what a thread block sustains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuccl.simulation import MachineClass
from tuccl.synth.model.network import Pair
from tuccl.synth.packing.hierarchical import MOST_RUNS
from tuccl.synth.packing.tree_packing import Flow, Forest, TreePacker

# Thread blocks that a GPU may need whatever its fastest connection needs, and that others may
# wait for, since a dependency names its block in a signed byte.
_FEW_BLOCKS, _MOST_AWAITED = 32, 128
# Channels of a program, and copies of it that knobs may set.
_MOST_CHANNELS, _MOST_COPIES = 32, 16
# Lanes of the fastest flow that are tried in turn: with more, few chunks a lane come in bursts.
_LANES = (1, 2, 4)
# Blocks wait for each other now and then, so they should be able to do more than links need.
_RESERVE = 1.2
_Connection = tuple[int, int, int]  # channel, sending and receiving rank


@dataclass(frozen=True)
class Connections:
    """Channels and thread blocks of the connections.

    Attributes:
        lanes: Parallel channels of each flow.
        copies: Copies of the program (channels) with which the blocks keep up with the links.
        apart: Whether results have other channels than sums, and so thread blocks of their own.
        shared: Connections that share the thread block of the opposite direction.
        idle: Pairs whose results go on the channel of sums, which do not use the pair.
    """

    lanes: Mapping[Flow, int]
    copies: int
    apart: bool = True
    shared: frozenset[_Connection] = frozenset()
    idle: frozenset[Pair] = frozenset()

    def channel(self, flow: Flow, turn: int) -> int:
        """Return the channel of the send number `turn` of a flow."""
        reduces, src, dst = flow
        below = 0
        if self.apart and not reduces and (src, dst) not in self.idle:
            below = self.lanes.get((True, src, dst), 1)
        return below + turn % self.lanes[flow]


def plan_connections(packer: TreePacker, forest: Forest, machine: MachineClass) -> Connections:
    """Return the channels of each flow: as many thread blocks as carry what its links do.

    Copies of the program give a flow more blocks. Where so many do not fit, fast flows get lanes
    of their own: the fewest that do, or that come closest.
    """
    limit = min(_MOST_AWAITED, machine.sm_count or _MOST_AWAITED)
    costs = machine.simple
    chunks, needed = forest.chunks, {}
    for flow, count in chunks.items():
        rate_gbs = min(costs.send_gbs, costs.rrc_gbs if flow[0] else costs.recv_gbs)
        needed[flow] = _RESERVE * count / float(forest.busiest_s) / rate_gbs
    best, shortage = Connections(dict.fromkeys(chunks, 1), 1), math.inf
    for fastest in _LANES[: 1 if forest.relay_group else None]:
        unit = max(needed.values()) / fastest
        lanes = {flow: min(n, math.ceil(needed[flow] / unit)) for flow, n in chunks.items()}
        blocks, channels = Counter[int](), Counter[Pair]()
        for (_, src, dst), number in lanes.items():
            channels[src, dst] += number
            blocks.update({src: number, dst: number})
        fit = min(limit // max(blocks.values()), _MOST_CHANNELS // max(channels.values()))
        most = max(needed[flow] * math.ceil(n / lanes[flow]) / n for flow, n in chunks.items())
        copies = min(_MOST_COPIES, fit, math.ceil(most))
        if copies and most / copies < shortage:
            best, shortage = Connections(lanes, copies), most / copies
        if shortage <= 1:
            break
    if max(best.lanes.values()) > 1:
        return best
    return _share_blocks(packer, forest, best, max(_FEW_BLOCKS, limit // best.copies))


def _share_blocks(
    packer: TreePacker, forest: Forest, connections: Connections, most_blocks: int
) -> Connections:
    """Return a thread block for each direction of each connection, if need be fewer for idle ones.

    A block that serves two connections delays both, so those with the least used resources share
    first; only if that is not enough, results use the blocks of the sums.
    """
    hosts = packer.network.hosts
    sums = {(src, dst) for reduce, src, dst in forest.chunks if reduce}
    results = {(src, dst) for reduce, src, dst in forest.chunks if not reduce}
    idle = frozenset[Pair]()
    if forest.relay_group and sums:
        # Between hosts a result may share the block of the sum that came back on the same route.
        idle = frozenset(pair for pair in results - sums if hosts[pair[0]] != hosts[pair[1]])
    apart = bool(sums)

    def connection_of(reduces: bool, pair: Pair) -> _Connection:
        return int(apart and not reduces and pair not in idle), *pair

    every = {connection_of(reduces, (src, dst)) for reduces, src, dst in forest.chunks}
    blocks = Counter(rank for _, *ends in every for rank in ends)
    utilisation = packer.utilisation(forest)
    shared: set[_Connection] = set()

    def idlest(connection: _Connection) -> tuple[float, int, _Connection]:
        # In the order of src ^ dst every rank of a host gives up as many blocks as the others.
        _, src, dst = connection
        return round(utilisation[src, dst], 2), src ^ dst, connection

    runs = Counter[_Connection]()
    if forest.relay_group:
        for (reduces, src, dst), chunks in forest.chunks.items():
            runs[connection_of(reduces, (src, dst))] = -(-chunks // forest.relay_group)
    duplex = [c for c in every if c[1] < c[2] and _opposite(c) in every]
    duplex = [c for c in duplex if runs[c] + runs[_opposite(c)] <= MOST_RUNS]
    for connection in sorted(duplex, key=idlest):
        _, *ends = connection
        if max(blocks[rank] for rank in ends) > most_blocks:
            shared.update((connection, _opposite(connection)))
            blocks.subtract(ends)
    if max(blocks.values()) > most_blocks and not forest.relay_group:
        return replace(connections, apart=False)
    return replace(connections, apart=apart, shared=frozenset(shared), idle=idle)


def _opposite(connection: _Connection) -> _Connection:
    channel, src, dst = connection
    return channel, dst, src
