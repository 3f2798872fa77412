"""Real processes over Open MPI and MPICH: right results, and failures that are named and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.execution import Call
from tuccl.program import Knobs, Program, Step, ThreadBlock, to_xml
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi, find_mpis, glue_library
from tuccl.runtime.executors.mpi_launch import Launch, usual_launch

RANKS = 4
FAMILIES = ("openmpi", "mpich")
FEW = Effort(warmup=1, runs=2, seconds=0.2)


@pytest.fixture(scope="module", params=FAMILIES)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    try:
        return find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")


@pytest.fixture(scope="module")
def executor(mpi: Mpi) -> Iterator[MpiExecutor]:
    with MpiExecutor(
        RANKS, mpi, operands=Operands(check=True), effort=FEW, timeout_s=20
    ) as executor:
        yield executor


@pytest.fixture
def impatient(mpi: Mpi) -> Iterator[MpiExecutor]:
    with MpiExecutor(RANKS, mpi, timeout_s=2) as executor:
        yield executor


def endless(program: Program) -> Call:
    return Call(program, Knobs(), 4096, timed=10_000_000)


def running(pids: list[int]) -> list[int]:
    """Return which of the processes run and are workers."""

    def is_worker(pid: int) -> bool:
        try:
            return b"tuccl-worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return [pid for pid in pids if is_worker(pid)]


def assert_gone(pids: list[int]) -> None:
    until = time.monotonic() + 20
    while running(pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert pids and not running(pids)


def test_what_moves_is_right(executor: Executor, handmade: ModuleType) -> None:
    for program in handmade.everything(RANKS):
        for protocol, nbytes in (("Simple", 1_000_003), ("LL", 1009), ("LL128", 70_001)):
            timing = executor.time(program, Knobs(protocol, buffer_bytes=1 << 16), nbytes)
            assert timing.wrong == 0, f"{program.name}: {timing.first_wrong}"
            assert timing.us > 0 and timing.on == "mpi"


def test_held_back_at_random_it_is_still_right(executor: MpiExecutor, handmade: ModuleType) -> None:
    for seed, program in enumerate(handmade.everything(RANKS)):
        knobs = Knobs(program.protocol)
        call = Call(program, knobs, 333, datatype="bfloat16", checked=2, delay_us=500, seed=seed)
        if program.out_of_place:
            assert [r.wrong for r in executor.run(call)] == [0] * RANKS


def test_a_rest_before_each_run_is_no_part_of_its_time(
    executor: MpiExecutor, handmade: ModuleType
) -> None:
    call = Call(handmade.ring_allgather(RANKS), Knobs(), 64, warmup=1, timed=2, pause_us=300_000)
    begun = time.monotonic()
    results = executor.run(call)
    assert time.monotonic() - begun >= 3 * 0.3
    assert all(min(result.times_us) < 300_000 for result in results)
    with pytest.raises(InputError, match=r"pause 2000000: expected 0 to 1000000 us"):
        executor.run(Call(handmade.ring_allgather(RANKS), Knobs(), 64, pause_us=2_000_000))


def test_the_workers_stay_and_a_refusal_leaves_them(
    executor: MpiExecutor, handmade: ModuleType
) -> None:
    executor.time(handmade.ring_allgather(RANKS), Knobs(), 64)
    pids = executor.pids
    with pytest.raises(InputError, match="ranks"):
        executor.time(handmade.ring_allgather(3), Knobs(), 64)
    with pytest.raises(InputError, match="threads"):
        executor.time(handmade.ring_allgather(RANKS), Knobs(threads=33), 64)
    executor.time(handmade.ring_allgather(RANKS), Knobs(), 64)
    assert executor.pids == pids and len(set(pids)) == RANKS == len(running(pids))


def test_it_says_that_it_measures_and_on_what(executor: MpiExecutor, mpi: Mpi) -> None:
    assert executor.name == "mpi" and executor.ranks == RANKS
    assert executor.label.startswith(f"measured between {RANKS} processes by {mpi.family}")


def test_a_deadlock_is_named(impatient: MpiExecutor, handmade: ModuleType) -> None:
    """All ranks send three chunks before they receive: the FIFO of Simple holds two."""

    def blocks(rank: int) -> list[ThreadBlock]:
        sends = [Step("s", "i", n, "o", -1, 1) for n in range(3)]
        receives = [Step("r", "i", -1, "o", n, 1) for n in range(3)]
        ring = (rank + 1) % RANKS, (rank - 1) % RANKS
        return [ThreadBlock(0, *ring, 0, [*sends, *receives])]

    program = handmade.program("allreduce", RANKS, 3, blocks)
    big = 3 << 20  # two chunks do not fit in one transfer
    with pytest.raises(Stuck, match=r"rank 0 tb 0 step 2 \(s\) waits for rank 1 to receive"):
        impatient.run(Call(program, Knobs(buffer_bytes=1 << 16), big, warmup=1))
    assert impatient.pids == []
    assert impatient.run(Call(handmade.ring_allgather(RANKS), Knobs(), 64, checked=1))


@pytest.mark.parametrize(
    ("mpi", "number", "said"),
    [
        ("openmpi", "SIGKILL", "died"),
        ("mpich", "SIGKILL", "died"),
        ("openmpi", "SIGSTOP", "does not answer"),
        pytest.param("mpich", "SIGSTOP", "does not answer", marks=pytest.mark.slow),
    ],
    indirect=["mpi"],
)
def test_a_lost_rank_is_named(mpi: Mpi, handmade: ModuleType, number: str, said: str) -> None:
    program = handmade.ring_allgather(RANKS)
    small = Call(program, Knobs(), 64, checked=1)
    long = Call(program, Knobs(buffer_bytes=1 << 14), 1 << 22, timed=1_000_000)
    with MpiExecutor(RANKS, mpi, timeout_s=10) as executor:
        executor.run(small)
        pids = executor.pids
        timer = threading.Timer(1.5, os.kill, (pids[2], getattr(signal, number)))
        timer.start()
        with pytest.raises(Stuck, match=rf"rank 2 \(process {pids[2]}\) {said}.*tb \d+ step \d"):
            executor.run(long)
        assert_gone(pids)
        assert executor.run(small)[0].wrong == 0


def test_a_call_has_a_limit(mpi: Mpi, handmade: ModuleType) -> None:
    with MpiExecutor(2, mpi, limit_s=0.5) as executor:
        with pytest.raises(Stuck, match=r"not done after 0\.5 s"):
            executor.run(endless(handmade.ring_allgather(2)))
        assert executor.pids == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(
    mpi: Mpi, handmade: ModuleType, tmp_path: Path, number: signal.Signals
) -> None:
    """Interrupted or killed, the caller takes its workers with it."""
    file = tmp_path / "p.xml"
    file.write_text(to_xml(handmade.ring_allgather(2), "executor"))
    script = (
        "import sys\n"
        "from tuccl._native import Call, Knobs, parse_xml\n"
        "from tuccl.runtime.executors.mpi import MpiExecutor\n"
        "from tuccl.runtime.executors.mpi_find import find_mpi\n"
        "e = MpiExecutor(2, find_mpi(sys.argv[2]))\n"
        "p = parse_xml(open(sys.argv[1]).read())\n"
        "e.run(Call(p, Knobs(), 64, warmup=1))\n"
        "print(*e.pids, flush=True)\n"
        "e.run(Call(p, Knobs(), 64, timed=10_000_000))\n"
    )
    command = [sys.executable, "-c", script, str(file), mpi.mpiexec]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        time.sleep(0.3)
        process.send_signal(number)
        process.wait(20)
    assert_gone(pids)


def test_ranks_are_started_with_their_prefix(mpi: Mpi, handmade: ModuleType) -> None:
    usual = usual_launch(mpi)
    prefixes = (("env", "HOST=a"), ("env", "HOST=a"), ("env", "HOST=b"))
    with MpiExecutor(3, mpi, launch=Launch(usual.launcher, prefixes)) as executor:
        executor.run(Call(handmade.ring_allgather(3), Knobs(), 64, checked=1))
        hosts = [
            next(
                v
                for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if v[:5] == b"HOST="
            )
            for pid in executor.pids
        ]
    assert hosts == [b"HOST=a", b"HOST=a", b"HOST=b"]
    with pytest.raises(InputError, match="prefixes"):
        Launch(usual.launcher, prefixes).command(2, ["w"])


def test_open_mpi_sends_long_messages_unless_set_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Mpi("openmpi", "4.1.4", "/usr/bin/mpiexec", "/usr/bin/mpicc")
    monkeypatch.delenv("OMPI_MCA_btl_tcp_flags", raising=False)
    sent = ("--mca", "btl_tcp_flags", "1")
    assert usual_launch(found).launcher[-3:] == sent
    shipped = usual_launch(replace(found, as_shipped=True)).launcher
    assert (*shipped, *sent) == usual_launch(found).launcher
    monkeypatch.setenv("OMPI_MCA_btl_tcp_flags", "4")
    assert usual_launch(found).launcher == shipped
    assert "btl_tcp_flags" not in usual_launch(replace(found, family="mpich")).launcher


def test_what_cannot_start_is_said(mpi: Mpi) -> None:
    others = [m for m in find_mpis() if m.family != mpi.family]
    lost = MpiExecutor(2, mpi, launch=Launch((mpi.mpiexec, "--no-such-option")))
    with pytest.raises(Unavailable, match="the launcher said"):
        lost.run(Call(_ring(2), Knobs(), 64))
    with pytest.raises(Unavailable, match="cannot be started"):
        MpiExecutor(2, mpi, launch=Launch(("/nowhere/mpiexec",))).run(Call(_ring(2), Knobs(), 64))
    for other in others:
        mixed = MpiExecutor(2, mpi, launch=usual_launch(other))
        with pytest.raises(Unavailable):
            mixed.run(Call(_ring(2), Knobs(), 64))


def _ring(ranks: int) -> Program:
    from tuccl.program import Gpu

    gpus = [
        Gpu(
            *(r, 1, ranks, 0),
            [
                ThreadBlock(
                    *(0, (r + 1) % ranks, (r - 1) % ranks, 0),
                    [Step("s", "i", 0, "o", -1, 1), Step("r", "i", -1, "o", 1 - r, 1)],
                )
            ],
        )
        for r in range(ranks)
    ]
    return Program("ring", "allgather", "Simple", 1, ranks, gpus)


def test_the_glue_is_compiled_once(
    mpi: Mpi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = glue_library(mpi)
    made = first.stat().st_mtime_ns
    assert glue_library(mpi) == first and first.stat().st_mtime_ns == made
    assert [p.name for p in first.parent.iterdir()] == [first.name]
    broken = Mpi(mpi.family, mpi.version, mpi.mpiexec, "/bin/false")
    with pytest.raises(Unavailable, match="cannot compile"):
        glue_library(broken)


def test_no_mpi_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_mpis() == ()
    for wanted in (None, *FAMILIES):
        with pytest.raises(Unavailable, match="apt-get install"):
            find_mpi(wanted)
    with pytest.raises(InputError, match="mpiexec"):
        find_mpi("/bin/true")
