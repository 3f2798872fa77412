"""The rooms form layers; an import may only point to rooms above (design table in ARCHITECTURE.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOOR = {"_native", "__version__", "errors", "units"}
ROOMS = ["topology", "sketches", "synth", "runtime", "torch", "tuning", "eval", "cli"]
SYNTH = ["model", "bounds", "lowering", "classic", "packing", "greedy", "exact", "baseline"]
FOLDERS = {"torch": "torch_backend/torch"}  # a folder `torch` would hide PyTorch itself


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tuccl":
            yield from (f"tuccl.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_up_the_table(room: str) -> None:
    allowed = FLOOR | set(ROOMS[: ROOMS.index(room) + 1])
    files = sorted((ROOT / FOLDERS.get(room, room)).rglob("*.py"))
    assert files
    for path in files:
        for module in imported(path):
            top, _, rest = module.partition(".")
            assert top != "tuccl" or rest.split(".")[0] in allowed, f"{path}: {module}"


@pytest.mark.parametrize("folder", SYNTH)
def test_synthesis_points_up_its_own_table(folder: str) -> None:
    allowed = SYNTH[: SYNTH.index(folder) + 1]
    files = sorted((ROOT / "synth" / folder).glob("*.py"))
    assert files
    for path in files:
        for module in imported(path):
            if module.startswith("tuccl.synth"):
                assert module.split(".")[2] in allowed, f"{path}: {module}"


def test_the_floor_imports_no_room() -> None:
    for path in (ROOT / "msccl_ext" / "python").rglob("*.py"):
        for module in imported(path):
            top, _, rest = module.partition(".")
            assert top != "tuccl" or rest.split(".")[0] in FLOOR, f"{path}: {module}"
