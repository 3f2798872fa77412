"""Programs on a GPU, many ranks on it: data right, every knob at work (`make gpu`)."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.native.test_matrix import METHOD_NAMES, few_trials
from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.execution import Call
from tuccl.program import Knobs, Program, replicate
from tuccl.runtime import Effort, Operands
from tuccl.runtime.executors import cuda_devices
from tuccl.runtime.executors.cuda import CudaExecutor
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
PROTOCOLS = ("Simple", "LL", "LL128")


@pytest.fixture(autouse=True)
def gpus() -> None:
    try:
        cuda_devices()
    except Unavailable as error:
        pytest.skip(str(error))


def allpairs(ranks: int, name: str = "allreduce") -> Program:
    host = keep_gpus(load_profile("dgx-2"), range(ranks))
    return lower(msccl_default(host, Collective(name, ranks)))


def executor(ranks: int) -> CudaExecutor:
    return CudaExecutor(ranks, Operands(check=True), Effort(warmup=5, runs=20))


def correctness(ranks: int) -> CudaExecutor:
    """Return an executor for what is only checked: buffers of 4 KiB take 100 ms a run."""
    return CudaExecutor(ranks, Operands(check=True), Effort(warmup=1, runs=1))


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_programs_of_all_methods_come_out_right(
    method: str, matrix: ModuleType, covering: ModuleType
) -> None:
    """Machines of up to 16 ranks, counts, types, reductions, protocols, placements."""
    for trial in few_trials(matrix, covering, method):
        ranks = trial.program.ngpus
        try:
            results = CudaExecutor(ranks).run(trial.call)
        except InputError as error:
            assert "cannot run at once" in str(error)
            continue
        for rank, result in enumerate(results):
            assert result.wrong == 0, f"{trial.recipe} rank {rank}: {result.first_wrong}"


def knobs() -> Iterator[Knobs]:
    for protocol in PROTOCOLS:
        yield from (Knobs(protocol, 1, threads) for threads in (32, 64, 256, 512))
        yield from (Knobs(protocol, 1, 512, size) for size in (1 << 12, 1 << 16, 1 << 20))
        yield from (Knobs(protocol, channels, 512) for channels in (2, 4))
    yield Knobs("LL128", 1, 640)


@pytest.mark.parametrize("ranks", [2, 8, 16])
@pytest.mark.parametrize("nbytes", [1, 1009, 400_004])
def test_every_knob_leaves_the_data_right(ranks: int, nbytes: int, handmade: ModuleType) -> None:
    """A ring has few blocks; of all pairs not every number of channels fits a GPU."""
    for program in (handmade.ring_allreduce(ranks), allpairs(ranks)):
        runs = 0
        for knob in knobs():
            try:
                timing = correctness(ranks).time(replicate(program, knob.channels), knob, nbytes)
            except InputError as error:
                assert "cannot run at once" in str(error)
                continue
            assert timing.wrong == 0, timing.first_wrong
            runs += 1
        assert runs > 0


def test_more_threads_and_larger_buffers_are_faster_on_large_arrays() -> None:
    program, size = allpairs(4), 64 << 20

    def us(knob: Knobs) -> float:
        return executor(4).time(program, knob, size).us

    usual = us(Knobs("Simple", 1, 512))
    assert usual < us(Knobs("Simple", 1, 32)) < us(Knobs("Simple", 1, 32, 1 << 12))
    assert usual < us(Knobs("LL", 1, 512))


def test_ll_is_faster_on_small_arrays() -> None:
    program = allpairs(8)
    times = {p: executor(8).time(program, Knobs(p), 1 << 10).us for p in PROTOCOLS}
    assert times["LL"] < times["Simple"]


def test_a_grid_that_cannot_be_resident_is_refused() -> None:
    program = replicate(allpairs(16), 16)
    call = Call(program, Knobs("LL", 16, 512), 1 << 20, checked=1)
    with pytest.raises(InputError, match="cannot run at once"):
        CudaExecutor(16).run(call)


def test_who_waits_is_named_and_the_gpu_goes_on(handmade: ModuleType) -> None:
    blocked = handmade.program(
        "allgather",
        2,
        2,
        lambda rank: [handmade.ThreadBlock(0, 1 - rank, 1 - rank, 0, steps(handmade, rank))],
    )
    with pytest.raises(Stuck, match=r"rank 0 tb 0 step 0 \(r\) waits for data from rank 1"):
        CudaExecutor(2, timeout_s=2).run(Call(blocked, Knobs("Simple"), 64, checked=1))
    assert executor(2).time(allpairs(2), Knobs(), 1 << 20).wrong == 0


def steps(handmade: ModuleType, rank: int) -> list[object]:
    return [handmade.recv("o", 1 - rank), handmade.send("i", 0)]
