"""The examples in the docstrings of every module are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tuccl

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(tuccl.__path__, "tuccl.")
    if not module.ispkg and not module.name.endswith("__main__") and "_native" not in module.name
)


def test_every_room_is_searched() -> None:
    assert {name.split(".")[1] for name in MODULES} >= {"topology", "synth", "runtime", "cli"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("tuccl"):
            raise
        pytest.skip(f"{missing.name} is optional, and not installed")
    assert doctest.testmod(module).failed == 0
