"""Fixtures every room's tests share."""

from __future__ import annotations

import importlib.util
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tuccl.cli import main
from tuccl.program import Program

# A busy machine is no fault, and equal trees shall fail or pass alike; `make soak` explores.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT)
settings.load_profile("patient")

# A shell that starts the tests in its background has them, and all they start, ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public measurements, topologies and programs, or skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the public data sets (shared/data beside the checkout) are not here")
    return folder


@pytest.fixture(scope="session")
def handmade() -> ModuleType:
    """Return tests/programs.py: small correct programs made by hand."""
    return _module("programs")


@pytest.fixture(scope="session")
def matrix() -> ModuleType:
    """Return tests/matrix.py: every method's programs on machines of 2 to 16 ranks."""
    return _module("matrix")


@pytest.fixture(scope="session")
def covering() -> ModuleType:
    """Return tests/covering.py: few choices that try every pair of values."""
    return _module("covering")


@pytest.fixture(scope="session")
def numbers() -> ModuleType:
    """Return tests/reference.py: what collectives must leave on every rank, by numpy alone."""
    return _module("reference")


@pytest.fixture(scope="session")
def gpu_emulation() -> ModuleType:
    """Return tests/gpu_emulation.py: the interpreter of GPUs, played on this CPU."""
    return _module("gpu_emulation")


class Answer(NamedTuple):
    """What a verb did."""

    code: int
    out: str
    err: str


Tuccl = Callable[..., Answer]


@pytest.fixture
def tuccl(capfd: pytest.CaptureFixture[str]) -> Tuccl:
    """Return a function that runs a verb in this process."""

    def run(*args: object) -> Answer:
        capfd.readouterr()
        try:
            code = main([str(a) for a in args])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Return a function that adds to what the summary says of programs and runs."""

    def count(**numbers: int) -> None:
        for name, number in numbers.items():
            record_property(f"tally {name}", number)

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests tallied, such as how many programs ran."""
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, number in report.user_properties if report.when == "call" else ():
            if name.startswith("tally "):
                totals[name.removeprefix("tally ")] += int(str(number))
    if totals:
        told = ", ".join(f"{number:,} {name}" for name, number in totals.items())
        terminalreporter.write_line(f"on real data: {told}")


@pytest.fixture(scope="session")
def mutate() -> Callable[[Program, random.Random], tuple[Program, str]]:
    """Return tests/mutations.py's `mutate`: breaks a correct program, and says how."""
    breaks: Callable[[Program, random.Random], tuple[Program, str]] = _module("mutations").mutate
    return breaks


def _module(name: str) -> ModuleType:
    """Load a module of this folder, which is not on the path."""
    full = f"tuccl_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]
