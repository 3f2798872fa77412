"""Exports for MSCCL++: plans that are proved, and the module that selects them in a job."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.programs import ring_allreduce, ring_reduce_scatter
from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.runtime.export.files import export, export_switch
from tuccl.runtime.table.programs import program_file
from tuccl.runtime.table.selection import select
from tuccl.runtime.table.store import load_table, save_table
from tuccl.topology import join, load_profile


def plans_of(folder: Path) -> dict[str, ExecutionPlan]:
    files = sorted(folder.glob("tuccl-*.json"))
    plans = [ExecutionPlan.parse(file.read_bytes(), str(file)) for file in files]
    return {plan.name: plan for plan in plans}


class Algorithm:
    """Stand-in for ``mscclpp.Algorithm`` of a plan."""

    @dataclass
    class Constraint:
        """Where it fits."""

        world_size: int = 0
        n_ranks_per_node: int = 0

    def __init__(self, id: str, execution_plan: Any, constraint: Any) -> None:  # noqa: ANN401
        self.id, self.plan, self.constraint = id, execution_plan, constraint
        self.name = execution_plan.name
        self.collective = execution_plan.collective


class Plan:
    """Stand-in for ``mscclpp.ExecutionPlan``: reads the name and collective of a file."""

    def __init__(self, path: str, rank: int) -> None:
        document = json.loads(Path(path).read_text())
        self.name, self.collective, self.rank = document["name"], document["collective"], rank


@dataclass
class Builder:
    """Stand-in for ``mscclpp.ext.AlgorithmCollectionBuilder``."""

    added: list[Algorithm] = field(default_factory=list)
    selector: Any = None

    def add_algorithm_builder(self, algorithm: Algorithm) -> None:
        self.added.append(algorithm)

    def set_algorithm_selector(self, selector: Any) -> None:  # noqa: ANN401
        self.selector = selector


@pytest.fixture
def mscclpp(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Put a stand-in of ``mscclpp`` among the modules; return its builder."""
    builder = Builder()
    package, ext = ModuleType("mscclpp"), ModuleType("mscclpp.ext")
    package.__dict__.update(Algorithm=Algorithm, ExecutionPlan=Plan, ext=ext)
    ext.__dict__["AlgorithmCollectionBuilder"] = lambda: builder
    monkeypatch.setitem(sys.modules, "mscclpp", package)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", ext)
    return builder


