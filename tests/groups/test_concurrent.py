"""Groups at once: exact where they share nothing, slower where they do, never below the bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError
from tuccl.groups.bounds import joint_bound_us
from tuccl.groups.concurrent import (
    choices,
    group_call,
    nccl_choice,
    time_groups,
    time_together,
)
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.executor import GroupExecutor
from tuccl.groups.layout import megatron_groups
from tuccl.program import Knobs, parse_xml
from tuccl.runtime import ConfiguredProgram, SimExecutor
from tuccl.runtime.executors.sim import GroupCall
from tuccl.synth import Collective, bound, lower, msccl_default
from tuccl.topology import Topology, join, keep_gpus, load_profile, machine_of, save_topology


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


@pytest.mark.parametrize(
    ("profile", "layout", "kind", "simulated"),
    [
        ("dgx-a100", "tp=8", "dp", {1}),
        ("dgx-a100", "tp=4", "dp", {1}),
        ("v100x4", "tp=4,pp=2", "dp", {2}),
        ("ndv2", "tp=8", "dp", {8}),
        ("ndv2", "tp=8", "tp", {1}),
    ],
)
def test_groups_that_are_simulated_for_others_take_as_long(
    profile: str,
    layout: str,
    kind: str,
    simulated: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = join(load_profile(profile), 4)
    groups = megatron_groups(layout, topology.ranks).kind(kind).groups
    orbits = group_orbits(topology, groups)
    nbytes = 1 << 22
    chosen = choices(topology, groups, orbits, "allgather", nbytes, nccl_choice())
    calls = [
        group_call(chosen[orbit[0]], groups[number], nbytes) for orbit in orbits for number in orbit
    ]
    whole = SimExecutor(topology).time_groups(calls)
    counts = []
    time_all = SimExecutor.time_groups

    def counted(self: SimExecutor, calls: list[GroupCall]) -> list[float]:
        counts.append(len(calls))
        return time_all(self, calls)

    monkeypatch.setattr(SimExecutor, "time_groups", counted)
    us = time_together(topology, groups, orbits, chosen, nbytes)
    assert us == pytest.approx(max(whole), rel=1e-9)
    assert set(counts) == simulated


@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_groups_that_share_a_nic_take_turns_on_it(collective: str) -> None:
    """v100x4 has two NICs for four groups: these take twice as long as one."""
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    orbits = group_orbits(topology, groups)
    nbytes = 1 << 28

    def chosen(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
        return default(part, collective)

    found = time_groups(topology, groups, orbits, collective, nbytes, chosen)
    assert found.slowdown == pytest.approx(2, rel=0.05)
    assert (
        found.bound_us
        <= found.together_us
        <= sum(found.alone_us[orbit[0]] * len(orbit) for orbit in orbits)
    )


def test_equal_programs_on_one_nic_do_not_stay_in_step() -> None:
    """A pair of GPUs waits while the other sends: together they fill a link that both share."""
    topology, nbytes = join(load_profile("v100x4"), 2), 1 << 32
    executor = SimExecutor(topology)
    own = nccl_choice()(keep_gpus(topology, (0, 4)), "allreduce", nbytes)
    calls = [group_call(own, (gpu, gpu + 4), nbytes) for gpu in (0, 1)]
    apart = [calls[0], calls[1]._replace(start_us=100.0)]
    assert max(executor.time_groups(calls)) == pytest.approx(
        max(executor.time_groups(apart)) - 100, rel=0.02
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


def test_hosts_send_an_array_twice_but_for_their_part_in_an_allreduce() -> None:
    """Four groups of four hosts with a NIC for two of them: 2 x 3/4 of two arrays a NIC."""
    topology = join(load_profile("v100x4"), 4)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    two, four = (
        joint_bound_us(topology, tuple(group[:hosts] for group in groups), "allreduce", 1 << 28)
        for hosts in (2, 4)
    )
    assert four == pytest.approx(1.5 * two, rel=0.01)


def test_what_must_enter_a_host_bounds_an_allgather_as_what_leaves_it_a_reduce_scatter() -> None:
    topology = join(load_profile("v100x4"), 4)
    groups = megatron_groups("tp=4", topology.ranks).kind("dp").groups
    times = [
        joint_bound_us(topology, groups, collective, 1 << 28)
        for collective in ("allgather", "reduce-scatter")
    ]
    assert times[0] == pytest.approx(times[1], rel=0.01)


def default(part: Topology, collective: str, protocol: str = "Simple") -> ConfiguredProgram:
    """The full-mesh program on a part of a machine."""
    program = lower(msccl_default(part, Collective(collective, part.ranks)))
    return ConfiguredProgram(program.replace(protocol=protocol), Knobs(protocol))


@pytest.mark.parametrize("profile", ["dgx-a100", "v100x4"])
def test_a_call_on_all_ranks_is_simulated_as_it_is_alone(profile: str) -> None:
    host = load_profile(profile)
    executor = SimExecutor(host)
    for collective in ("allreduce", "alltoall"):
        for nbytes in (1 << 10, 1 << 20, 1 << 28):
            for own in (nccl_choice()(host, collective, nbytes), default(host, collective, "LL")):
                [us] = executor.time_groups([group_call(own, range(host.ranks), nbytes)])
                assert us == pytest.approx(own.on(executor, nbytes).us, rel=1e-12)


def test_calls_that_share_nothing_keep_their_times_whatever_they_run() -> None:
    """Other programs, protocols, sizes and starts, on hosts that do not meet."""
    topology = join(load_profile("v100x4"), 3)
    executor, part = SimExecutor(topology), load_profile("v100x4")
    calls = [
        group_call(default(part, "allreduce", "LL"), range(4), 1 << 20),
        group_call(nccl_choice()(part, "allgather", 1 << 26), range(4, 8), 1 << 26),
        group_call(default(part, "alltoall"), range(8, 12), 1 << 12)._replace(start_us=1e4),
    ]
    alone = [executor.time_groups([call])[0] for call in calls]
    assert executor.time_groups(calls) == pytest.approx(alone, rel=1e-9)
    assert alone[2] > 1e4


def test_a_call_that_begins_when_another_is_over_meets_nobody() -> None:
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", 8).kind("dp").groups
    own, executor = default(keep_gpus(topology, groups[0]), "allgather"), SimExecutor(topology)
    first, second = (group_call(own, groups[number], 1 << 24) for number in (0, 1))
    [alone] = executor.time_groups([first])
    together = executor.time_groups([first, second])
    assert together == pytest.approx([2 * alone] * 2, rel=0.1)
    later = executor.time_groups([first, second._replace(start_us=alone)])
    assert later[0] == pytest.approx(alone, rel=1e-9)
    assert later[1] == pytest.approx(2 * alone, rel=0.02)


def test_communicators_on_one_rank_have_a_proxy_each() -> None:
    """Many small messages keep one proxy busy; two communicators' proxies work side by side."""
    topology = join(load_profile("dgx-a100"), 2)
    executor = SimExecutor(topology, machine_of(topology).replace(net_message_us=50.0))
    own = default(keep_gpus(topology, (0, 8)), "allgather", "LL")
    call = group_call(own, (0, 8), 1 << 16)
    [alone] = executor.time_groups([call])
    assert max(executor.time_groups([call, call])) < 1.1 * alone


