"""The torch.distributed backend on real processes: against Gloo, and when things go wrong."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tuccl import _native
from tuccl.emulation.netns import check_privilege
from tuccl.errors import InputError, Unavailable
from tuccl.runtime import load_table, save_table
from tuccl.runtime.jobs import read_log
from tuccl.runtime.probing import context_of, local_facts
from tuccl.runtime.table import observed_timings

ROOT = Path(__file__).resolve().parents[2]
CPU_FOR_GPU = str(Path(_native.__file__).parent / "cuda" / "libtuccl-cuda-host.so")
Outcome = tuple[int, str]
Job = Callable[..., list[Outcome]]
Table = Callable[..., Path]


def all_well(outcomes: list[Outcome]) -> None:
    for rank, (code, text) in enumerate(outcomes):
        assert code == 0, f"rank {rank}: {text[-3000:]}"


def reported(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("TOLD"))


def test_four_ranks_do_all_that_gloo_does(job: Job, table: Table) -> None:
    jobs = "operations,more_operations,unequal_shares,messages,order,odd_calls,threads"
    all_well(job(jobs, 4, table(2, 2)))


@pytest.mark.slow
def test_sharded_and_whole_weights_train_as_with_gloo(job: Job, table: Table) -> None:
    all_well(job("training,sharded_training", 4, table(2, 2)))


def test_two_ranks_train_to_the_same_bits(job: Job, table: Table) -> None:
    all_well(job("training,sharded_training,more_operations", 2, table(1, 2, "LL")))


@pytest.mark.slow
def test_stock_hooks_and_habits_of_ddp_do_as_on_gloo(job: Job, table: Table) -> None:
    all_well(job("stock_hooks,ddp_in_use", 2, table(1, 2)))


def test_a_rank_that_dies_ends_the_backward_pass_of_the_others(job: Job, table: Table) -> None:
    outcomes = job("killed_in_backward", 2, table(1, 2))
    assert [code for code, _ in outcomes] == [0, -9], outcomes
    assert re.search(r"rank 1 (closed its connection|has left)", reported(outcomes[0][1]))


FORKS = """
import os, sys, torch, tuccl.torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("tuccl", init_method=sys.argv[1], rank=rank, world_size=2)
dist.all_reduce(torch.ones(1000))
work = dist.all_reduce(torch.ones(1000).reshape(10, 100).t(), async_op=True)
if (child := os.fork()) == 0:
    sys.exit(0)
