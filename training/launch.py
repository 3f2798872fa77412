"""Ranks as processes: on the hosts of an emulated cluster, or on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tuccl.emulation import Cells, Emulation
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.training.job import JOB_FILE, RESULTS_FILE, Job, MethodResult

_POLL_S = 0.05
_START_S = 120.0
_FREE = ("RANK", "WORLD_SIZE", "TUCCL_TABLE")


def run_job(
    job: Job,
    table: Path | None = None,
    location: Emulation | Cells | None = None,
    progress: Callable[[list[MethodResult]], None] = lambda _: None,
) -> list[MethodResult]:
    """Start the processes of ``job``, and return its results when all have ended.

    Args:
        job: what they do.
        table: folder of the table of the backend ``table``.
        location: where ranks run; None: side by side on this machine.
        progress: called with the results so far after each round.

    Raises:
        TucclError: a rank failed, with its last words; all others are ended.
        Unavailable: PyTorch is not installed.
    """
    environment = {} if table is None else {"TUCCL_TABLE": str(table.resolve())}
    ranks = run_ranks(
        "tuccl.training.ranks",
        msgspec.json.encode(job),
        job.processes,
        location,
        environment,
        job.limit_s,
    )
    results: list[MethodResult] = []
    for data in ranks:
        results = msgspec.json.decode(data, type=list[MethodResult])
        progress(results)
    return results


def run_ranks(
    module: str,
    job: bytes,
    processes: int,
    location: Emulation | Cells | None,
    environment: Mapping[str, str],
    limit_s: float = 0.0,
) -> Iterator[bytes]:
    """Start processes that read ``job``, and yield their results each time that they change.

    Args:
        module: What each runs, as ``python -m MODULE FOLDER RANK``: the job is there as
            `JOB_FILE`, and it writes `RESULTS_FILE`.
        job: The job in the module's own form.
        processes: How many.
        location: Where they run; None: side by side on this machine.
        environment: Of theirs, beside this process's.
        limit_s: Seconds that they themselves keep to; 0: none.

    Raises:
        TucclError: a rank failed, with its last words; all others are ended.
        Unavailable: PyTorch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("ranks run under PyTorch: pip install torch")
    with tempfile.TemporaryDirectory(prefix="tuccl-train-") as place, ExitStack() as stack:
        folder = Path(place)
        (folder / JOB_FILE).write_bytes(job)
        own = {name: value for name, value in os.environ.items() if name not in _FREE}
        own |= {} if location is None else location.environment
        own |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **environment}
        prefixes = [[]] * processes if location is None else location.commands
        if len(prefixes) < processes:
            raise InputError(f"{processes} processes: expected at most {len(prefixes)} there")
        ranks = []
        for rank, prefix in enumerate(prefixes[:processes]):
            log = stack.enter_context((folder / f"rank{rank}.log").open("wb"))
            command = [*prefix, sys.executable, "-m", module, place, str(rank)]
            # A rank ends with its input, which closes however this process ends.
            process = subprocess.Popen(
                command, env=own, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
            stack.callback(_end, process)
            ranks.append(process)
        yield from _rounds(ranks, folder, limit_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _rounds(ranks: list[subprocess.Popen[bytes]], folder: Path, limit_s: float) -> Iterator[bytes]:
    """Yield the results after each round until all ranks have ended, or the first that fails.

    Raises:
        TucclError: a rank failed, or none had ended long after the limit.
    """
    begin, last = time.monotonic(), b""
    while True:
        codes = [rank.poll() for rank in ranks]
        if failed := [n for n, code in enumerate(codes) if code]:
            words = [_last_words(folder, n, codes[n]) for n in failed]
            # The others fail as their connections to the first end.
            raise TucclError(next((w for w in words if "gloo" not in w.lower()), words[0]))
        file = folder / RESULTS_FILE
        if file.exists() and (data := file.read_bytes()) != last:
            last = data
            yield data
        if None not in codes:
            return
        if limit_s and time.monotonic() - begin > 2 * limit_s + _START_S:
            raise TucclError(f"training: no end {time.monotonic() - begin:.0f} s after the start")
        time.sleep(_POLL_S)


def _last_words(folder: Path, rank: int, code: int | None) -> str:
    lines = (folder / f"rank{rank}.log").read_text(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix(f"[rank{rank}]: ")[:300] if lines else "it said nothing"
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
    return f"rank {rank} {how}: {last}"
