"""Cells: each regime shares what it says, libraries run there, and nothing survives its owner."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.emulation import Cells, CellsExecutor, guest, netns
from tuccl.emulation.regimes import REGIMES
from tuccl.emulation.running import ROOT, SHARED_MEMORY, clear_leftovers
from tuccl.errors import InputError, Unavailable
from tuccl.program import Knobs
from tuccl.runtime import load_table
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi
from tuccl.runtime.libraries.library import GlooRanks, LibraryCall, MpiRanks
from tuccl.runtime.probing import local_facts
from tuccl.runtime.table.context import JobContext
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import keep_gpus, load_profile

TOOLS = {"bwrap": "bubblewrap", "runc": "runc"}
# What two ranks share: kernel, hostname, /dev/shm, process, network and user namespace, CMA.
SHARED = {
    "bare": {"kernel", "hostname", "/dev/shm", "process", "network", "user", "CMA"},
    "shared": {"kernel", "hostname", "/dev/shm", "process", "network", "user", "CMA"},
    "container": {"kernel", "hostname", "/dev/shm", "process", "network", "user", "CMA"},
    "cross": {"kernel", "user"},
    "cross-ipc": {"kernel", "/dev/shm", "network", "user"},
    "vm": set(),
}
OWNER = """
import subprocess, sys, time
from tuccl.emulation import Cells
with Cells(sys.argv[1], 2, sys.argv[2]) as cells:
    subprocess.Popen([*cells.commands[1], "sleep", "60"])
    print("up", flush=True)
    time.sleep(60)
"""


BUSY = """
import time
begin, spent = time.monotonic(), time.process_time()
while time.monotonic() < begin + 1.5: pass
print((time.process_time() - spent) / 1.5)
"""


@pytest.fixture(scope="module", autouse=True)
def privilege() -> None:
    try:
        netns.check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))


def cells(regime: str, ranks: int = 2, tool: str = "unshare") -> Cells:
    needed = [tool] if tool in TOOLS else []
    needed += ["linux.uml"] if regime == "vm" else []
    for command in needed:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed; scripts/cell-packages does it")
    if "cpus=" in regime and not any(
        os.access(groups, os.W_OK)
        for groups in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cgroup.subtree_control")
    ):
        pytest.skip("this machine gives no control groups")
    return Cells(regime, ranks, tool)


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    try:
        return find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")


@pytest.fixture(scope="module")
def contexts() -> dict[str, JobContext]:
    found = {}
    for regime in REGIMES:
        if regime == "vm" and shutil.which("linux.uml") is None:
            continue
        with Cells(regime, 2) as two:
            found[regime] = two.transports().context
    return found


@pytest.mark.parametrize("regime", REGIMES)
def test_two_ranks_share_what_their_regime_says(
    regime: str, contexts: dict[str, JobContext]
) -> None:
    if regime not in contexts:
        pytest.skip("linux.uml is not installed; scripts/cell-packages does it")
    context = contexts[regime]
    shared = {name for name, first in context.shares.items() if first == (0, 0)}
    assert {name.removesuffix(" namespace") for name in shared} == SHARED[regime]
    assert context.quota_cpus == (local_facts().quota_cpus,) * 2


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("regime", ["container", "cross"])
def test_tools_make_the_same_cells(tool: str, regime: str) -> None:
    with cells(regime) as by_unshare, cells(regime, tool=tool) as by_tool:
        assert by_unshare.transports().context == by_tool.transports().context


@pytest.mark.parametrize(
    ("regime", "tool"), [("shared", "unshare"), ("cross", "bwrap"), ("cross", "runc")]
)
def test_a_cell_has_no_more_processors_than_its_quota(regime: str, tool: str) -> None:
    with cells(f"{regime},cpus=0.25", tool=tool) as limited:
        context = limited.transports().context
        assert context.quota_cpus == (0.25, 0.25)
        ran = subprocess.run(
            [*limited.commands[1], sys.executable, "-c", BUSY],
            capture_output=True,
            text=True,
            check=True,
        )
    assert float(ran.stdout) < 0.4  # of a processor; the first period may be spent at once
    with cells(regime, tool=tool) as free:
        why = context.difference(free.transports().context)
    assert why.startswith("rank 0 had 0.25 CPUs where it was tuned, and has ")


def test_a_table_of_one_regime_is_refused_where_ranks_share_other_things(
    contexts: dict[str, JobContext],
) -> None:
    for a, b in combinations(contexts, 2):
        why = contexts[a].difference(contexts[b])
        assert bool(why) == (SHARED[a] != SHARED[b]), (a, b, why)
        assert bool(why) == bool(contexts[b].difference(contexts[a]))
    assert "hostname" in contexts["bare"].difference(contexts["cross"])


@pytest.mark.parametrize(
    "regime",
    [
        *(name for name in REGIMES if name != "vm"),
        pytest.param("vm", marks=pytest.mark.slow),  # half a minute
    ],
)
def test_programs_and_libraries_are_right_in_every_regime(regime: str, mpi: Mpi) -> None:
    host = keep_gpus(load_profile("v100x4"), range(2))
    with cells(regime) as two:
        with CellsExecutor(
            two, host, mpi, operands=Operands(check=True), effort=Effort(1, 1)
        ) as ranks:
            assert len(ranks.topology.hosts) == (1 if "hostname" in SHARED[regime] else 2)
            program = lower(msccl_default(ranks.topology, Collective("allreduce", 2)))
            assert ranks.time(program, Knobs("Simple"), 1 << 16).wrong == 0
            assert ranks.context is not None
        with MpiRanks(2, mpi, two.launch(mpi)) as own:
            for collective in ("allreduce", "gather"):
                results = own.library.run(LibraryCall(collective, "auto", 1 << 16, checked=1))
                assert [rank.wrong for rank in results] == [0, 0]


@pytest.mark.parametrize("regime", ["container", "cross", "cross-ipc"])
def test_gloo_is_right_in_cells(regime: str) -> None:
    pytest.importorskip("torch")
    mpi = find_mpi()
    with cells(regime) as two, GlooRanks(2, mpi, two.launch(mpi)) as ranks:
        for collective in ("broadcast", "gather"):
            results = ranks.library.run(LibraryCall(collective, "auto", 1 << 16, root=1, checked=1))
            assert [rank.wrong for rank in results] == [0, 0]


def namespaces() -> dict[int, set[str]]:
    """Return the namespaces of each process of this machine."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*/ns"):
        try:
            found[int(folder.parent.name)] = {str(each.readlink()) for each in folder.iterdir()}
        except OSError:  # it has ended
            continue
    return found


