"""What sets the time of a table's choice, and what its knobs gain."""

from __future__ import annotations

import pytest

import tuccl
from tuccl.errors import Infeasible
from tuccl.eval.choice_analysis import ChoiceAnalysis, analyse_choice, programs_of
from tuccl.program import Knobs
from tuccl.runtime import NCCL_VERSION, SimExecutor, Table
from tuccl.synth import Collective
from tuccl.topology import join, load_profile

SIZES = (4 << 10, 4 << 20)


@pytest.fixture(scope="module")
def table() -> Table:
    options = tuccl.TuneOptions(budget=16)
    return tuccl.tune(join(load_profile("v100x4"), 2), "allgather", SIZES, options=options)


def analysis(table: Table, nbytes: int) -> ChoiceAnalysis:
    cache = programs_of(table, Collective("allgather", 8))
    return analyse_choice(table, SimExecutor(table.topology), cache, nbytes, NCCL_VERSION)


@pytest.mark.parametrize("nbytes", SIZES)
def test_the_parts_of_the_time_add_up_to_the_choices_time(table: Table, nbytes: int) -> None:
    found = analysis(table, nbytes)
    chosen = table.select("allgather", nbytes).candidate
    assert chosen.stats is not None
    assert found.time_us == pytest.approx(chosen.stats.recent_us, rel=1e-6)
    assert sum(part.us for part in found.path.parts) == pytest.approx(found.time_us)
    assert not [part.what for part in found.path.parts if "not recorded" in part.what]
    assert max(found.busiest) <= 1.001
    assert max(found.busiest) >= max(max(c.over_time) for c in found.use.classes) - 1e-9


@pytest.mark.parametrize("nbytes", SIZES)
def test_effects_are_of_what_is_not_at_its_default(table: Table, nbytes: int) -> None:
    chosen = table.select("allgather", nbytes).candidate
    program, knobs = table.program(chosen), chosen.knobs
    assert program is not None and knobs is not None
    effects = {effect.dimension: effect for effect in analysis(table, nbytes).effects}
    assert ("protocol" in effects) == (knobs.protocol != "Simple")
    assert ("channels" in effects) == (knobs.channels != 1)
    assert ("threads" in effects) == (knobs.threads != 512)
    assert ("sketch" in effects) == (chosen.sketch != "full-mesh")
    assert effects["method"].default == "msccl-default-robust"
    if "protocol" in effects:  # the stored program under another protocol
        simple = program.replace(protocol="Simple")
        other = Knobs("Simple", knobs.channels, min(knobs.threads, 512))
        timing = SimExecutor(table.topology).time(simple, other, nbytes)
        assert effects["protocol"].time_us == timing.time_us


def test_the_runtimes_own_choice_is_analysed_too(table: Table) -> None:
    outside = 1 << 40  # of no entry
    assert table.select("allreduce", SIZES[0]).candidate.is_default
    cache = programs_of(table, Collective("allreduce", 8))
    executor = SimExecutor(table.topology)
    found = analyse_choice(table, executor, cache, SIZES[0], NCCL_VERSION)
    assert found.effects == () and found.time_us > 0
    with pytest.raises((Infeasible, tuccl.errors.InputError)):
        analyse_choice(table, executor, cache, outside, NCCL_VERSION)
