"""The examples in the docstrings of this room hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tuccl.sketches

MODULES = sorted(module.name for module in pkgutil.iter_modules(tuccl.sketches.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tuccl.sketches.{name}"))
    assert result.failed == 0
