"""``import tuccl`` gives the public names, and imports nothing until one is used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tuccl

ROOMS = "topology sketches synth runtime tuning eval"
ALL_ROOMS = f"{ROOMS} groups emulation training"
MOST_NAMES = 200
HEAVY = "networkx optuna msgspec rich yaml"


@pytest.mark.parametrize("name", tuccl.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(tuccl, name)
    assert name in dir(tuccl)
    assert value.__doc__ or name == "Dialect"  # a Literal has none


def test_rooms_that_pages_name_need_no_import_of_their_own() -> None:
    script = (
        "import tuccl; tuccl.runtime.SimExecutor, tuccl.tuning.study_folder, tuccl.errors.Stuck"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_rooms_export_few_names() -> None:
    """Each room's own `__all__` counts, what `from tuccl.ROOM import` gives; folders' do not."""
    rooms = (importlib.import_module(f"tuccl.{room}") for room in ALL_ROOMS.split())
    assert sum(len(room.__all__) for room in rooms) <= MOST_NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module .tuccl. has no attribute .tunes."):
        _ = tuccl.tunes  # type: ignore[attr-defined]


def test_importing_it_imports_no_room_and_nothing_heavy() -> None:
    script = "import sys, tuccl; print(*(m for m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    modules = set(ran.stdout.split())
    assert "tuccl.lazy" in modules
    assert not modules & {*(f"tuccl.{room}" for room in ROOMS.split()), *HEAVY.split()}
    assert "tuccl._native" not in modules