def started_by(owner: int) -> set[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {owner}} - found:
        found |= more
    return found


@pytest.mark.parametrize(
    ("regime", "tool", "after_s"),
    [
        ("cross", "unshare", 0.0),
        ("cross,cpus=0.5", "unshare", 0.0),
        ("cross", "bwrap", 0.0),
        ("cross", "runc", 0.0),
        ("cross-ipc", "unshare", 0.0),
        ("vm", "unshare", 0.0),
        ("vm", "unshare", 1.5),
    ],
)
def test_nothing_survives_a_kill(regime: str, tool: str, after_s: float) -> None:
    cells(regime, tool=tool)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, regime, tool], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    if after_s:
        while not started_by(owner.pid):
            time.sleep(0.05)
        time.sleep(after_s)  # while the virtual machines start
    else:
        assert owner.stdout.readline() == "up\n"
    ours = namespaces()[os.getpid()]
    pids = started_by(owner.pid)
    own = set().union(*(names for pid, names in namespaces().items() if pid in pids)) - ours
    assert own
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until = time.monotonic() + 20
    groups = Path("/sys/fs/cgroup")
    while time.monotonic() < until and (
        own & set().union(*namespaces().values()) or [*groups.glob(f"**/tuccl-{owner.pid}-*")]
    ):
        time.sleep(0.05)
    assert not [*groups.glob(f"**/tuccl-{owner.pid}-*")]
    assert not own & set().union(*namespaces().values())
    clear_leftovers()
    for folder in (ROOT, SHARED_MEMORY):
        assert not [each for each in folder.iterdir() if f"{owner.pid}-" in each.name]


def test_bad_regimes_and_tools_are_refused(tuccl: Tuccl) -> None:
    for arguments, why in (
        (("nowhere", 2), "regime 'nowhere': expected one of bare"),
        (("cross", 2, "podman"), "tool 'podman': expected one of"),
        (("cross,cpus=0", 2), "expected cpus=N, N from 0.01, as in 0.5"),
        (("cross,memory=1", 2), "expected cpus=N"),
        (("bare,cpus=1", 2), "bare has no cells to limit"),
        (("cross", 99), "99 ranks: expected 1 to 32"),
    ):
        with pytest.raises(InputError, match=why):
            Cells(*arguments)
    answer = tuccl("doctor", "--transports", "--regime", "nowhere")
    assert answer.code == 2 and answer.err.count("\n") == 1
    answer = tuccl("doctor", "--transports", "--regime", "bare", "--pids", "1,2")
    assert answer.code == 2 and "expected one of them" in answer.err


