"""Fixtures every room's tests share."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tuccl._native import Program

# A busy machine is no fault, and equal trees shall fail or pass alike; `make soak` explores.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT)
settings.load_profile("patient")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public measurements, topologies and programs, or skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the public data sets (shared/data beside the checkout) are not here")
    return folder


@pytest.fixture(scope="session")
def handmade() -> ModuleType:
    """Return tests/programs.py: small correct programs made by hand."""
    return _module("programs")


@pytest.fixture(scope="session")
def mutate() -> Callable[[Program, random.Random], tuple[Program, str]]:
    """Return tests/mutations.py's `mutate`: breaks a correct program, and says how."""
    breaks: Callable[[Program, random.Random], tuple[Program, str]] = _module("mutations").mutate
    return breaks


def _module(name: str) -> ModuleType:
    """Load a module of this folder, which is not on the path."""
    full = f"tuccl_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]
