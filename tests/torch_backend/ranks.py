"""Processes of a test, and the jobs that they do.

``python -m tests.torch_backend NAMES``: without RANK in the environment this process imports
PyTorch once and becomes all ranks by forking, each with a log in the folder LOGS; it prints their
exit codes. With it, as under torchrun, it is one rank.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook  # noqa: F401 - once

import tuccl.torch  # noqa: F401

SIZE = int(os.environ["WORLD_SIZE"])
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_MODULES = ("jobs", "ddp_jobs", "mesh_jobs", "compression_jobs", "elastic_jobs", "gpu_jobs")
NAME = ""
JOBS: dict[str, Callable[[], None]] = {}
_references: list[dist.ProcessGroup] = []


def job(function: Callable[[], None]) -> Callable[[], None]:
    JOBS[function.__name__] = function
    return function


def begin(**more: object) -> None:
    where = f"file://{os.environ['STORE']}-{NAME}" if "STORE" in os.environ else "env://"
    more.setdefault("timeout", timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    dist.init_process_group("tuccl", init_method=where, rank=rank, world_size=SIZE, **more)


def begin_again(turn: int) -> None:
    where = f"file://{os.environ['STORE']}-{NAME}-{turn}"
    rank = int(os.environ["RANK"])
    dist.init_process_group("tuccl", init_method=where, rank=rank, world_size=SIZE)


def reference() -> dist.ProcessGroup:
    """Return a group of PyTorch's own Gloo, which lasts as long as the process.

    A future's callback may hold the last reference to such a group; where that ends on one of the
    group's own threads, PyTorch aborts ("Resource deadlock avoided").
    """
    _references.append(dist.new_group(backend="gloo"))
    return _references[-1]


def run(names: str) -> None:
    global NAME
    for module in _MODULES:  # they ask at once which rank they are
        importlib.import_module(f"tests.torch_backend.{module}")
    for NAME in names.split(","):
        JOBS[NAME]()
        if dist.is_initialized():
            dist.destroy_process_group()


def become(rank: int, names: str) -> None:
    """Be a rank, which ends with the process that it was forked from."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(f"{os.environ['LOGS']}/{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["RANK"] = str(rank)
    if "HOSTS" in os.environ:
        os.environ["TUCCL_HOSTID"] = os.environ["HOSTS"].split(",")[rank]
    try:
        run(names)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - nothing of a rank goes on as its parent
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    atexit._run_exitfuncs()
    os._exit(0)


def fork_all(names: str) -> None:
    pids = []
    for rank in range(SIZE):
        if (pid := os.fork()) == 0:
            become(rank, names)
        pids.append(pid)
    print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
