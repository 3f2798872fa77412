"""The defaults: proven programs, the choice said, the same answer each time."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.program import Knobs, Program, verify
from tuccl.runtime.baseline.defaults import BASELINES, time_baseline
from tuccl.runtime.baseline.nccl_call import nccl_call
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.executors.sim import SimExecutor
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.synth.baseline.msccl_default import MSCCL_DEFAULT_KNOBS
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.synth.bounds.bound import bound
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology, join, load_machine, load_profile

COLLECTIVES = ["allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce"]


@pytest.fixture(scope="module", params=[1, 2])
def topology(hand: SimpleNamespace, request: pytest.FixtureRequest) -> Topology:
    made: Topology = hand.mesh(hosts=request.param)
    return made


@pytest.fixture(scope="module")
def executor(topology: Topology) -> Executor:
    return SimExecutor(topology)


@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_timed_computes_the_collective(
    executor: Executor, topology: Topology, kind: str, collective: str
) -> None:
    times = []
    for nbytes in (1024, 1 << 20, 1 << 28):
        result = time_baseline(executor, topology, kind, collective, nbytes, root=1)
        assert verify(result.program, "fork", root=1).ok or all(
            verify(single, "fork", root=1).ok
            for single in (
                result.program.replace(in_place=False),
                result.program.replace(out_of_place=False),
            )
        )
        assert result.program.collective == collective
        assert result.timing == executor.time(
            result.program, result.knobs, nbytes, loop=result.loop
        )
        times.append(result.timing.us)
    assert times == sorted(times) and times[0] > 0


def test_nccl_runs_its_own_choice(executor: Executor, topology: Topology) -> None:
    for nbytes in (1024, 1 << 20, 1 << 28):
        choice = nccl_choice(topology, "allreduce", nbytes)
        result = time_baseline(executor, topology, "nccl", "allreduce", nbytes)
        assert result.name.startswith(choice.text)
        assert result.program.protocol == result.knobs.protocol == choice.protocol
        assert result.knobs.illegal() is None


def test_the_papers_default_is_one_configuration(executor: Executor, topology: Topology) -> None:
    first = time_baseline(executor, topology, "msccl-default", "allgather", 1024)
    last = time_baseline(executor, topology, "msccl-default", "allgather", 1 << 28)
    assert first.program is last.program
    assert first.knobs == last.knobs == MSCCL_DEFAULT_KNOBS
    assert first.name == last.name == "direct/Simple/1ch"


def test_unknown_defaults_and_collectives_are_refused(
    executor: Executor, topology: Topology
) -> None:
    with pytest.raises(InputError, match="baseline"):
        time_baseline(executor, topology, "mpi", "allgather", 1024)
    with pytest.raises(InputError, match="collective"):
        time_baseline(executor, topology, "nccl", "all-gather", 1024)
    with pytest.raises(InputError, match="root"):
        time_baseline(executor, topology, "nccl", "broadcast", 1024, root=99)


def test_too_many_channels_for_a_program_are_said(
    hand: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = hand.mesh()

    def limited(
        t: Topology,
        call: Collective,
        name: str,
        channels: int,
        *,
        parts: int,
    ) -> Program:
        if channels > 3:
            raise Infeasible("too many channels")
        return nccl_program(t, call, name, channels, "Simple")

    monkeypatch.setattr(sys.modules["tuccl.runtime.baseline.nccl_call"], "nccl_program", limited)
    result = time_baseline(SimExecutor(topology), topology, "nccl", "allgather", 1 << 28)
    assert result.name == "Ring/Simple/12ch (as 3ch)"


def test_from_2_14_on_a_process_hands_over_all_channels_at_once() -> None:
    """A small call takes the launches on 8 GPUs; before, also its channels."""
    topology = load_profile("ndv4")
    executor = SimExecutor(topology, launch="process")
    costs = load_machine("a100")
    for version, channel_us in (("2.12", costs.host_channel_us), ("2.14", 0.0)):
        ran = nccl_call(
            topology,
            Collective("allreduce", 8),
            1024,
            nccl_choice(topology, "allreduce", 1024, version, algorithm="Ring", protocol="LL"),
        )
        us = executor.time(ran.program, ran.knobs, 1024, loop=ran.loop).us
        channels = ran.program.nchannels
        host_us = costs.host_call_us + 8 * (costs.host_gpu_us + channels * channel_us)
        assert us == pytest.approx(host_us)


MACHINES = (("v100x4", 1), ("dgx-a100", 1), ("ndv2", 2))


@pytest.mark.parametrize(("profile", "hosts"), MACHINES)
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "broadcast", "alltoall"])
def test_nccl_comes_near_to_its_own_bound(profile: str, hosts: int, collective: str) -> None:
    """No straw man: a large call takes at most 1.3 times what the algorithm needs at best.

    A ring sends (n - 1) / n of the array over each link, an allreduce twice that, a line all of
    it, at the rate that NCCL reckons with; alltoall is held to the cut between hosts, or on one
    host to what a GPU sends. Between hosts its many small messages take up to 1.6 times: of two
    hosts with one 100 Gb/s adapter each a public table has 7.6 GB/s.
    """
    node = load_profile(profile)
    topology = join(node, hosts) if hosts > 1 else node
    nbytes, ranks = 1 << 30, topology.ranks
    share = {"allgather": 1, "alltoall": 1, "allreduce": 2}.get(collective, 0) * (1 - 1 / ranks)
    least = nbytes * (share or 1) / (1e3 * nccl_graph(topology).bandwidth_gbs)
    cut = bound(topology, Collective(collective, ranks)).time_us(nbytes)
    if collective == "alltoall" and hosts > 1:
        least = cut
    time = time_baseline(SimExecutor(topology), topology, "nccl", collective, nbytes).timing.us
    many = collective == "alltoall" and hosts > 1
    assert cut <= time <= (1.6 if many else 1.3) * least


@pytest.mark.parametrize(("profile", "hosts"), [*MACHINES, ("dgx-h100", 1)])
def test_grouped_sends_are_as_fast_as_any_number_of_parts(profile: str, hosts: int) -> None:
    node = load_profile(profile)
    topology = join(node, hosts) if hosts > 1 else node
    executor, nbytes = SimExecutor(topology), 1 << 30
    chosen = time_baseline(executor, topology, "nccl", "alltoall", nbytes)
    times = []
    for parts in (1, 2, 4, 8):
        with contextlib.suppress(Infeasible):
            call = Collective("alltoall", topology.ranks)
            program = nccl_program(topology, call, "p2p", 8, parts=parts)
            knobs = Knobs("Simple", 1, 512)
            times.append(executor.time(program, knobs, nbytes, loop=chosen.loop).us)
    assert times and chosen.timing.us <= 1.05 * min(times)


def test_symmetric_windows_are_for_a_real_nccl_alone(
    executor: Executor, topology: Topology
) -> None:
    with pytest.raises(InputError, match="nccl-symmetric"):
        time_baseline(executor, topology, "nccl-symmetric", "allreduce", 1024)
