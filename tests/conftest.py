"""Fixtures every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public measurements, topologies and programs, or skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the public data sets (shared/data beside the checkout) are not here")
    return folder
