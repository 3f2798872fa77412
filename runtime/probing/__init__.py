"""Probes that run: agents on hosts and of ranks, RDMA's perftest, copies between GPUs."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.probing.agents import (
        AgentProber,
        agent_words,
    )
    from tuccl.runtime.probing.peer_copies import run_peer_copies
    from tuccl.runtime.probing.perftest import PerftestProber
    from tuccl.runtime.probing.transports import (
        JobTransports,
        RankFacts,
        RankPair,
        context_of,
        enter_process,
        local_context,
        local_facts,
        probe_transports,
        read_transports,
    )

__all__ = [
    "AgentProber",
    "JobTransports",
    "PerftestProber",
    "RankFacts",
    "RankPair",
    "agent_words",
    "context_of",
    "enter_process",
    "local_context",
    "local_facts",
    "probe_transports",
    "read_transports",
    "run_peer_copies",
]

make_lazy(__name__)
