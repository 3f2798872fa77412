"""Agents that all run on this machine, each on an address of its loopback device."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tuccl.runtime.probing import AgentProber, agent_words
from tuccl.topology.probing import Endpoint


def loopback_endpoints(count: int) -> tuple[Endpoint, ...]:
    """Return endpoints on this machine's loopback device."""
    return tuple(Endpoint(f"lo{n}", f"lo{n}/nic0", f"127.0.0.{n + 1}") for n in range(count))


def loopback_prober(endpoints: Sequence[Endpoint]) -> AgentProber:
    """Return a prober whose agents all run on this host, each on its endpoint's address."""
    return AgentProber(endpoints, [agent_words(sys.executable)] * len(endpoints))