def test_kinds_on_the_same_gpus_slow_each_other() -> None:
    topology = join(load_profile("ndv2"), 2)
    job, executor = megatron_groups("tp=8", 16), SimExecutor(topology)
    calls = []
    for kind, nbytes in (("tp", 1 << 27), ("dp", 1 << 22)):
        groups = job.kind(kind).groups
        own = default(keep_gpus(topology, groups[0]), "allreduce")
        calls.append([group_call(own, group, nbytes) for group in groups])
    alone = [max(executor.time_groups(each)) for each in calls]
    together = executor.time_groups([*calls[0], *calls[1]])
    tp, dp = max(together[:2]), max(together[2:])
    assert tp >= alone[0] and dp >= alone[1]
    assert dp > 1.5 * alone[1]  # it crosses PCIe, which this program for tp fills
    assert max(tp, dp) <= sum(alone)


def test_nvls_runs_beside_calls_of_other_kinds() -> None:
    """Its programs have ranks in the switch, and blocks that are parts of one of NCCL's."""
    topology = join(load_profile("dgx-h100"), 2)
    job, executor = megatron_groups("tp=8", 16), SimExecutor(topology)
    calls = []
    for kind, nbytes in (("tp", 1 << 28), ("dp", 1 << 24)):
        groups = job.kind(kind).groups
        own = nccl_choice()(keep_gpus(topology, groups[0]), "allreduce", nbytes)
        calls += [group_call(own, group, nbytes) for group in groups]
    assert calls[0].loop.multicast and not calls[-1].loop.multicast
    alone = load_profile("dgx-h100")
    [nvls] = executor.time_groups(calls[:1])
    assert nvls == pytest.approx(
        nccl_choice()(alone, "allreduce", 1 << 28).on(SimExecutor(alone), 1 << 28).us, rel=1e-9
    )
    together = executor.time_groups(calls)
    assert min(together[:2]) >= nvls * (1 - 1e-9)


