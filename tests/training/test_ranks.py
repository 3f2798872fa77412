"""Ranks that replay and train: right sums, DDP's weights, and one clear line when one fails."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuccl.emulation import emulated_cluster
from tuccl.errors import InputError, TucclError
from tuccl.topology import join, keep_gpus, load_profile
from tuccl.training import Model, timeline_svg
from tuccl.training.model import Parameter
from tuccl.training.runs import replay_training, train_module
from tuccl.training.server_hosts import with_servers

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs PyTorch (make torch)"
)
PAIR = keep_gpus(load_profile("v100x4"), range(2))
MODEL = Model(
    name="timers",
    parameters=tuple(Parameter(f"w{n}", 5_000_000, 500.0, 1000.0) for n in range(4)),
)


def test_replay_moves_the_bytes_of_every_bucket_between_emulated_hosts() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("emulated clusters need root")
    hosts = join(keep_gpus(load_profile("v100x4"), range(1)), 2)
    methods = ["bsp", "wfbp", "dear", "bytescheduler", "wfbp-ps+server-order", "bytescheduler-ps"]
    runs = replay_training(MODEL, hosts, methods, steps=2, rounds=1)
    by_name = {run.row.method: run for run in runs}
    assert {run.row.kind for run in runs} == {"replay"}
    assert by_name["wfbp"].row.by_default == 4 and by_name["bsp"].row.by_default == 1
    for run in runs:
        assert run.row.steps == 2 and run.row.step_us > MODEL.step_us
        assert run.predicted_us > MODEL.step_us
        assert "replayed" in timeline_svg(run)
        assert any(span.kind == "wire" for span in run.timeline.spans)
    assert sum(span.kind == "wire" for span in by_name["wfbp"].timeline.spans) == 4


def test_servers_have_further_hosts_on_the_same_switches() -> None:
    pair = join(keep_gpus(load_profile("ndv2"), range(2)), 2)
    more = with_servers(pair, 3)
    assert more.ranks == 4 + 3 and len(more.hosts) == 5
    network = [link for link in pair.links if link.kind == "network"]
    assert sum(link.kind == "network" for link in more.links) == len(network) * 5 / 2
    assert len(emulated_cluster(more).hosts) == 5
    assert with_servers(pair, 0) == pair


# A net whose gradients come late by chance, with a layer that takes another's weights itself.
DELAYED = """
import random, time, torch
class Borrowing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(32, 32)
    def forward(self, x):
        return torch.nn.functional.linear(x, self.inner.weight, self.inner.bias).relu()
def make(rank):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 32), Borrowing(), torch.nn.Linear(32, 1))
    late = random.Random(rank)
    for weight in module.parameters():
        weight.register_hook(lambda _: time.sleep(late.uniform(0, 2e-3)))
    def loss(step):
        seeded = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(4, 8, generator=seeded)
        return (module(x) - x.sum(1, keepdim=True)).square().mean()
    return module, loss
"""


def test_weights_after_twenty_steps_are_those_of_ddp_for_late_gradients_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "delayed.py").write_text(DELAYED)
    monkeypatch.chdir(tmp_path)
    methods = ["bsp", "wfbp", "dear", "bytescheduler", "torch-ddp"]
    methods += ["bsp-ps", "wfbp-ps", "wfbp-ps+server-order", "bytescheduler-ps"]
    runs = train_module("delayed:make", PAIR, methods, steps=1, rounds=1, servers=1)
    assert [run.row.method for run in runs] == methods
    assert {run.equal for run in runs} == {"bitwise"}
    assert {run.row.kind for run in runs} == {"train"}


@pytest.mark.slow
def test_lossy_hooks_stand_beside_the_dense_row_with_their_loss() -> None:
    methods = ["torch-ddp", "ar-topk-star@1", "ar-topk-var", "lw-topk@0.1", "ms-topk", "powersgd"]
    runs = train_module("mlp", PAIR, methods, steps=1, rounds=1)
    dense, all_sent, *lossy = runs
    assert dense.equal == "bitwise" and {run.equal for run in runs[1:]} == {""}
    assert all_sent.loss == pytest.approx(dense.loss, rel=1e-3)
    assert all(run.loss > 0 and run.trained_steps == dense.trained_steps for run in lossy)
    assert {run.row.label[1] for run in lossy} == {"sparsification", "low rank"}
    for wrong in ("lw-topk@7", "lw-topk@x", "powersgd@0.1"):
        with pytest.raises(InputError, match=r"ratio 7|behind @|and @RATIO"):
            train_module("mlp", PAIR, [wrong])


FAULTY = """
import os, torch
def make(rank):
    module = torch.nn.Linear(4, 4)
    def loss(step):
        if rank == 1:
            {fault}
        return module(torch.ones(1, 4)).sum()
    return module, loss
"""
RAISING = """
module.weight.register_hook(lambda _: [].pop() if step == 10 else None)
"""


@pytest.mark.parametrize(
    ("fault", "method", "message"),
    [
        ("raise ValueError('no data')", "bsp", "rank 1 ended with 1: ValueError: no data"),
        pytest.param(
            RAISING.strip(),
            "bytescheduler-ps",
            "rank 1 ended with 1: IndexError: pop from empty",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "os.kill(os.getpid(), 9)",
            "dear",
            "rank 1 was ended by signal 9",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_that_fails_ends_the_job_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, method: str, message: str
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY.format(fault=fault))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TucclError, match=message) as error:
        train_module("faulty:make", PAIR, [method], steps=1, rounds=1)
    assert "\n" not in str(error.value)


def test_methods_that_ranks_cannot_run_are_refused() -> None:
    with pytest.raises(InputError, match="expected one of bsp"):
        replay_training(MODEL, PAIR, ["torch-ddp"])


def test_ranks_end_with_the_process_that_started_them() -> None:
    script = (
        "from tests.training.test_ranks import MODEL, PAIR, replay_training\n"
        "replay_training(MODEL, PAIR, ['bsp'], steps=10**6, rounds=1)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        deadline = time.monotonic() + 60
        while len(ranks := listed.read_text().split()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        parent.kill()
    assert len(ranks) == 2
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() < deadline, "ranks live on"
        time.sleep(0.1)
