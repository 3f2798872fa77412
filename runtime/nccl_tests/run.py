"""One run of nccl-tests: its arguments, its environment, and whether it did what was requested."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.runtime.jobs.child_tree import Finished, run_to_end
from tuccl.runtime.jobs.launcher import JobLauncher
from tuccl.runtime.nccl_tests.output import TestsOutput, read_json, read_text

_BINARIES = {
    "allgather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
    "allreduce": "all_reduce_perf",
    "alltoall": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
}
# What a table or an older run left in the environment must not reach a run that is timed.
_DROPPED = ("TUCCL_TABLE", "MSCCL_ALGO_DIR", "MSCCL_XML_FILES", "MSCCL_CONFIG", "MSCCL_SCHEDULER")
_NO_WINDOWS = "Option -R"  # "... is not supported before NCCL 2.27": nccl-tests goes on without
_HOW_TO = "give --nccl-tests DIR or set NCCL_TESTS to the folder with all_reduce_perf"


@dataclass(frozen=True)
class NcclTests:
    """The nccl-tests and their launcher; ``shared`` is a folder that every host sees.

    ``iterations`` after ``warmup`` make one time. A run that takes longer than ``limit_s`` is
    ended. With ``json`` results are requested as JSON too (``-J``): more digits than the text.
    """

    folder: Path
    launcher: JobLauncher
    shared: Path
    datatype: str = "float"
    op: str = "sum"
    iterations: int = 20
    warmup: int = 5
    limit_s: float = 600.0
    json: bool = False


def find_nccl_tests(folder_name: str | None) -> Path:
    """Return the folder with nccl-tests' binaries: ``folder_name``, or what NCCL_TESTS says.

    Raises:
        Unavailable: neither names one.
        InputError: none of the binaries is there.
    """
    folder = folder_name or os.environ.get("NCCL_TESTS")
    if not folder:
        raise Unavailable(f"nccl-tests not found; {_HOW_TO}")
    for candidate in (Path(folder), Path(folder) / "build"):
        if any((candidate / name).is_file() for name in _BINARIES.values()):
            return candidate.resolve()
    raise InputError(f"{folder}: no {', '.join(list(_BINARIES.values())[:3])} there; {_HOW_TO}")


def run_tests(
    tests: NcclTests,
    ranks: int,
    collective: str,
    sizes: Sequence[int],
    variables: Mapping[str, str],
    work: Path,
    *,
    root: int = 0,
    cycles: int = 1,
    log: str = "INIT",
    windows: bool = False,
) -> TestsOutput:
    """Return what nccl-tests printed for ``sizes``, one after another, in each of ``cycles``.

    ``windows``: buffers are registered as symmetric windows (``-R 2``, NCCL 2.27 on). Every rank
    gets ``variables``; NCCL's log (of the subsystems ``log``) goes to files ``nccl.*``
    in ``work``, an empty folder that every host sees, so that it does not break
    into the results' lines.

    Raises:
        InputError: the run failed.
        Stuck: it took too long, and was ended.
        Unavailable: nccl-tests or its launch is not what it should be.
    """
    binary = tests.folder / _BINARIES[collective]
    if not binary.is_file():
        raise Unavailable(f"{binary}: missing; build all of nccl-tests")
    logged = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": log}
    forwarded = {**logged, **variables, "NCCL_DEBUG_FILE": str(work / "nccl.%h.%p")}
    inherited = {n: v for n, v in os.environ.items() if n not in _DROPPED}
    if "MSCCL" in inherited.get("NCCL_ALGO", ""):
        del inherited["NCCL_ALGO"]
    results = work / "results.json"
    arguments = _arguments(tests, sizes, root, cycles, results)
    arguments += ["-R", "2"] if windows else []
    command = tests.launcher.command([str(binary), *arguments], forwarded)
    finished = run_to_end(command, {**inherited, **forwarded}, tests.limit_s)
    if windows and _NO_WINDOWS in finished.out:
        raise Unavailable(
            f"{binary.name}: its NCCL has no symmetric windows: they came with 2.27; leave "
            "nccl-symmetric out"
        )
    out = _read(tests, finished, binary.name, results)
    _check(finished, out, binary.name, ranks, len(sizes) * cycles)
    return out


def _arguments(
    tests: NcclTests, sizes: Sequence[int], root: int, cycles: int, results: Path
) -> list[str]:
    pace = []
    if len(sizes) > 1:
        factor, step = sizes[1] // sizes[0], sizes[1] - sizes[0]
        pace = ["-f", str(factor)] if _is_factor(sizes) else ["-i", str(step)]
    words = f"-b {sizes[0]} -e {sizes[-1]}".split() + pace
    words += f"-n {tests.iterations} -w {tests.warmup} -c 1 -t 1 -g 1".split()
    words += ["-d", tests.datatype, "-o", tests.op, "-r", str(root)]
    words += ["-N", str(cycles)] if cycles > 1 else []
    return words + (["-J", str(results)] if tests.json else [])


def _read(tests: NcclTests, finished: Finished, binary: str, results: Path) -> TestsOutput:
    if finished.code is None:
        raise Stuck(f"{binary}: not done after {tests.limit_s:g} s, ended; {_last_line(finished)}")
    # Before any line is read: tables that processes print at once run into each other.
    if (tables := finished.out.count("# nThread ")) > 1:
        raise Unavailable(
            f"{binary}: printed {tables} tables, each of its processes its own: built without "
            "MPI; build nccl-tests with MPI=1"
        )
    out = read_text(finished.out, f"{binary}'s output")
    if not tests.json or finished.code != 0:
        return out
    try:
        exact = read_json(results.read_text(), str(results))
    except OSError as error:
        raise Unavailable(
            f"{results}: {error.strerror}: nccl-tests wrote no JSON (-J came with 2.17), or its "
            "first host does not see the folder; leave --tests-json out or correct --shared"
        ) from None
    return TestsOutput(exact.rows, out.ranks, out.tables, out.out_of_bounds)


def _check(finished: Finished, out: TestsOutput, binary: str, ranks: int, rows: int) -> None:
    """Refuse a run that is not what was requested."""
    if out.ranks not in (0, ranks):
        raise Unavailable(
            f"{binary}: ran on {out.ranks} GPUs, the topology has {ranks}; correct --launcher, "
            "or build nccl-tests with MPI=1"
        )
    wrong = any(row.wrong or row.wrong_ip for row in out.rows) or out.out_of_bounds
    if len(out.rows) != rows or (finished.code != 0 and not wrong):
        raise InputError(
            f"{binary}: ended with {finished.code} and {len(out.rows)} of {rows} results; "
            f"{_last_line(finished)}"
        )


def single_runs(sizes: Sequence[int]) -> list[list[int]]:
    """The sizes as runs that nccl-tests can walk by itself: a factor or a step between all."""
    steps = {b - a for a, b in pairwise(sizes)}
    if len(sizes) < 2 or _is_factor(sizes) or (len(steps) == 1 and min(steps) > 0):
        return [list(sizes)]
    return [[nbytes] for nbytes in sizes]


def _is_factor(sizes: Sequence[int]) -> bool:
    factor = sizes[1] // sizes[0]
    return factor > 1 and all(b == a * factor for a, b in pairwise(sizes))


def _last_line(finished: Finished) -> str:
    """Return its last line, of errors first."""
    for text in (finished.err, finished.out):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return f"its last line: {lines[-1][:200]}"
    return "it said nothing"