@pytest.fixture
def virtual_machine() -> Iterator[socket.socket]:
    """A connection to a program like that in a virtual machine, which has been sent nothing."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    code = f"from tuccl.emulation import guest; guest._COMMANDS = {port}; "
    code += f"guest.run_commands('127.0.0.1', b'{'a' * guest.TOKEN_BYTES}')"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            for _ in range(200):
                try:
                    line = socket.create_connection(("127.0.0.1", port), 5)
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                pytest.fail("it does not listen")
            with line:
                yield line
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [b"b" * 32 + b"\0\0\0\2{}", b"a" * 32 + b"\0\0\0\2[", b"\0" * 64])
def test_a_virtual_machine_hangs_up_on_strangers(
    virtual_machine: socket.socket, sent: bytes
) -> None:
    with contextlib.suppress(OSError):  # it has hung up
        virtual_machine.sendall(sent)
        virtual_machine.shutdown(socket.SHUT_WR)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        received = virtual_machine.recv(1)
    assert received == b""


def test_commands_run_in_a_virtual_machine(virtual_machine: socket.socket) -> None:
    text = b'{"id": "1", "words": ["cat"], "environment": {"PATH": "/usr/bin:/bin"}}'
    virtual_machine.sendall(b"a" * 32 + len(text).to_bytes(4, "big") + text + b"as it came")
    virtual_machine.shutdown(socket.SHUT_WR)
    assert virtual_machine.recv(100, socket.MSG_WAITALL) == b"as it came"


@pytest.mark.skipif(os.geteuid() != 0, reason="cells need root")
def test_libraries_are_the_default_and_run_refuses_the_table_elsewhere(
    tuccl: Tuccl, tmp_path: Path
) -> None:
    machine, cross, bare = tmp_path / "t.json", tmp_path / "cross", tmp_path / "bare"
    assert tuccl("probe", "--profile", "v100x4", "-o", machine).code == 0
    call = ("tune", machine, "-c", "broadcast", "-s", "64K", "--on", "mpi", "--budget", 4)
    answer = tuccl(*call, "--regime", "cross", "--libraries", "openmpi", "-o", cross)
    assert answer.code == 0 and "against libraries" in answer.out
    compared = tuccl("compare", cross, "--on", "mpi", "--regime", "cross", "--libraries", "openmpi")
    assert compared.code in (0, 1) and "vs libraries" in compared.out
    again = tuccl(
        *call[:3], "reduce", *call[4:], "--regime", "cross", "--libraries", "openmpi", "-o", cross
    )
    assert again.code == 0, again.err  # which no library has, and the table keeps the broadcast
    assert {entry.collective for entry in load_table(cross).entries} == {"broadcast", "reduce"}
    other = tuccl("tune", cross / "topology.json", *call[2:], "--regime", "bare", "-o", bare)
    assert other.code == 2 and "regime bare [[0, 1, 2, 3]]" in other.err
    here = tmp_path / "ranks.json"
    answer = tuccl("doctor", "--transports", "--ranks", 4, "--json")
    here.write_text(answer.out)
    run = ("run", "--table", cross, "--context", here, "--", "printenv", "TUCCL_TABLE")
    answer = tuccl(*run)
    assert answer.code == 1 and "ranks 0 and 1 did not share hostname" in answer.err
    assert tuccl(*call, "-o", bare).code == 0
    assert f"{bare} fits: --table {bare}" in tuccl(*run).err
    several = ("run", "--table", tmp_path, "--context", here, "--", "printenv", "TUCCL_TABLE")
    assert tuccl(*several).out.strip() == str(bare)


def test_libraries_that_cannot_be_are_refused(tuccl: Tuccl, tmp_path: Path) -> None:
    machine = tmp_path / "t.json"
    assert tuccl("probe", "--profile", "v100x4", "-o", machine).code == 0
    call = ("tune", machine, "-c", "broadcast", "-s", "64K", "-o", tmp_path / "table")
    answer = tuccl(*call, "--on", "mpi", "--libraries", "nccl")
    assert answer.code == 2 and "--libraries nccl: expected" in answer.err
    answer = tuccl(*call, "--libraries", "gloo")
    assert answer.code == 2 and "only --on mpi" in answer.err


def test_a_command_in_a_virtual_machine_ends_as_it_would_here() -> None:
    with cells("vm", 1) as one:
        [words] = one.commands
        ran = [
            subprocess.run([*words, *command], capture_output=True, text=True, check=False)
            for command in (["sh", "-c", "echo here; exit 7"], ["no-such-command"], ["cat"])
        ]
    assert [each.returncode for each in ran] == [7, 127, 0]
    assert ran[0].stdout == "here\n" and "no-such-command" in ran[1].stdout
