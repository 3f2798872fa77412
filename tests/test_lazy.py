"""Rooms import their names when they are first used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from tests import test_layers

ROOMS = [room for room in test_layers.ROOMS if room not in ("torch", "cli")]


def printed(script: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("room", ROOMS)
def test_importing_a_room_imports_none_of_its_modules(room: str) -> None:
    script = f"import sys, tuccl.{room}; print([m for m in sys.modules if 'tuccl.{room}.' in m])"
    assert printed(script) == "[]"


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_that_a_room_gives_is_there(room: str) -> None:
    package = importlib.import_module(f"tuccl.{room}")
    assert set(package.__all__) <= set(dir(package))
    assert not [n for n in package.__all__ if isinstance(getattr(package, n), ModuleType)]


def test_a_name_that_a_module_shares_is_the_value() -> None:
    script = (
        "import tuccl.topology.signature\nfrom tuccl.topology import signature\nprint(signature)"
    )
    assert printed(script).startswith("<function signature")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"'tuccl\.topology' has no attribute 'nonesuch'"):
        _ = importlib.import_module("tuccl.topology").nonesuch
