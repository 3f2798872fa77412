"""Trees for many equal hosts, composed of trees between hosts and trees inside one host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from tuccl.planners import pack_trees
from tuccl.synth.bounds.graph import routed_fabric
from tuccl.synth.model.hierarchy import EqualGroups, compose_tree, equal_groups
from tuccl.synth.model.network import Network, Pair
from tuccl.synth.packing.edge_capacities import TreeProblem, edge_capacities
from tuccl.synth.packing.tree import Tree

_MOST_CHUNKS = 6
# Runs of chunks that a connection inside a host carries at most: a thread block has 64 steps.
MOST_RUNS = 64

# For each local rank the trees inside a host, as edges (parent, child), parents first.
_Inner = list[list[list[Pair]]]


@dataclass(frozen=True)
class Rails(EqualGroups):
    """Equal hosts that are joined between equal local ranks, and who sends on which rail.

    Attributes:
        network: All links.
        members: Ranks of each host, by local rank.
        relay_group: Neighbouring ranks of a host whose chunks leave by one relay, as one run. Hosts
            take turns at the relays with this period.
    """

    relay_group: int

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Return the host and the local rank of each rank."""
        return {
            rank: (host, local)
            for host, ranks in enumerate(self.members)
            for local, rank in enumerate(ranks)
        }

    def relay(self, host: int, local_rank: int) -> int:
        """Return the local rank by which chunks of a rank leave their host and enter others."""
        return local_rank // self.relay_group * self.relay_group + host % self.relay_group

    @property
    def strides(self) -> list[int]:
        """Return how many hosts ahead hosts send: 1, then 1, 2, 4 ... relay groups of hosts."""
        groups = -(-len(self.members) // self.relay_group)
        far = [self.relay_group << power for power in range((groups - 1).bit_length())]
        return far if self.relay_group == 1 else [1, *far]


@lru_cache(maxsize=8)
def rails_of(network: Network) -> Rails | None:
    """Return the rails where hosts are equal and joined between equal local ranks, else None."""
    hosts = equal_groups(network)
    if hosts is None:
        return None
    members = hosts.members
    rails = Rails(network, members, _relay_group(len(members), hosts.local_ranks))
    pairs = (
        pair
        for number, ranks in enumerate(members)
        for stride in rails.strides
        for pair in zip(ranks, members[(number + stride) % len(members)], strict=True)
    )
    return rails if all(pair in network.index for pair in pairs) else None


def _relay_group(hosts: int, local_ranks: int) -> int:
    """Return the fewest ranks to a relay group with which connections carry few enough runs.

    With more than one, a host's own group is a run apart from those of others. A group of one
    shares the links between hosts exactly; larger ones have some hosts carry more, and a relay
    waits for its group's chunks of a pass behind all that its block received in the pass before, so
    that the links between hosts and those inside them take turns.
    """
    sizes = [n for n in range(1, local_ranks + 1) if local_ranks % n == 0 and hosts % n == 0]
    return next((size for size in sizes if hosts <= size * (MOST_RUNS - (size > 1))), sizes[-1])


def hierarchical_trees(network: Network, chunks_per_rank: int) -> tuple[Tree, ...] | None:
    """Return trees from every rank by which its chunks get to all; None where hosts differ.

    A chunk gets to all ranks of its host, from one of them, the relay, to the ranks of that local
    rank on the other hosts (rails), and from there to the other ranks of theirs. Hosts send to the
    ones 1, 2, 4 and so on ahead (or as many relay groups of hosts): few connections, and paths that
    grow as the logarithm of their number. All hosts do the same, so links between hosts are shared
    evenly.
    """
    hosts = rails_of(network)
    if hosts is None:
        return None
    inner = _inner_trees(hosts.inside)
    outer = _outer_tree(hosts)
    return tuple(
        Tree(rank, chunks_per_rank, _parents(hosts, home, local_rank, outer, inner))
        for home, ranks in enumerate(hosts.members)
        for local_rank, rank in enumerate(ranks)
    )


def _outer_tree(hosts: Rails) -> list[int]:
    """Return for each host the stride from its parent in the tree from host 0.

    The strides between relay groups take about as many arcs each. They lead to hosts that take the
    same turn at the relays, and within the first group each host sends to the next: so those of
    each turn send as much as the others, and with them all relays of a host.
    """
    count, group = len(hosts.members), hosts.relay_group
    far = [stride for stride in hosts.strides if stride >= group]
    uses, stride_into = [0] * len(far), [min(host, 1) for host in range(count)]
    for host in sorted(range(group, count), key=lambda host: ((host // group).bit_count(), host)):
        bits = [number for number, stride in enumerate(far) if host // group & stride // group]
        number = min(bits, key=lambda number: (uses[number], number))
        uses[number] += 1
        stride_into[host] = far[number]
    return stride_into


def _parents(
    hosts: Rails, home: int, local_rank: int, outer: list[int], inner: _Inner
) -> tuple[int, ...]:
    """Return the parents of all ranks in the tree of one rank's chunks."""
    members, count = hosts.members, len(hosts.members)
    relay = hosts.relay(home, local_rank)

    def inside(rank: int) -> Iterator[Pair]:
        host, local = hosts.places[rank]
        ranks, trees = members[host], inner[local]
        tree = trees[(host - home) % count % len(trees)]
        return ((ranks[parent], ranks[child]) for parent, child in tree)

    crossings = (
        (members[(host - outer[ahead]) % count][relay], members[host % count][relay])
        for ahead, host in enumerate(range(home + 1, home + count), start=1)
    )
    parents = [-1] * len(hosts.places)
    for _, parent, child in compose_tree(members[home][local_rank], inside, crossings):
        parents[child] = parent
    return tuple(parents)


def _inner_trees(host: Network) -> _Inner:
    """Return for each local rank the trees that its chunks take in turn."""
    fabric = routed_fabric(host)
    best: tuple[Fraction, _Inner] | None = None
    for chunks in range(1, _MOST_CHUNKS + 1):
        problem = TreeProblem(host, fabric, (chunks,) * host.ranks)
        capacities = edge_capacities(problem)
        time_s = problem.busiest_s(capacities) / chunks
        if best is None or time_s < best[0] * Fraction(99, 100):
            trees: _Inner = [[] for _ in range(host.ranks)]
            for tree in pack_trees(problem.arcs(capacities), problem.chunks_per_root):
                packed = Tree(tree.root, tree.weight, tuple(tree.parent))
                trees[tree.root] += [packed.downwards] * tree.weight
            best = time_s, trees
    return best[1] if best else []
