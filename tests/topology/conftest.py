"""Builders the topology tests share."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tuccl.topology import Link, Node, Topology

MACHINES = Path(__file__).resolve().parents[1] / "machines"


@pytest.fixture(scope="session")
def machines() -> Path:
    """Return the folder of recorded machines written for the tests."""
    return MACHINES


@pytest.fixture
def random_machine() -> Callable[[int], Topology]:
    """Return a maker of small random machines: GPUs and relays on a tree, with extra links."""

    def make(seed: int) -> Topology:
        chance = random.Random(seed)
        gpus = [Node(f"g{i}", "gpu", "h", rank=i) for i in range(chance.randint(2, 4))]
        relays = [Node(f"r{i}", "pcie", "h") for i in range(chance.randint(1, 4))]
        ids = [node.id for node in relays]
        links = []

        def link(src: str, dst: str, *, duplex: bool) -> None:
            rate = float(chance.choice((10, 20, 40)))
            links.append(Link(src, dst, "pcie", rate, chance.random(), duplex))

        for place, relay in enumerate(ids[1:], start=1):
            link(relay, chance.choice(ids[:place]), duplex=True)
        for gpu in gpus:
            link(gpu.id, chance.choice(ids), duplex=True)
        everyone = [*ids, *(gpu.id for gpu in gpus)]
        for _ in range(chance.randint(0, 6)):
            src, dst = chance.sample(everyone, 2)
            link(src, dst, duplex=chance.random() < 0.5)
        nodes = [*gpus, *relays]
        chance.shuffle(nodes)
        return Topology("random", tuple(nodes), tuple(links))

    return make
