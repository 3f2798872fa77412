"""The examples in the docstrings of the eval room are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOM = Path(__file__).resolve().parents[2] / "eval"


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOM.glob("[a-z]*.py")))
def test_examples(name: str) -> None:
    module = importlib.import_module(f"tuccl.eval.{name}")
    assert doctest.testmod(module).failed == 0
