"""Networks of very many ranks, each with the routes over which a program sends."""

from __future__ import annotations

from itertools import permutations

from tuccl.program import Program
from tuccl.simulation import Network
from tuccl.synth.baseline.nccl_nvls import nvls_network
from tuccl.topology import Topology, network


class SentRoutes:
    """The networks of the programs on one topology, made at their first use.

    4,096 ranks have 17 million pairs. What a program takes depends on no other program.
    """

    def __init__(self, topology: Topology) -> None:
        """Start without routes."""
        self._topology = topology
        self._networks: dict[frozenset[tuple[int, int, int]], Network] = {}

    def network(self, program: Program) -> Network:
        """Return the links over which ``program`` sends, with the switches' if it has their ranks.

        Raises:
            InputError: two ranks that it has send to each other are not joined.
            Infeasible: it has ranks of switches where there are none.
        """
        sends = frozenset(
            (program.period, gpu.id, block.send_peer)
            for gpu in program.written
            for block in gpu.threadblocks
        )
        if sends not in self._networks:
            self._networks[sends] = self._made(program)
        return self._networks[sends]

    def _made(self, program: Program) -> Network:
        topology = self._topology
        pairs = {pair for pair in program.sent if max(pair) < topology.ranks}
        if program.ngpus == topology.ranks:
            return network(topology, pairs)
        hosts = [topology.gpus_of(host) for host in topology.hosts]
        inside = {pair for host in hosts for pair in permutations(host, 2)}
        return nvls_network(network(topology, pairs | inside), hosts)
