"""A Gloo group outlives a callback of its own that takes longer than the group's end waits."""

from __future__ import annotations

import subprocess
import sys

JOB = """
import threading, time
import torch, torch.distributed as dist
import tuccl.torch
from tuccl.torch import work

work._Callback._LIMIT_S = 0.05
store, groups = dist.HashStore(), [None, None]

def join(rank):
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    groups[rank] = dist.ProcessGroupGloo(store, rank, 2, options)

threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
references, ended = [groups[0]], threading.Event()

def late(_):
    time.sleep(0.5)
    references.clear()
    ended.set()

future = work._future(groups[0].allreduce([torch.ones(1)]))
future.add_done_callback(work._Callback(late))
groups[1].allreduce([torch.ones(1)]).wait()
work.settle_callbacks(groups[0])
groups[0] = None
assert not ended.is_set() and ended.wait(20)
time.sleep(0.2)
print("well")
"""


def test_the_last_reference_may_end_on_gloos_thread() -> None:
    """Gloo's group joins its threads when it ends; on one of these it would abort the process."""
    ran = subprocess.run(
        [sys.executable, "-c", JOB], check=False, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "well\n"), ran.stderr[-2000:]
