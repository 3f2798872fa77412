"""A policy trained on one machine, and calls of another that it never saw."""

import pytest

from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import train_policy
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.rl.policy import Policy

SIZES = (16 << 10, 256 << 20)


@pytest.fixture(scope="session")
def machine() -> Topology:
    return join(load_profile("v100x4"), 3)


@pytest.fixture(scope="session")
def policy(machine: Topology) -> Policy:
    return train_policy([machine], ["allgather"], SIZES, budget=25)


@pytest.fixture(scope="session")
def calls(cluster: Topology) -> list[SimulatedCall]:
    return simulated_calls(cluster, "allgather", SIZES)
