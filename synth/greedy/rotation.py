"""Rotation symmetry: machines that look the same from each of several groups of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tuccl.sketches.symmetry import images, orbits, rotation
from tuccl.synth.model.network import Network


@dataclass(frozen=True)
class RotationSymmetry:
    """Equal groups of consecutive ranks (periods) that a rotation of the ranks permutes.

    Attributes:
        periods: Number of groups; 1 where no symmetry is used.
        ranks: Ranks of a group.
        orbit: For each resource the number of its orbit: the resources that it is mapped to.
        orbit_load: For each orbit how many periods' messages each of its resources carries.
    """

    periods: int
    ranks: int
    orbit: tuple[int, ...]
    orbit_load: tuple[float, ...]


def no_symmetry(network: Network) -> RotationSymmetry:
    """Return the single period of all ranks, where each resource is an orbit."""
    resources = len(network.rates)
    return RotationSymmetry(1, network.ranks, tuple(range(resources)), (1.0,) * resources)


def rotation_symmetry(network: Network) -> RotationSymmetry:
    """Return the symmetry with the smallest periods of whole hosts, if need be a single one.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.synth.model.network import sketch_network
    >>> from tuccl.topology import join, load_profile
    >>> t = join(load_profile("dgx-a100"), 4)
    >>> rotation_symmetry(sketch_network(full_mesh(t), t)).periods
    4
    """
    ranks_per_host = network.hosts.count(network.hosts[0])
    for size in range(ranks_per_host, network.ranks // 2 + 1, ranks_per_host):
        if network.ranks % size == 0 and _permutes_hosts(network.hosts, size):
            permutation = rotation(network.ranks, size, network.ranks)
            routes, resources = images(
                network.index,
                permutation,
                partial(_equal_costs, network),
                network.routes.__getitem__,
            )
            if len(routes) == len(network.pairs):
                return _symmetry(network, size, resources)
    return no_symmetry(network)


def _permutes_hosts(hosts: Sequence[int], size: int) -> bool:
    """Return whether a rotation by `size` takes the ranks of each host to those of one host."""
    moves = {(host, hosts[(rank + size) % len(hosts)]) for rank, host in enumerate(hosts)}
    return len(moves) == len({host for host, _ in moves}) == len({host for _, host in moves})


def _equal_costs(network: Network, pair: int, image: int) -> bool:
    """Return whether two pairs have equal latencies, and resources of equal rates."""
    latencies, rates = network.latencies_us, network.rates
    return latencies[pair] == latencies[image] and all(
        rates[one] == rates[other]
        for one, other in zip(network.routes[pair], network.routes[image], strict=False)
    )


def _symmetry(network: Network, size: int, images: Mapping[int, int]) -> RotationSymmetry:
    members = orbits(range(len(network.rates)), [lambda resource: images.get(resource, resource)])
    number = {resource: n for n, orbit in enumerate(members) for resource in orbit}
    periods = network.ranks // size
    return RotationSymmetry(
        periods,
        size,
        tuple(number[resource] for resource in range(len(number))),
        tuple(periods / len(orbit) for orbit in members),
    )
