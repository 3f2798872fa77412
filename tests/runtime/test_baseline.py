"""The defaults: proven programs, the choice said, the same answer each time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuccl._native import Program, verify
from tuccl.errors import Infeasible, InputError
from tuccl.runtime import baseline
from tuccl.runtime.baseline import BASELINES, time_baseline
from tuccl.runtime.executor import Executor
from tuccl.runtime.nccl_choice import nccl_choice
from tuccl.runtime.sim import SimExecutor
from tuccl.synth.baselines import MSCCL_DEFAULT_KNOBS
from tuccl.synth.collective import Collective
from tuccl.synth.nccl import nccl_program
from tuccl.topology import Topology

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
        assert result.timing == executor.time(result.program, result.knobs, nbytes)
        times.append(result.timing.us)
    assert times == sorted(times) and times[0] > 0


def test_nccl_runs_its_own_choice(executor: Executor, topology: Topology) -> None:
    for nbytes in (1024, 1 << 20, 1 << 28):
        choice = nccl_choice(topology, "allreduce", nbytes)
        result = time_baseline(executor, topology, "nccl", "allreduce", nbytes)
        assert result.chosen.startswith(choice.text)
        assert result.program.protocol == result.knobs.protocol == choice.protocol
        assert result.knobs.illegal() is None


def test_the_papers_default_is_one_configuration(executor: Executor, topology: Topology) -> None:
    first = time_baseline(executor, topology, "msccl-default", "allgather", 1024)
    last = time_baseline(executor, topology, "msccl-default", "allgather", 1 << 28)
    assert first.program is last.program
    assert first.knobs == last.knobs == MSCCL_DEFAULT_KNOBS
    assert first.chosen == last.chosen == "direct/Simple/1ch"


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
    tried = []

    def limited(
        t: Topology,
        call: Collective,
        name: str,
        channels: int,
        protocol: str,
        *,
        nbytes: int,
        parts: int,
    ) -> Program:
        tried.append(channels)
        if channels > 3:
            raise Infeasible("too many channels")
        return nccl_program(t, call, name, channels, "Simple", nbytes=nbytes)

    monkeypatch.setattr(baseline, "nccl_program", limited)
    result = time_baseline(SimExecutor(topology), topology, "nccl", "allgather", 1 << 28)
    assert tried == [12, 6, 3]
    assert result.chosen == "Ring/Simple/12ch (as 3ch)"
