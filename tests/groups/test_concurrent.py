"""Groups at once: exact where they share nothing, slower where they do, never below the bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import Infeasible
from tuccl.groups.concurrent import joint_bound_us, joint_program, nccl_choice, time_groups
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.layout import megatron_groups
from tuccl.program import Knobs
from tuccl.runtime import ConfiguredProgram, SimExecutor
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule, msccl_default
from tuccl.topology import Topology, join, keep_gpus, load_profile


@pytest.mark.parametrize(
    ("profile", "layout"), [("ndv2", "tp=8"), ("dgx-h100", "tp=8"), ("v100x4", "tp=4")]
)
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce-scatter", "alltoall"])
def test_groups_that_share_nothing_take_as_long_as_one(
    profile: str, layout: str, collective: str
) -> None:
    topology = join(load_profile(profile), 2)
    groups = megatron_groups(layout, topology.ranks).kind("tp").groups
    orbits = group_orbits(topology, groups)
    for nbytes in (1 << 16, 1 << 24):
        found = time_groups(topology, groups, orbits, collective, nbytes, nccl_choice())
        assert found.together_us == pytest.approx(found.alone_us[0], rel=1e-9)
        assert found.bound_us <= found.together_us


@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_groups_that_share_a_nic_take_turns_on_it(collective: str) -> None:
    """v100x4 has two NICs for four groups: these take twice as long as one."""
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    orbits = group_orbits(topology, groups)
    nbytes = 1 << 28

    def default(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        program = lower(msccl_default(part, Collective(collective, part.ranks)))
        return ConfiguredProgram(program, Knobs("Simple"))

    found = time_groups(topology, groups, orbits, collective, nbytes, default)
    assert found.slowdown == pytest.approx(2, rel=0.05)
    assert (
        found.bound_us
        <= found.together_us
        <= sum(found.alone_us[orbit[0]] * len(orbit) for orbit in orbits)
    )


def test_the_joint_bound_of_one_group_is_its_own_and_of_more_what_their_hosts_send() -> None:
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    for collective in ("allreduce", "allgather", "reduce-scatter", "alltoall"):
        part = keep_gpus(topology, groups[0])
        alone = bound(part, Collective(collective, 2)).time_us(1 << 28)
        assert joint_bound_us(topology, groups[:1], collective, 1 << 28) == pytest.approx(
            alone, rel=0.01
        )
        four = joint_bound_us(topology, groups, collective, 1 << 28)
        assert four == pytest.approx(2 * alone, rel=0.01)  # two NICs


def test_what_must_enter_a_host_bounds_an_allgather_as_what_leaves_it_a_reduce_scatter() -> None:
    topology = join(load_profile("v100x4"), 4)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    times = [
        joint_bound_us(topology, groups, collective, 1 << 28)
        for collective in ("allgather", "reduce-scatter")
    ]
    assert times[0] == pytest.approx(times[1], rel=0.01)


def test_groups_with_other_numbers_of_chunks_are_no_single_run() -> None:
    topology, programs = join(load_profile("v100x4"), 2), iter((1, 2))

    def choose(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        call = Collective(collective, part.ranks)
        problem = Problem(call, full_mesh(part), next(programs), nbytes, part)
        return ConfiguredProgram(
            lower(make_schedule(problem, "packing")), Knobs("Simple"), name="a"
        )

    groups = megatron_groups("tp=4", 8).kind("tp").groups
    with pytest.raises(Infeasible, match="no single run has"):
        time_groups(topology, groups, [[0], [1]], "allgather", 1 << 20, choose)


def test_one_group_on_its_own_ranks_is_its_program() -> None:
    host = load_profile("dgx-a100")
    own = nccl_choice()(host, "allreduce", 1 << 20)
    program = joint_program([(own.program, range(8))], 8)
    assert program.gpus == own.program.gpus
    assert own.on(SimExecutor(host), 1 << 20).us == (
        SimExecutor(host).time(program, own.knobs, 1 << 20, loop=own.loop).us
    )


def test_the_verb_prints_kinds_times_and_json(tuccl: Tuccl, tmp_path: Path) -> None:
    machine, file = tmp_path / "t.json", tmp_path / "g.json"
    tuccl("probe", "--profile", "ndv2", "--nodes", "2", "-o", machine)
    words = ("groups", machine, "--layout", "tp=8")
    answer = tuccl(*words, "-c", "dp:allreduce", "-s", "64M", "-o", file)
    assert answer.code == 0
    kinds = [line.split()[:3] for line in answer.out.splitlines()[3:7]]
    assert kinds == [["tp", "2", "8"], ["dp", "2", "2"], ["dp", "2", "2"], ["dp", "4", "2"]]
    again = tuccl("groups", machine, "--groups", file, "-c", "dp:allreduce", "-s", "64M", "--json")
    whole = json.loads(again.out)
    [row] = whole["simulated"]
    assert row["slowdown"] > 3 and row["bound_us"] < row["together_us"]
    assert {kind["kind"] for kind in whole["kinds"]} == {"tp", "dp"}
    for bad, why in (
        (("--layout", "tp=3"), "do not divide by 3"),
        (("--layout", "tp=8", "-c", "dp:allreduce"), "-c and -s: expected both"),
        (("--layout", "tp=8", "-c", "xp:allreduce", "-s", "1M"), "no groups 'xp'"),
        (("--layout", "tp=8", "-c", "dp:allredu", "-s", "1M"), "did you mean allreduce"),
        (("--mesh", "a=3,b=2"), "6 ranks; the machine has 16"),
    ):
        answer = tuccl("groups", machine, *bad)
        assert answer.code == 2 and why in answer.err and answer.err.count("\n") == 1