work.wait()
assert os.waitpid(child, 0)[1] == 0
dist.all_reduce(torch.ones(1000))
assert dist.group.WORLD.counts == {"program": 3, "gloo": 0}
dist.destroy_process_group()
"""


def test_children_forked_after_init_end_as_others(table: Table, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, f"file://{tmp_path / 'store'}"]
    own = {**os.environ, "TUCCL_TABLE": str(table(1, 2)), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(command, cwd=ROOT, env={**own, "RANK": str(rank)}) for rank in range(2)
    ]
    try:
        assert [rank.wait(60) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


def test_a_group_without_programs_for_its_calls_says_so(job: Job, table: Table) -> None:
    outcomes = job("few_calls", 2, table(1, 2, largest=64))
    all_well(outcomes)
    line = "tuccl: torch: 2 ranks: program 0, gloo 1; no call ran by a program"
    assert outcomes[0][1].count(line) == 1 and line not in outcomes[1][1]
    outcomes = job("few_calls", 2, table(1, 2), NCCL_DEBUG="INFO")
    log = read_log(outcomes[0][1].splitlines())
    [*_, last] = [group for process in log.processes for group in process.torch]
    assert last == (2, {"program": 1, "gloo": 0})


def test_a_table_of_one_host_is_refused_where_its_ranks_are_on_two(job: Job, table: Table) -> None:
    outcomes = job("no_table", 2, table(1, 2), HOSTS="a,b")
    all_well(outcomes)
    why = "it was tuned for ranks 0 and 1 on one host, and they are on a and b"
    assert outcomes[0][1].count(why) == 1 and why not in outcomes[1][1]
    outcomes = job("more_operations", 2, table(1, 2), table(2, 1), HOSTS="a,b")
    all_well(outcomes)
    assert outcomes[0][1].count(why) == 2  # the log goes on
    # Programs between hosts may run within one.
    all_well(job("more_operations", 2, table(2, 1), HOSTS="a,a"))


def test_ranks_that_share_neither_namespace_are_on_hosts_of_their_own() -> None:
    from torch.distributed import HashStore

    from tuccl.torch.agreement import _hosts

    facts = msgspec.json.encode(local_facts()).decode()

    def hosts(*ranks: str) -> list[str]:
        store = HashStore()
        for number, rank in enumerate(ranks):
            store.set(f"host/{number}", f"{rank}\n{facts}")
        found, here = _hosts(store, len(ranks))
        assert here == context_of([local_facts()] * len(ranks))
        return found

    assert hosts("a\n", "a\n", "b\n") == ["a", "a", "b"]
    assert hosts("a\nb/net:[1] b/pid:[1]", "a\nb/net:[1] b/pid:[2]") == ["a", "a"]
    assert hosts("a\nb/net:[1] b/pid:[1]", "a\nb/net:[2] b/pid:[2]") == ["a (0)", "a (1)"]
    # The third joins the first two.
    three = ("a\nb/net:[1] b/pid:[1]", "a\nb/net:[2] b/pid:[2]", "a\nb/net:[1] b/pid:[2]")
    assert hosts(*three) == ["a", "a", "a"]


def test_a_program_gives_way_at_the_same_call_on_all_ranks(
    job: Job, table: Table, tmp_path: Path
) -> None:
    """Calls of one size give way to larger ones, for which the first candidate's buffers are small.

    Ranks that ran different programs would fail at once.
    """
    stored = load_table(table(2, 2, collectives=("allreduce",)))
    entry = stored.entries[0]
    first, default = entry.candidates
    assert first.knobs is not None
    large = replace(first, name="large", knobs=replace(first.knobs, buffer_bytes=1 << 20))
    small = replace(
        first, name="small", knobs=replace(first.knobs, buffer_bytes=1 << 9), max_safe_bytes=1 << 27
    )
    entries = (replace(entry, candidates=(small, large, default)),)
    folder = tmp_path / "two"
    save_table(replace(stored.lookup, entries=entries), folder, stored.topology, stored.files)
    all_well(job("few_calls", 4, folder))
    assert not observed_timings(folder)[0]
    outcomes = job(
        "growing_calls", 4, folder, TUCCL_ADAPT="1", TUCCL_EPOCH="0.01", NCCL_DEBUG="INFO"
    )
    all_well(outcomes)
    assert "tuccl: torch: swap: entry 0: large takes the place of small\n" in outcomes[0][1]
    timed = observed_timings(folder)[0]
    assert [row.place for row in timed] == [0, 1] and all(row.calls > 1 for row in timed)


@pytest.mark.slow
def test_torchrun_restarts_ranks_that_died(table: Table, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"),
            *("--nproc-per-node", "2", "-m", "tests.torch_backend", "restarted"),
        ],
        check=False,
        cwd=ROOT,
        env={
            **os.environ,
            "TUCCL_TABLE": str(table(1, 2)),
            "LOGS": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert done.stdout.count("RESTARTED 1") == 2


@pytest.mark.slow
def test_tensors_with_gaps_do_as_on_gloo_under_every_mode(job: Job, table: Table) -> None:
    all_well(job("modes,callbacks_that_raise", 4, table(2, 2)))


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        *(("operation", "Simple"), ("operation", "LL"), ("type", "LL"), ("reduction", "Simple")),
        *(("root", "LL"), ("size", "Simple")),
    ],
)
def test_ranks_that_call_different_things_get_an_error(
    job: Job, table: Table, kind: str, protocol: str
) -> None:
    outcomes = job("different_calls", 4, table(2, 2, protocol), DIFFERENCE=kind)
    all_well(outcomes)
    for _, text in outcomes:
        assert "all ranks must make the same calls in the same order" in reported(text), text


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_programs_have_the_latency_of_an_emulated_cluster(
    job: Job, table: Table, tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "latencies.json").write_text("[[0, 100000], [100000, 0]]")
    latencies = {"TUCCL_LATENCIES": str(tmp_path / "latencies.json")}
    all_well(job("delayed", 2, table(1, 2, protocol), **latencies))


def test_latencies_of_other_ranks_are_refused(tmp_path: Path) -> None:
    options = pytest.importorskip("tuccl.torch.options")
    (tmp_path / "latencies.json").write_text("[[0, 1, 2], [3, 0, 4], [5, 6, 0]]")
    named = {"TUCCL_LATENCIES": str(tmp_path / "latencies.json")}
    assert options.added_latencies((2, 0), 3, named) == (0, 5, 2, 0)
    assert options.added_latencies((0, 1), 2, {}) == ()
    with pytest.raises(InputError, match="is for 3 ranks, the job has 2"):
        options.added_latencies((0, 1), 2, named)
    (tmp_path / "latencies.json").write_text("[[0, 1")
    with pytest.raises(InputError, match="TUCCL_LATENCIES"):
        options.added_latencies((0, 1), 3, named)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("layout", [(1, 2), (1, 3), (1, 5), (2, 4)])
def test_any_ranks_do_all_that_gloo_does(
    job: Job, table: Table, layout: tuple[int, int], protocol: str
) -> None:
    ranks = layout[0] * layout[1]
    all_well(job("operations,training,order,messages", ranks, table(*layout, protocol)))


@pytest.mark.slow
def test_sub_groups_take_the_table_of_their_size(job: Job, table: Table) -> None:
    outcomes = job("sub_groups", 4, table(2, 2), table(1, 2))
    all_well(outcomes)
    assert "no table is named" in outcomes[0][1]
    assert "no table is for 3 ranks" not in outcomes[0][1]


@pytest.mark.slow
def test_a_late_peer_is_named_with_its_step(job: Job, table: Table) -> None:
    outcomes = job("late_peer", 3, table(1, 3))
    all_well(outcomes)
    for rank in (0, 1):
        words = reported(outcomes[rank][1])
        assert re.search(r"not done after 3.0 s; rank \d tb \d+ step \d+ .*rank 2", words), words


def test_a_killed_peer_is_named_and_nobody_hangs(job: Job, table: Table) -> None:
    outcomes = job("killed_peer", 4, table(2, 2))
    assert [code for code, _ in outcomes] == [0, -9, 0, 0], outcomes
    for rank in (0, 2, 3):
        words = reported(outcomes[rank][1])
        assert re.search(r"rank 1 (closed its connection|has left)", words), words
        assert re.search(r"tb \d+ step \d+", words), words


def test_a_damaged_table_leaves_all_to_gloo_with_one_warning(
    job: Job, table: Table, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(table(1, 2), damaged)
    text = (damaged / "table.json").read_text()
    (damaged / "table.json").write_text(text.replace('"for tests"', '"for guests"'))
    outcomes = job("no_table", 2, damaged)
    all_well(outcomes)
    assert outcomes[0][1].count("UserWarning") == 1 and "checksum" in outcomes[0][1]
    assert "UserWarning" not in outcomes[1][1]


def test_torchrun_on_two_emulated_hosts(table: Table, tmp_path: Path) -> None:
    """Two network namespaces, for which a table of one host is none."""
    try:
        check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))
    run = (
        f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 "
        "--master-addr $MASTER_ADDR --master-port 29511 --node-rank {} "
        "-m tests.torch_backend more_operations"
    )
    second = "${TUCCL_HOSTS##*,}"
    script = tmp_path / "both.sh"
    script.write_text(
        f"$TUCCL_RSH {second} {shlex.quote(run.format(1))} & {run.format(0)}; first=$?\n"
        "wait $! && exit $first\n"
    )
    stored = table(2, 2)
    cluster = [sys.executable, "-m", "tuccl.cli", "emulate", str(stored / "topology.json"), "--"]
    done = subprocess.run(
        [*cluster, "sh", str(script)],
        check=False,
        cwd=ROOT,
        env={**os.environ, "TUCCL_TABLE": f"{table(1, 4)}:{stored}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "all goes to Gloo" not in done.stderr
    assert "it was tuned for ranks 0 and 2 on one host" in done.stderr


@pytest.mark.slow
def test_an_interface_that_is_not_there_leaves_all_to_gloo(job: Job, table: Table) -> None:
    outcomes = job("no_table", 2, table(1, 2), TUCCL_SOCKET_IFNAME="none0", GLOO_SOCKET_IFNAME="lo")
    all_well(outcomes)
    assert "network interface 'none0'" in outcomes[0][1]


def test_calls_on_gpus_run_by_the_communicator_and_do_as_gloo(job: Job, table: Table) -> None:
    """The CPU is in a GPU's place."""
    all_well(job("programs_on_gpus", 2, table(1, 2, "LL"), TUCCL_CUDA_LIBRARY=CPU_FOR_GPU))


def test_calls_on_gpus_are_timed_where_programs_may_change(
    job: Job, table: Table, tmp_path: Path
) -> None:
    folder = tmp_path / "timed"
    shutil.copytree(table(1, 2, "LL"), folder)
    settings = {"TUCCL_CUDA_LIBRARY": CPU_FOR_GPU, "TUCCL_ADAPT": "1", "TUCCL_EPOCH": "0.01"}
    all_well(job("programs_on_gpus", 2, folder, **settings))
    assert all(row.calls > 0 for row in observed_timings(folder)[0])
    assert observed_timings(folder)[0]


def test_without_a_table_or_a_library_no_call_on_gpus_is_taken(job: Job, table: Table) -> None:
    other = str(table(2, 2))
    settings = {"TUCCL_CUDA_LIBRARY": CPU_FOR_GPU, "OTHER_TABLE": other}
    all_well(job("no_programs_on_gpus", 2, table(1, 2, "LL"), **settings))
