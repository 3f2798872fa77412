"""Kinds that call over and over beside each other: chosen together, none loses by the choice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError
from tuccl.eval.compare_groups import compare_groups
from tuccl.groups.concurrent import (
    Choose,
    KindCall,
    company_calls,
    nccl_choice,
    table_choice,
    time_groups,
)
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.job import load_job
from tuccl.groups.layout import megatron_groups
from tuccl.runtime import LookupTable, Table
from tuccl.topology import join, load_profile
from tuccl.tuning import TuneOptions, job_search
from tuccl.tuning.family_round import Family, best_numbers, family_round
from tuccl.tuning.job_search import tune_job

MACHINE = join(load_profile("v100x4"), 4)
GROUPS = megatron_groups("tp=4,cp=2", 16)  # cp and dp cross the same NICs
MIX = [("cp", "allgather", 1 << 24), ("dp", "reduce-scatter", 1 << 26)]


def best(ratios: Mapping[Any, tuple[float, ...]], defaults: tuple[int, ...]) -> object:
    return best_numbers([3] * len(defaults), defaults, lambda n: ratios.get(n, (inf, inf)))


def test_no_call_may_pay_for_what_another_gains() -> None:
    even, race = (1.0, 1.0), (0.5, 1.5)
    assert best({(0, 0): race, (1, 1): even}, (1, 1)) == (1, 1)
    assert best({(0, 0): race, (1, 1): even, (1, 2): (0.9, 1.005)}, (1, 1)) == (1, 2)
    # What all share is divided by the product: 0.8 * 0.9 is less than 0.75.
    both = {(1, 1): even, (0, 1): (0.75, 1.0), (2, 1): (0.8, 0.9), (0, 0): race}
    assert best(both, (1, 1)) == (2, 1)


def test_where_all_must_lose_the_one_that_loses_most_loses_least() -> None:
    assert best({(0, 0): (1.2, 1.0), (1, 0): (1.1, 1.1), (0, 1): (1.3, 0.5)}, (0, 0)) == (1, 0)
    assert best({(1, 1): (1.0, 1.0)}, (1, 1)) == (1, 1)  # nothing else can run


def test_kinds_that_share_no_link_take_their_own_time_however_long_the_others_take() -> None:
    machine = join(load_profile("dgx-h100"), 2)
    groups, nccl = megatron_groups("tp=8", 16), dict.fromkeys(("tp", "dp"), nccl_choice())
    dp = groups.kind("dp").groups
    call = machine, dp, group_orbits(machine, dp), "allreduce", 1 << 14, nccl["dp"]
    alone_us = time_groups(*call).together_us
    for nbytes in (1 << 14, 1 << 22, 1 << 28):
        tp = groups.kind("tp").groups
        own = time_groups(machine, tp, group_orbits(machine, tp), "allreduce", nbytes, nccl["tp"])
        company = company_calls(
            machine, groups, [KindCall("tp", "allreduce", nbytes)], nccl, repeats=True
        )
        found = time_groups(*call, company)
        assert found.together_us == pytest.approx(alone_us, rel=1e-9)
        # Turns follow each other at once: what fills and drains the links comes once.
        assert 0.5 * own.together_us < found.company_us[0] <= own.together_us * (1 + 1e-9)


def test_what_no_gpu_holds_at_once_leaves_the_order_as_it_is(folder: Path) -> None:
    calls = [("cp", "allgather"), ("dp", "reduce-scatter")]
    options = TuneOptions(budget=3, methods=("ring",))
    job, tables = tune_job(MACHINE, GROUPS, calls, "1M", options, path=folder.with_name("full"))
    groups = job.groups.kind("cp").groups
    family = Family(groups, [job.entries[0].groups], tables[:1])
    choose = {"dp": nccl_choice()}
    company = company_calls(
        MACHINE, GROUPS, [KindCall("dp", "allreduce", 64)], choose, repeats=True
    )
    crowd = [company[0] * 200]  # thread blocks beyond the SMs
    [same] = family_round(MACHINE, family, "2.19", crowd, crowd)
    assert same.entries == tables[0].entries


def mix_us(choices: Mapping[str, Choose]) -> list[float]:
    """The us of each call of the mix while the other repeats."""
    found = []
    for kind, collective, nbytes in MIX:
        others = [KindCall(*call) for call in MIX if call[0] != kind]
        company = company_calls(MACHINE, GROUPS, others, choices, repeats=True)
        groups = GROUPS.kind(kind).groups
        orbits = group_orbits(MACHINE, groups)
        own = time_groups(MACHINE, groups, orbits, collective, nbytes, choices[kind], company)
        found.append(own.together_us)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mix") / "job"


def test_tables_for_all_kinds_at_once_lose_nothing_to_the_default(folder: Path) -> None:
    default = mix_us(dict.fromkeys(("cp", "dp"), nccl_choice()))
    found = {}
    for name in ("kind", "all"):
        _, tables = tune_job(
            MACHINE,
            GROUPS,
            [call[:2] for call in MIX],
            [1 << 24, 1 << 26],
            TuneOptions(budget=40),
            path=folder if name == "all" else folder.with_name("kind"),
            concurrent=name,
            beside=MIX if name == "all" else (),
        )
        choices = {
            kind: table_choice({t.topology: t for t in tables if t.folder.name.startswith(kind)})
            for kind in ("cp", "dp")
        }
        found[name] = [us / own for us, own in zip(mix_us(choices), default, strict=True)]
    assert max(found["all"]) <= 1.01
    assert max(found["kind"]) > 1.1  # each kind by itself takes links from the other


def test_a_job_that_was_tuned_kind_by_kind_may_be_tuned_for_all_at_once(tmp_path: Path) -> None:
    options, place = TuneOptions(budget=3, methods=("ring",)), tmp_path / "job"
    call = [("cp", "allgather")]
    job, _ = tune_job(MACHINE, GROUPS, call, "1M", options, path=place)
    assert not job.entries[0].repeats
    mix = [("dp", "allreduce", "1M")]
    job, _ = tune_job(
        MACHINE, GROUPS, call, "4M", options, path=place, concurrent="all", beside=mix
    )
    assert job.entries[0].beside == ("dp:allreduce=1M",) and job.entries[0].repeats
    assert len({entry.min_bytes for entry in job.table(job.entries[0]).entries}) == 2
    with pytest.raises(InputError, match="beside dp:allreduce=1M over and over; do the same"):
        tune_job(MACHINE, GROUPS, call, "1M", options, path=place)


def test_a_comparison_makes_the_calls_beside_and_shows_what_they_take(
    folder: Path, tuccl: Tuccl
) -> None:
    job = load_job(folder)
    assert {(e.kind, e.beside, e.repeats) for e in job.entries} == {
        ("cp", ("dp:reduce-scatter=64M",), True),
        ("dp", ("cp:allgather=16M",), True),
    }
    rows = {(row.kind, row.size): row for row in compare_groups(job)}
    default = mix_us(dict.fromkeys(("cp", "dp"), nccl_choice()))
    for (kind, _, nbytes), us in zip(MIX, default, strict=True):
        row = rows[kind, nbytes]
        assert row.default_us == pytest.approx(us, rel=1e-9) and row.tuned_us <= 1.01 * us
        [beside] = row.beside
        assert beside.default_us > 0 and beside.call in (
            "dp:reduce-scatter=64M",
            "cp:allgather=16M",
        )
    shown = tuccl("compare", folder, "-s", "16M")
    _, cp, dp = (line for line in shown.out.splitlines() if not line.startswith("#"))
    assert "dp:reduce-scatter=64M" in cp and "cp:allgather=16M" in dp
    explained = tuccl("explain", folder, "--rank", "6")
    assert "beside dp:reduce-scatter=64M over and over" in explained.out


def test_the_verb_times_a_call_beside_others(tuccl: Tuccl, tmp_path: Path) -> None:
    machine = tmp_path / "m.json"
    tuccl("probe", "--profile", "v100x4", "--nodes", "4", "-o", machine)
    words = ("groups", machine, "--layout", "tp=4,cp=2", "-c", "dp:allgather", "-s", "64M")
    beside = ("--beside", "cp:allreduce=1M,dp:allreduce=1M")
    us = []
    for more in ((), beside, (*beside, "--concurrent", "all")):
        [row] = json.loads(tuccl(*words, "--json", *more).out)["simulated"]
        us.append(row["together_us"])
        assert list(row["beside_us"]) == (["cp:allreduce=1M"] if more else [])
    assert us[0] < us[1] < us[2]
    for bad, why in (
        ((*words, "--concurrent", "all"), "add --beside"),
        ((*words, "--concurrent", "none"), "expected kind or all"),
        ((*words[:4], *beside), "add -c and -s"),
        (("tune", *words[1:], "--concurrent", "all", "-o", tmp_path / "j"), "that are beside"),
    ):
        refused = tuccl(*bad)
        assert refused.code == 2 and why in refused.err, (bad, refused.err)


def test_a_mix_that_is_cut_off_leaves_a_job_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, place = TuneOptions(budget=3, methods=("ring",)), tmp_path / "job"

    saved: list[Path] = []
    save = job_search._saved

    def cut(table: Table, lookup: LookupTable) -> Table:
        if saved:
            raise KeyboardInterrupt
        saved.append(table.folder)
        return save(table, msgspec.structs.replace(lookup, name="mixed"))

    monkeypatch.setattr(job_search, "_saved", cut)
    calls = [("cp", "allgather"), ("tp", "allgather")]
    with pytest.raises(KeyboardInterrupt):
        tune_job(MACHINE, GROUPS, calls, "1M", options, path=place, concurrent="all", beside=MIX)
    job = load_job(place)
    assert not any(entry.beside or entry.repeats for entry in job.entries)
    assert {row.kind for row in compare_groups(job)} == {"cp", "tp"}
