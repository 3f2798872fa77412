"""Probes that run: agents on hosts, RDMA's perftest, copies between GPUs."""

from tuccl.runtime.probing.agents import (
    AgentProber,
    agent_words,
    loopback_endpoints,
    loopback_prober,
)

__all__ = ["AgentProber", "agent_words", "loopback_endpoints", "loopback_prober"]
