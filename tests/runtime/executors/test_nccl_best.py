"""The best of what a user can set: nccl-best, and the programs that ship with MSCCL."""

from __future__ import annotations

import itertools

import pytest

from tuccl.errors import InputError
from tuccl.program import verify
from tuccl.runtime import SimExecutor, time_baseline
from tuccl.runtime.baseline import nccl_timings, time_nccl
from tuccl.runtime.baseline.msccl_best import best_shipped
from tuccl.runtime.nccl.knobs import ALGORITHMS, NcclKnobs
from tuccl.synth import Collective
from tuccl.topology import Topology, join, load_profile

SIZES = (1 << 12, 1 << 20, 1 << 26)
CHANNELS = (0, 1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def topology() -> Topology:
    return join(load_profile("v100x4"), 2)


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
def test_no_setting_of_a_user_is_faster(topology: Topology, collective: str) -> None:
    executor, call = SimExecutor(topology), Collective(collective, 8)
    for nbytes in SIZES:
        best = time_baseline(executor, topology, "nccl-best", collective, nbytes).timing.us
        times = [time_baseline(executor, topology, "nccl", collective, nbytes).timing.us]
        for algorithm, channels in itertools.product(ALGORITHMS[collective], CHANNELS):
            for protocol in ("LL", "Simple") if algorithm in ("Ring", "Tree") else ():
                knobs = NcclKnobs(algorithm=algorithm, protocol=protocol, channels=channels)
                timed = time_nccl(executor, topology, call, nbytes, knobs)
                times.append(timed.timing.us)
        assert best <= min(times)


def test_protocols_that_corrupt_data_are_not_counted(topology: Topology) -> None:
    executor, call = SimExecutor(topology), Collective("allreduce", 8)
    pcie = load_profile("l40sx8")
    timed = nccl_timings(SimExecutor(pcie), pcie, call, 1 << 20)
    assert timed and all(t.nccl and t.nccl.protocol != "LL128" for t in timed)
    # A user who asks for it gets it all the same.
    unsafe = NcclKnobs(algorithm="Ring", protocol="LL128")
    assert time_nccl(executor, topology, call, 1 << 20, unsafe).name.startswith("Ring/LL128")


def test_calls_that_no_tuner_steers_have_no_settings(topology: Topology) -> None:
    call = Collective("alltoall", 8)
    assert nccl_timings(SimExecutor(topology), topology, call, 1 << 20) == []
    best = time_baseline(SimExecutor(topology), topology, "nccl-best", "alltoall", 1 << 20)
    assert best.nccl is None


def test_what_nccl_does_not_have_is_refused(topology: Topology) -> None:
    knobs = NcclKnobs(algorithm="NVLS", protocol="Simple")
    with pytest.raises(InputError, match=r"NVLS.* for allreduce"):
        time_nccl(SimExecutor(topology), topology, Collective("allreduce", 8), 1 << 20, knobs)


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "alltoall"])
def test_shipped_programs_are_proven_and_fall_back_to_nccl(
    topology: Topology, collective: str
) -> None:
    executor, call = SimExecutor(topology), Collective(collective, 8)
    for nbytes in SIZES:
        [shipped] = best_shipped(executor, topology, call, nbytes, "2.19")
        assert verify(shipped.program, "executor").ok
        assert shipped.timing == executor.time(shipped.program, shipped.knobs, nbytes)
        nccl = time_baseline(executor, topology, "nccl", collective, nbytes).timing.us
        best = time_baseline(executor, topology, "msccl-best", collective, nbytes).timing.us
        one_channel = time_baseline(executor, topology, "msccl-default-robust", collective, nbytes)
        assert best == min(nccl, shipped.timing.us)
        assert shipped.timing.us <= one_channel.timing.us * 1.001