def loaded(folder: Path) -> Any:  # noqa: ANN401
    """Return the module of an export, as a job imports it."""
    spec = importlib.util.spec_from_file_location("tuccl_plans", folder / "tuccl_plans.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(collective: str, nbytes: int, **changes: object) -> SimpleNamespace:
    """Return what MSCCL++'s NCCL library asks for, out of place on rank 1 of 4."""
    facts: dict[str, object] = {
        "collective": collective,
        "message_size": nbytes,
        "world_size": 4,
        "n_ranks_per_node": 4,
        "rank": 1,
        "input_buffer": 1 << 30,
        "output_buffer": 1 << 34,
        "dtype": SimpleNamespace(name="float16"),
        "hints": {},
    }
    return SimpleNamespace(**(facts | changes))


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """An export of one allreduce for both placements."""
    program = ring_allreduce(4).replace(min_bytes=256, max_bytes=1 << 20)
    return export(program, "mscclpp", tmp_path / "sums").files[0].parent


@pytest.fixture
def selected(sums: Path, mscclpp: Builder) -> Iterator[Any]:
    """Yield what chooses among the registered plans of that export."""
    assert loaded(sums).register(1, 4, 4, sums_only=True) == 2
    algorithms = {"allreduce": {each.name: each for each in mscclpp.added}}
    yield lambda *args, **changes: mscclpp.selector(algorithms, request(*args, **changes))


def test_every_choice_of_the_table_becomes_a_plan_that_is_proved(
    hand: SimpleNamespace, stored: Path, tmp_path: Path
) -> None:
    exported = export(stored, "mscclpp", tmp_path / "out")
    assert {file.name for file in exported.files} >= {"tuccl_plans.py", "selection.json"}
    plans = plans_of(tmp_path / "out")
    assert len(plans) == len(exported.files) - 2
    assert all(plan.verify().ok for plan in plans.values())
    module, table = loaded(tmp_path / "out"), load_table(stored).lookup
    for nbytes in (1 << n for n in range(8, 28)):
        for in_place in (False, True):
            wanted = select(table, "allgather", nbytes, in_place=in_place, element_bytes=2)
            name = module.choose(
                module.plans_of(4, 4), "allgather", nbytes, "float16", in_place=in_place
            )
            assert (name is None) == wanted.candidate.is_default
            if name is not None and wanted.candidate.knobs is not None:
                plan = plans[name]
                assert plan.protocol == wanted.candidate.knobs.protocol
                assert plan.inplace == in_place
                assert plan.gpus[0].output_chunks == wanted.candidate.nchunks


def test_an_export_is_replaced_and_nothing_else(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(stored, "mscclpp", out)
    (out / "__pycache__").mkdir()
    assert export(stored, "mscclpp", out).files == first.files
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        export(stored, "mscclpp", out)


def test_what_cannot_be_a_plan_gives_way_with_its_reason(
    hand: SimpleNamespace, tmp_path: Path
) -> None:
    """No 8-byte sums; LL128 becomes Simple."""
    topology, files = hand.mesh(), hand.files()
    files["LL128"] = program_file(hand.ring_allgather("LL128"))
    entries = [
        msgspec.structs.replace(
            hand.entry(0, 1 << 20, hand.candidate(files["LL"], 5.0)), datatype_class="8-byte"
        ),
        msgspec.structs.replace(
            hand.entry(0, 1 << 20, hand.candidate(files["LL128"], 5.0)),
            datatype_class="2-byte",
        ),
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, list(files.values()))
    exported = export(tmp_path / "t", "mscclpp", tmp_path / "out")
    assert any("adds up no 8-byte" in note for note in exported.notes)
    assert any("no LL128" in note for note in exported.notes)
    assert {plan.protocol for plan in plans_of(tmp_path / "out").values()} == {"Simple"}
    module = loaded(tmp_path / "out")
    assert module.choose(module.plans_of(4, 4), "allgather", 1 << 16, "bfloat16", in_place=False)
    assert (
        module.choose(module.plans_of(4, 4), "allgather", 1 << 16, "float32", in_place=False)
        is None
    )


def test_plans_are_registered_where_no_other_choice_takes_them(selected: Any) -> None:  # noqa: ANN401
    algorithm = selected("allreduce", 1 << 16)
    assert (algorithm.constraint.world_size, algorithm.constraint.n_ranks_per_node) == (0, 0)
    assert algorithm.plan.rank == 1 and algorithm.name == algorithm.id
    in_place = selected("allreduce", 1 << 16, output_buffer=1 << 30)
    assert in_place.name != algorithm.name


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": SimpleNamespace(name="float8_e4m3fn")},
        {"dtype": SimpleNamespace(name="uint8")},
        {"message_size": 128},
        {"message_size": 1 << 21},
        {"message_size": (1 << 16) + 16},
        {"world_size": 8},
        {"n_ranks_per_node": 2},
        {"input_buffer": (1 << 30) + 8},
        {"collective": "allgather"},
    ],
)
def test_calls_that_no_plan_fits_are_left_to_the_runtime(
    selected: Any,  # noqa: ANN401
    changes: dict[str, object],
) -> None:
    assert selected(**({"collective": "allreduce", "nbytes": 1 << 16} | changes)) is None


def test_reductions_other_than_sums_have_no_plan(sums: Path, mscclpp: Builder) -> None:
    module = loaded(sums)
    assert module.register(1, 4, 4) == 0 and module.register(1, 8, 8, sums_only=True) == 0
    assert not mscclpp.added and mscclpp.selector is None
    assert module.choose(module.plans_of(4, 4), "allreduce", 1 << 16, "float16", in_place=True)
    assert (
        module.choose(
            module.plans_of(4, 4), "allreduce", 1 << 16, "float16", in_place=True, op="max"
        )
        is None
    )


def test_all_ranks_recognize_an_allgather_in_place_alike(
    stored: Path, tmp_path: Path, mscclpp: Builder
) -> None:
    export(stored, "mscclpp", tmp_path / "out")
    module = loaded(tmp_path / "out")
    assert module.register(0, 4, 4) == len(plans_of(tmp_path / "out"))
    algorithms = {"allgather": {each.name: each for each in mscclpp.added}}
    share = 1 << 18
    chosen = {
        module.select(
            algorithms,
            request("allgather", share, rank=rank, input_buffer=(1 << 34) + rank * share),
        ).name
        for rank in range(4)
    }
    assert len(chosen) == 1 and "-in-" in chosen.pop()


