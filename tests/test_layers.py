"""The rooms form layers; an import may only point to rooms above (ARCHITECTURE.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOOR = {
    "__version__",
    "errors",
    "execution",
    "files",
    "installation",
    "lazy",
    "mscclpp",
    "planners",
    "program",
    "selection",
    "simulation",
    "units",
}
FACADE = "runtime/table/store.py"  # a table compares and exports itself by `tuccl`'s functions
ROOMS = [
    "topology",
    "sketches",
    "synth",
    "runtime",
    "groups",
    "emulation",
    "torch",
    "training",
    "tuning",
    "eval",
    "cli",
]
SYNTH = [
    "model",
    "bounds",
    "lowering",
    "mscclpp",
    "classic",
    "packing",
    "greedy",
    "taccl",
    "few_step",
    "baseline",
]
RUNTIME = [
    "nccl",
    "table",
    "executors",
    "libraries",
    "baseline",
    "export",
    "jobs",
    "nccl_tests",
    "mscclpp",
    "workload",
    "probing",
]
# Folders of msccl_ext/src; those of one line stand side by side.
NATIVE = [
    {"support"},
    {"program"},
    {"xml"},
    {"verify"},
    {"select", "agree"},
    {"elements"},
    {"plan", "exec", "planners", "lowering"},
    {"sim", "cuda"},
    {"comm"},
    {"bind"},
]
TUNING = ["searches", "studies", "rl"]  # `nccl` is a tune of its own
# What readers of other tools' files may import of their room.
READERS = {"readers", "files", "graph", "models", "rates", "switches"}
# And what probing may: the probes are run by rooms below.
PROBING = {"probing", "graph", "paths"}
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
            if module == "tuccl":
                assert path == ROOT / FACADE
            else:
                assert top != "tuccl" or rest.split(".")[0] in allowed, f"{path}: {module}"


@pytest.mark.parametrize(
    ("room", "folder"),
    [
        (room, folder)
        for room, folders in (("synth", SYNTH), ("runtime", RUNTIME), ("tuning", TUNING))
        for folder in folders
    ],
)
def test_folders_of_a_room_point_up_its_own_table(room: str, folder: str) -> None:
    folders = {"synth": SYNTH, "runtime": RUNTIME, "tuning": TUNING}[room]
    allowed = folders[: folders.index(folder) + 1]
    files = sorted((ROOT / room / folder).glob("*.py"))
    assert files
    for path in files:
        for module in imported(path):
            if module.startswith(f"tuccl.{room}."):
                assert module.split(".")[2] in allowed, f"{path}: {module}"


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("readers", READERS), ("probing", PROBING), ("pictures", {"pictures", "graph"})],
)
def test_folders_of_topology_stand_on_the_graph(folder: str, allowed: set[str]) -> None:
    files = sorted((ROOT / "topology" / folder).glob("*.py"))
    assert files
    for path in files:
        for module in imported(path):
            if module.startswith("tuccl.topology."):
                assert module.split(".")[2] in allowed, f"{path}: {module}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_caller_checks_the_class_of_an_executor(room: str) -> None:
    for path in sorted((ROOT / FOLDERS.get(room, room)).rglob("*.py")):
        assert not re.search(r"\bisinstance\([^()]*\b\w*Executor\b", path.read_text()), path


def test_the_floor_imports_no_room() -> None:
    floor = ROOT / "msccl_ext" / "python" / "tuccl"
    for path in set(floor.rglob("*.py")) - {floor / "__init__.py"}:  # which names what there is
        for module in imported(path):
            top, _, rest = module.partition(".")
            assert top != "tuccl" or rest.split(".")[0] in FLOOR | {"_native"}, f"{path}: {module}"


@pytest.mark.parametrize("row", range(len(NATIVE)))
def test_native_folders_include_only_those_before_them(row: int) -> None:
    allowed = set().union(*NATIVE[: row + 1]) | {"tuccl"}
    source = ROOT / "msccl_ext" / "src"
    assert {folder.name for folder in source.iterdir()} == set().union(*NATIVE)
    for folder in NATIVE[row]:
        for path in sorted((source / folder).iterdir()):
            included = set(re.findall(r'#include "(\w+)/', path.read_text()))
            assert included <= allowed, f"{path}: {included - allowed}"
