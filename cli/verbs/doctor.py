"""``tuccl doctor``: the parts that are installed, those that are missing, how to get them."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tuccl import __version__
from tuccl.cli.arguments import add_json
from tuccl.cli.log_report import judge_log
from tuccl.cli.output import print_json
from tuccl.cli.transports import print_transports
from tuccl.emulation.netns import check_privilege
from tuccl.errors import TucclError, Unavailable
from tuccl.runtime.executors import cuda_devices, find_mpis
from tuccl.runtime.executors.cuda import cuda_library
from tuccl.runtime.jobs import plugin_paths, window_notes
from tuccl.runtime.jobs.plugins import Kind
from tuccl.runtime.mscclpp import find_executor_test
from tuccl.runtime.nccl.versions import nccl_release, nccl_versions

EXAMPLE = "tuccl doctor --json"
EVERY_VERB = "every verb"


@dataclass(frozen=True, slots=True)
class Check:
    """A package, program or device: where it was found, and how to get it if it was not."""

    name: str
    found: str | None
    needed_for: str
    remedy: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="a job's output with NCCL_DEBUG=INFO (- for standard input): whether its ranks loaded "
        "and used the plugins; exit 1 where not",
    )
    parser.add_argument(
        "--transports",
        action="store_true",
        help="how ranks reach each other (shared memory, CMA, TCP, RDMA), the transport that NCCL, "
        "Open MPI, MPICH, Gloo and tuccl take there, what changes it; exit 1 where one has none",
    )
    parser.add_argument(
        "--ranks", type=int, default=2, metavar="N", help="with --transports: N ranks here (2)"
    )
    parser.add_argument(
        "--enter",
        action="append",
        metavar="WORDS",
        help="with --transports: what enters a rank's container or host, once a rank "
        '(--enter "docker exec c0" --enter "ssh node2")',
    )
    parser.add_argument(
        "--pids", metavar="LIST", help="with --transports: the ranks that run here as P,Q,..."
    )
    parser.add_argument(
        "--regime",
        metavar="NAME[,cpus=N]",
        help="with --transports: ranks in containers of this machine (bare, shared, container, "
        "cross, cross-ipc, vm), each with at most N processors (needs root)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the checks; 1 where something every user needs is missing."""
    if args.log is not None:
        return judge_log(args.log, as_json=args.json)
    if args.transports:
        return print_transports(args.ranks, args.enter, args.pids, args.regime, as_json=args.json)
    checks = [*packages(), *machine()]
    if args.json:
        print_json({"version": __version__, "checks": [asdict(c) for c in checks]})
    else:
        print("\n".join(lines_of(checks, shutil.get_terminal_size().columns)))
    return 0 if all(c.found for c in checks if c.needed_for == EVERY_VERB) else 1


def lines_of(checks: Sequence[Check], width: int) -> Iterator[str]:
    """Yield a line for each check, wrapped to ``width`` columns where no path is longer."""
    names = max(len(check.name) for check in checks)
    for check in checks:
        needed = check.needed_for == EVERY_VERB
        state = "found" if check.found else "missing" if needed else "optional"
        facts = [check.found or check.needed_for]
        facts += [f"for {check.needed_for}"] if check.found else [check.remedy]
        begin = f"{state:<8}  {check.name:<{names}}  "
        yield from textwrap.wrap(
            begin + "; ".join(fact for fact in facts if fact),
            max(width, len(begin) + 20),
            subsequent_indent=" " * len(begin),
            break_on_hyphens=False,
            break_long_words=False,
        )


def packages() -> list[Check]:
    """Return the checks of Python packages."""
    entries = [
        ("msgspec", EVERY_VERB, "pip install msgspec"),
        ("networkx", "sketch, synth, tune", "pip install networkx"),
        ("optuna", "tune", "pip install 'optuna>=5'"),
        ("rich", "progress of tune, compare", "pip install rich"),
        ("scipy", "calibrate", "pip install scipy"),
        (
            "ortools",
            "fewstep (often the fastest at small sizes) and taccl",
            "pip install 'ortools==9.15.*'",
        ),
        ("matplotlib", "compare --report", "pip install matplotlib"),
        ("torch", "the torch.distributed backend", "pip install torch"),
    ]
    here = Check("tuccl", f"{__version__}, Python {sys.version.split()[0]}", EVERY_VERB, "")
    return [here, *(Check(name, version_of(name), use, remedy) for name, use, remedy in entries)]


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def emulation() -> str | None:
    """Return that clusters can be emulated, or None."""
    try:
        check_privilege()
    except Unavailable:
        return None
    return "root, ip, tc, bridge"