def test_a_reduce_scatter_in_place_has_no_plan_on_any_rank(
    tmp_path: Path, mscclpp: Builder
) -> None:
    export(ring_reduce_scatter(4), "mscclpp", tmp_path / "out")
    module = loaded(tmp_path / "out")
    assert module.register(0, 4, 4, sums_only=True) == 1
    algorithms = {"reducescatter": {each.name: each for each in mscclpp.added}}
    for rank in range(4):
        target = (1 << 30) + rank * (1 << 14)
        call = request("reducescatter", 1 << 16, rank=rank, output_buffer=target)
        assert module.select(algorithms, call) is None
        apart = request("reducescatter", 1 << 16, rank=rank)
        assert module.select(algorithms, apart) is not None


def test_sglang_tries_the_plans_for_sums_in_place(sums: Path, mscclpp: Builder) -> None:
    class Communicator:
        """Stand-in for SGLang's ``PyMscclppCommunicator``."""

        rank, world_size, nranks_per_node = 1, 4, 4

        def _create_dsl_algorithms(self) -> list[Any]:
            return ["theirs"]

        def _create_native_algorithms(self) -> list[Any]:
            return []

    loaded(sums).extend_sglang(Communicator)
    theirs, (algorithm, blocks, threads) = Communicator()._create_dsl_algorithms()
    assert theirs == "theirs" and (blocks, threads) == ([0], [0])
    assert "-in-" in algorithm.name
    assert len(Communicator()._create_native_algorithms()) == 1


def run_script(
    plans: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    place: tuple[int, int, int],
) -> Any:  # noqa: ANN401
    """Return the module of ``plans`` after it ran a script as torchrun starts it.

    Args:
        plans: The module's folder.
        tmp_path: Where the script is written.
        monkeypatch: Sets what torchrun sets.
        text: The script; its argument is "argument".
        place: Rank, ranks, and ranks on the host.
    """
    script = tmp_path / "train.py"
    script.write_text(text)
    monkeypatch.syspath_prepend(str(plans))
    monkeypatch.delitem(sys.modules, "tuccl_plans", raising=False)
    for name, value in zip(("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"), place, strict=True):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", ["tuccl_plans", "--sums-only", str(script), "argument"])
    module = loaded(plans)
    module.main()
    return module


def test_a_script_runs_with_the_plans_registered(
    sums: Path, mscclpp: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import sys, tuccl_plans\nsys.stdout.write(sys.argv[1])\n"
    run_script(sums, tmp_path, monkeypatch, text, (2, 4, 4))
    assert [each.plan.rank for each in mscclpp.added] == [2, 2]


def test_the_switch_of_a_host_serves_all_sizes(tmp_path: Path, mscclpp: Builder) -> None:
    export_switch(load_profile("dgx-h100"), ["allreduce"], tmp_path / "out", share_scratch=True)
    plans = plans_of(tmp_path / "out")
    assert all(plan.verify().ok for plan in plans.values())
    module = loaded(tmp_path / "out")
    assert module.register(0, 8, 8, sums_only=True) == len(plans) == 4
    for nbytes, protocol in ((1 << 10, "LL"), (1 << 26, "Simple")):
        for in_place in (False, True):
            name = module.choose(
                module.plans_of(8, 8), "allreduce", nbytes, "float16", in_place=in_place
            )
            assert plans[name].protocol == protocol and plans[name].inplace == in_place
    for machine in (load_profile("dgx-a100"), join(load_profile("dgx-h100"), 2, "single")):
        with pytest.raises(Infeasible, match="a switch adds up on one host, for GPUs"):
            export_switch(machine, ["allreduce"], tmp_path / "no")


def test_what_port_channels_leave_room_for_is_said(tmp_path: Path) -> None:
    alone = export(ring_allreduce(4), "mscclpp", tmp_path / "one")
    assert not any("port channels" in note for note in alone.notes)
    exported = export(ring_allreduce(4), "mscclpp", tmp_path / "two", nodes=2)
    plans = plans_of(tmp_path / "two").values()
    ports = sum(max(len(gpu.peers("port")) for gpu in plan.gpus) for plan in plans)
    (note,) = (note for note in exported.notes if "port channels" in note)
    pairs = int(note.split(" pairs")[0].split()[-1])
    assert 0 < pairs * ports <= 1024