def test_calls_that_no_gpu_can_hold_at_once_are_refused() -> None:
    host = load_profile("v100x4")
    own = default(host, "alltoall")
    blocks, call = own.program.threadblocks, group_call(own, range(4), 1 << 20)
    executor = SimExecutor(host, machine_of(host).replace(sm_count=2 * blocks))
    assert len(executor.time_groups([call, call])) == 2
    with pytest.raises(InputError, match=f"{3 * blocks} thread blocks of all calls cannot be"):
        executor.time_groups([call] * 3)


@pytest.mark.parametrize("members", [(0, 1, 2), (0, 1, 2, 2), (0, 1, 2, 99), (0, 1, 2, -1)])
def test_members_that_are_not_ranks_are_refused(members: tuple[int, ...]) -> None:
    host = load_profile("v100x4")
    with pytest.raises(InputError, match="each once"):
        SimExecutor(host).time_groups([group_call(default(host, "allgather"), members, 1 << 20)])


def test_an_executor_of_groups_times_a_program_in_company() -> None:
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", 8).kind("dp").groups
    [orbit] = group_orbits(topology, groups)
    alone, company = (
        SimExecutor(keep_gpus(topology, groups[0])),
        GroupExecutor(topology, groups, orbit),
    )
    own = default(keep_gpus(topology, groups[0]), "allgather")
    assert company.concurrent == 2  # of the four, two share each NIC
    assert own.on(company, 1 << 26).us == pytest.approx(2 * own.on(alone, 1 << 26).us, rel=0.05)
    whole = SimExecutor(topology).time_groups([group_call(own, g, 1 << 26) for g in groups])
    assert own.on(company, 1 << 26).us == pytest.approx(max(whole), rel=1e-9)
    assert company.least_us(own.program, [(own.knobs, 1 << 26)])[0] <= own.on(company, 1 << 26).us
    planned = company.planned_topology
    assert planned is not None
    slower = [
        (new.bandwidth / old.bandwidth, {old.kind})
        for new, old in zip(planned.links, company.topology.links, strict=True)
        if new != old
    ]
    assert {rate for rate, _ in slower} == {0.5}  # what two groups cross


def test_an_executor_of_groups_that_share_nothing_simulates_one() -> None:
    topology = join(load_profile("v100x4"), 2)
    groups = megatron_groups("tp=4", 8).kind("tp").groups
    company = GroupExecutor(topology, groups, [0, 1])
    own = default(load_profile("v100x4"), "allreduce")
    assert company.concurrent == 1 and company.planned_topology is None
    assert own.on(company, 1 << 22).us == own.on(SimExecutor(load_profile("v100x4")), 1 << 22).us


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


def test_bench_times_a_program_on_all_groups_at_once(tuccl: Tuccl, tmp_path: Path) -> None:
    machine, pair, program = (tmp_path / name for name in ("m.json", "pair.json", "p.xml"))
    topology = join(load_profile("v100x4"), 2)
    tuccl("probe", "--profile", "v100x4", "--nodes", "2", "-o", machine)
    groups = megatron_groups("tp=4", 8).kind("dp").groups
    save_topology(keep_gpus(topology, groups[0]), pair)
    words = ("-c", "allgather", "-s", "64M", "--method", "ring", "-o", program)
    assert tuccl("synth", pair, *words).code == 0
    calls = ("--layout", "tp=4", "-c", "dp:allgather", "-s", "64M", "--protocol", "Simple")
    answer = tuccl("bench", program, machine, *calls, "--json")
    [row] = json.loads(answer.out)["simulated"]
    assert row["together_us"] > 1.5 * row["alone_us"]  # two groups on each NIC
    parsed = parse_xml(program.read_bytes(), "p.xml")
    call = (parsed, Knobs("Simple"), 1 << 26)
    own = [GroupCall(group, *call) for group in groups]
    assert row["together_us"] == pytest.approx(max(SimExecutor(topology).time_groups(own)))
    shown = tuccl("bench", "--baseline", "nccl", machine, *calls[:-2])
    assert shown.out.splitlines()[2].split()[:4] == ["dp", "allgather", "64M", "nccl"]
    for bad, why in (
        (("bench", program, machine, "--layout", "tp=2,pp=2", "-c", "tp:allgather"), "-s"),
        (("bench", program, machine, *calls[:3], "dp:allreduce", *calls[4:]), "not allreduce"),
        (("bench", program, machine, *calls[:3], "tp:allgather", *calls[4:]), "is for 2 GPUs"),
        (("bench", program, machine, *calls, "--on", "mpi"), "their calls are simulated"),
        (("bench", program, machine, "-s", "64M", "--concurrent", "all"), "expected groups"),
        (("bench", machine, *calls), "expected a program and a topology"),
        (("bench", "--baseline", "both", machine, *calls), "with groups only nccl"),
    ):
        refused = tuccl(*bad)
        assert refused.code == 2 and why in refused.err, (bad, refused.err)
        assert refused.err.count("\n") == 1, refused.err