def executor_test() -> str | None:
    """Return where MSCCL++'s executor_test.py is, with the package's version, or None."""
    try:
        script = find_executor_test(None)
    except TucclError:
        return None
    version = version_of("mscclpp")
    return f"{script}" + (f", mscclpp {version}" if version else "")


def interpreter() -> str | None:
    """Return where the interpreter for GPUs is, and what it finds, or None."""
    try:
        library = cuda_library()
    except Unavailable:
        return None
    try:
        return f"{library}, {', '.join(cuda_devices())}"
    except Unavailable:
        return f"{library}, no GPU"


def plugins() -> list[Check]:
    """Return the checks of what runtimes load."""
    there = plugin_paths()
    entries: list[tuple[Kind, str, str]] = [
        ("tuner", "NCCL tuner plugin", "tables of NCCL's own choices (NCCL_TUNER_PLUGIN)"),
        ("profiler", "NCCL profiler plugin", "timing kernels (NCCL_PROFILER_PLUGIN)"),
        ("scheduler", "MSCCL scheduler plugin", "tables of programs (MSCCL_SCHEDULER)"),
    ]
    remedy = "install tuccl again, they are built with it"
    return [
        Check(name, str(there[kind]) if kind in there else None, use, remedy)
        for kind, name, use in entries
    ]


def machine() -> list[Check]:
    """Return the checks of this machine: devices, launchers, and the runtime's settings."""
    gpus = sorted(str(p) for p in Path("/dev").glob("nvidia[0-9]*"))
    launchers = [tool for tool in ("mpirun", "srun", "torchrun") if shutil.which(tool)]
    algorithms = os.environ.get("MSCCL_ALGO_DIR") or os.environ.get("MSCCL_XML_FILES")
    return [
        *plugins(),
        Check(
            "NVIDIA GPUs",
            ", ".join(gpus) or None,
            "probing this machine",
            "describe one: probe --from or --profile",
        ),
        Check(
            "interpreter on GPUs",
            interpreter(),
            "--on cuda, run --cuda, communicators",
            "make cuda, where nvcc is",
        ),
        Check(
            "MPI",
            ", ".join(f"{m.family} {m.version} ({m.mpiexec})" for m in find_mpis()) or None,
            "bench --on mpi",
            "apt-get install openmpi-bin libopenmpi-dev, or mpich libmpich-dev",
        ),
        Check(
            "MSCCL++",
            executor_test(),
            "bench, tune --on mscclpp",
            "set MSCCLPP_SOURCE to its source tree, with python/test/executor_test.py",
        ),
        Check(
            "emulation",
            emulation(),
            "emulate, bench --emulate",
            "run as root, with iproute2 (apt-get install iproute2)",
        ),
        Check(
            "launchers",
            ", ".join(launchers) or None,
            "starting jobs over hosts",
            "apt-get install openmpi-bin",
        ),
        Check(
            "NCCL's model",
            f"{nccl_versions()[0]} to {nccl_release('newest')}, which stands for 2.32 too; without "
            "symmetric windows, copy engines, CollNet, PAT (docs/reference/nccl.md)",
            "the baseline nccl in the simulator",
            "",
        ),
        Check(
            "NCCL's windows",
            "; ".join(window_notes(os.environ)) or "off: the tuner chooses for every call",
            "calls that bypass the tuner",
            "",
        ),
        Check(
            "MSCCL programs",
            algorithms,
            "MSCCL's own scheduler",
            "tuccl run --table TABLE -- CMD sets them",
        ),
        Check(
            "re-ranking",
            "communicators and tuccl.torch (TUCCL_ADAPT=1), NCCL from 2.28. Tables stay as tuned "
            "where calls cannot be counted (MSCCL's scheduler) or not timed (MSCCL++)",
            "programs that take over when a link slows (docs/reference/plugins.md)",
            "",
        ),
    ]
