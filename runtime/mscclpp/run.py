"""One run of MSCCL++'s executor_test.py: its arguments, its output, and what was wrong."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.runtime.jobs.child_tree import Finished, run_to_end
from tuccl.runtime.jobs.launcher import JobLauncher

DATATYPES: Mapping[str, tuple[str, int]] = {
    "half": ("float16", 2),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "float": ("float32", 4),
    "float32": ("float32", 4),
    "int32": ("int32", 4),
    "int": ("int32", 4),
}
"""Its datatypes and their bytes, by nccl-tests' names and its own."""

_SCRIPT = "executor_test.py"
_PLACES = (".", "python/test", "test", "../test")
_LINE = re.compile(
    r"Rank: (\d+) Execution time: (\S+) us, data size: (\d+) bytes data type: (\S+) "
)
_HANDED = ("PYTHONPATH", "LD_LIBRARY_PATH")
_HOW_TO = "give --mscclpp DIR or set MSCCLPP_SOURCE to MSCCL++'s source tree"
_MOST_OUTPUT = 1 << 22  # characters that are read


@dataclass(frozen=True)
class ExecutorTest:
    """The script and its launcher; ``shared`` is a folder that every host sees.

    A CUDA graph of ``iterations`` calls is launched ``graphs`` times for one time. A run that
    takes longer than ``limit_s`` is ended.
    """

    script: Path
    launcher: JobLauncher
    shared: Path
    datatype: str = "float"
    iterations: int = 20
    graphs: int = 10
    limit_s: float = 600.0


def find_executor_test(folder_name: str | None) -> Path:
    """Return executor_test.py: in ``folder_name``, MSCCLPP_SOURCE, or where mscclpp is installed.

    An installed package has it only where it was installed from its source tree, editable.

    Raises:
        Unavailable: it is nowhere.
        InputError: the folder that was named has none.
    """
    named = folder_name or os.environ.get("MSCCLPP_SOURCE")
    spec = None if named else importlib.util.find_spec("mscclpp")
    package = Path(spec.origin).parent if spec is not None and spec.origin else None
    folder = Path(named) if named else package
    if folder is None:
        raise Unavailable(f"MSCCL++'s {_SCRIPT} not found; {_HOW_TO}")
    if folder.name == _SCRIPT and folder.is_file():
        return folder.resolve()
    for place in _PLACES:
        if (folder / place / _SCRIPT).is_file():
            return (folder / place / _SCRIPT).resolve()
    if named:
        raise InputError(f"{folder}: no {_SCRIPT} there or in its python/test; {_HOW_TO}")
    raise Unavailable(f"mscclpp is installed without {_SCRIPT}; {_HOW_TO}")


def run_executor_test(
    test: ExecutorTest, plan: Path, ranks: int, nbytes: int, *, in_place: bool, collective: str
) -> float:
    """Return the time in us of a call of the plan in a file: the slowest rank's mean.

    Its data were right: the script asserts that before it takes times. ``nbytes`` is of the whole
    array.

    Raises:
        InputError: the run failed, or the data were wrong.
        Stuck: it took too long, and was ended.
        Unavailable: it is not what it should be, or ran on other ranks.
    """
    datatype, element = DATATYPES[test.datatype]
    if nbytes % element:
        raise InputError(f"{nbytes} bytes: expected a multiple of {element}, of {datatype}")
    words = ["python3", str(test.script), "-path", str(plan), "--size", str(nbytes)]
    words += ["--dtype", datatype, "--n_iters", str(test.iterations)]
    words += ["--n_graph_iters", str(test.graphs), *(["--in_place"] if in_place else [])]
    handed = {
        name: value
        for name, value in os.environ.items()
        if name in _HANDED or (name.startswith("MSCCLPP_") and name != "MSCCLPP_SOURCE")
    }
    finished = run_to_end(test.launcher.command(words, handed), os.environ, test.limit_s)
    if finished.code is None:
        raise Stuck(f"{_SCRIPT}: not done after {test.limit_s:g} s, ended; {_said(finished)}")
    if finished.code != 0:
        wrong = "Assertion" in finished.err and "test_data" in finished.err
        what = "the data were wrong" if wrong else f"ended with {finished.code}"
        raise InputError(f"{_SCRIPT}: {what}; {_said(finished)}")
    size = nbytes // ranks if collective == "reduce-scatter" else nbytes
    return _time_us(finished.out[:_MOST_OUTPUT], ranks, size, datatype)


def _time_us(out: str, ranks: int, size: int, datatype: str) -> float:
    """Return the slowest rank's time, of a line for each rank."""
    times: dict[int, float] = {}
    for rank, us, nbytes, kind in _LINE.findall(out):
        if (int(nbytes), kind) != (size, datatype):
            raise Unavailable(
                f"{_SCRIPT}: ran {nbytes[:20]} bytes of {kind[:20]}, not {size} of {datatype}"
            )
        times[int(rank)] = _number(us)
    if sorted(times) != list(range(ranks)):
        raise Unavailable(
            f"{_SCRIPT}: {len(times)} ranks printed times, expected {ranks}; correct --launcher"
        )
    return max(times.values())


def _number(text: str) -> float:
    try:
        us = float(text)
    except ValueError:
        us = math.nan
    if not (math.isfinite(us) and us > 0):
        raise Unavailable(f"{_SCRIPT}: printed {text[:20]!r} as a time in us")
    return us


def _said(finished: Finished) -> str:
    """Return its last line, of errors first."""
    lines = [line.strip() for line in f"{finished.out}\n{finished.err}".splitlines()]
    said = [line for line in lines if line]
    return f"its last line: {said[-1][:200]}" if said else "it said nothing"
