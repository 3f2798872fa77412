"""``--on``: which executor runs the programs, and the options that shape it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl import emulation, runtime
from tuccl.cli.arguments import add_launch_mode
from tuccl.cli.emulation import (
    add_queue,
    add_scale,
    ended_by_signals,
    introduce,
    queue_of,
)
from tuccl.cli.output import warn
from tuccl.errors import InputError
from tuccl.runtime.executors import Scenario, ScenarioExecutor
from tuccl.runtime.executors.mpi_launch import usual_launch
from tuccl.runtime.libraries import LIBRARIES, start_libraries
from tuccl.runtime.probing import local_context
from tuccl.topology import load_cross_traffic, load_machine

if TYPE_CHECKING:
    from tuccl.runtime.executors import Mpi
    from tuccl.runtime.executors.mpi_launch import Launch
    from tuccl.runtime.mscclpp import MscclppExecutor
    from tuccl.topology import CrossTraffic, Topology

_EXECUTORS = ("sim",)
_REAL = ("mpi", "loopback", "cuda", "nccl-tests", "mscclpp")
TUNED_ON = ("mpi", "cuda", "nccl-tests", "mscclpp")
"""Real executors that can tune and compare."""
_USUAL = {"mpi": None, "check": False, "datatype": "float", "op": "sum"}
_JOB = {"launcher": None, "shared": None, "timeout": 600.0}
_NCCL_TESTS = {"nccl_tests": None, "tests_json": False}
_MSCCLPP = {"mscclpp": None}


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add ``--on``, ``--machine`` and ``--launch-mode``."""
    parser.add_argument(
        "--on",
        default="sim",
        metavar="EXECUTOR",
        help="sim: simulated (default); bench, tune, compare: mpi, nccl-tests, mscclpp (its "
        "executor_test.py), cuda (the GPUs here, by tuccl's own interpreter); bench: loopback",
    )
    parser.add_argument(
        "--machine",
        metavar="CLASS",
        help="machine class of the simulator: a name or a file (default: by GPU model); cuda: "
        "tuccl's own interpreter, whose constants are estimates",
    )
    add_launch_mode(parser, "simulated kernels are")


def executor_of(
    args: argparse.Namespace, topology: Topology, others: tuple[str, ...] = (), dialect: str = ""
) -> runtime.Executor:
    """Return the simulator of the arguments; ``others`` could be had instead.

    Of ``dialect`` mscclpp it is that of MSCCL++'s plans.

    Raises:
        InputError: there is no such executor.
    """
    if args.on not in _EXECUTORS:
        raise InputError(
            f"--on {args.on[:40]}: expected one of {', '.join([*_EXECUTORS, *others])}"
        )
    if args.machine == "cuda":
        if dialect == "mscclpp":
            raise InputError("--machine cuda: tuccl's interpreter runs no plans; leave it out")
        return runtime.InterpreterSimExecutor(topology, args.launch_mode)
    machine = load_machine(args.machine) if args.machine else None
    if dialect == "mscclpp":
        return runtime.PlanSimExecutor(topology, machine, args.launch_mode)
    return runtime.SimExecutor(topology, machine=machine, launch=args.launch_mode)


def add_real(parser: argparse.ArgumentParser, *, elements: bool = True) -> None:
    """Add the options of runs on real data: ``--mpi``, ``--check``, ``--emulate`` and their like.

    Without ``elements`` they are sums of floats.
    """
    parser.add_argument(
        "--mpi",
        metavar="MPI",
        help="with --on mpi: openmpi, mpich or the path of an mpiexec (default: the first found)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="with --on mpi, loopback, cuda: compare every element with the right result",
    )
    if elements:
        parser.add_argument(
            "--datatype", default="float", help="elements, by nccl-tests' names (default float)"
        )
        parser.add_argument("--op", default="sum", help="sum (default), prod, min, max or avg")
        parser.set_defaults(libraries=None)
    else:
        parser.set_defaults(datatype="float", op="sum")
        parser.add_argument(
            "--libraries",
            metavar="LIST",
            help="with --on mpi: the default is the fastest of these on the same ranks, of gloo, "
            "openmpi, mpich, each by its own choice",
        )
    parser.add_argument(
        "--emulate",
        action="store_true",
        help="with --on mpi: on network namespaces, one a host, with the links' rates (needs "
        "root); with --on sim: simulate those (--machine: a class fitted by calibrate)",
    )
    parser.add_argument(
        "--cross",
        metavar="FILE",
        help="beside the traffic of others that FILE (tuccl-cross/1) describes; tune, compare on "
        "sim: under scenarios, as in idle=2,FILE,OTHER=0.5 with weights",
    )
    parser.add_argument(
        "--regime",
        metavar="NAME[,cpus=N]",
        help="with --on mpi: ranks in containers of this machine, as shared, container, cross, "
        "cross-ipc, vm or bare have it, each with at most N processors (needs root)",
    )
    add_nccl_tests(parser)
    add_scale(parser)
    add_queue(parser, "with --emulate: ")
    parser.add_argument(
        "--latency",
        type=float,
        metavar="F",
        help="with --emulate: delay each message by F times its route's latency (default: none)",
    )


def add_nccl_tests(parser: argparse.ArgumentParser) -> None:
    """Add the options of runs of the user's nccl-tests."""
    parser.add_argument(
        "--nccl-tests",
        metavar="DIR",
        help="with --on nccl-tests: the folder of all_reduce_perf and the others (default: "
        "NCCL_TESTS)",
    )
    parser.add_argument(
        "--mscclpp",
        metavar="DIR",
        help="with --on mscclpp: MSCCL++'s source tree, with python/test/executor_test.py "
        "(default: MSCCLPP_SOURCE, or where mscclpp is installed)",
    )
    parser.add_argument(
        "--launcher",
        metavar="CMD",
        help="with --on nccl-tests, mscclpp: the command that starts a process for each GPU, "
        "without a shell, like 'mpirun -np 16 -H a,b' or 'srun -N 2' (default: mpirun -np RANKS)",
    )
    parser.add_argument(
        "--shared",
        metavar="DIR",
        help="with --on nccl-tests, mscclpp: a folder that all hosts share (default: the user's "
        "cache)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_JOB["timeout"],
        metavar="S",
        help="with --on nccl-tests, mscclpp: seconds after which a run is ended (default 600)",
    )
    parser.add_argument(
        "--tests-json",
        action="store_true",
        help="with --on nccl-tests: read its JSON (-J, from 2.17 on), which has more digits",
    )


def one_run() -> runtime.Effort:
    """Return the effort of one run a time: comparisons take many, in turns."""
    return runtime.Effort(warmup=1, runs=1)


def real_executor_of(
    args: argparse.Namespace,
    topology: Topology,
    stack: ExitStack,
    *,
    effort: runtime.Effort | None = None,
    real: tuple[str, ...] = _REAL,
    dialect: str = "",
) -> runtime.Executor:
    """Return the executor of the arguments, real or simulated; ``stack`` ends its processes.

    ``effort`` says how often a program runs for one time; ``real`` which executors may be real;
    ``dialect`` which runtime loads the programs, where no argument says so.

    Raises:
        InputError: there is no such executor, or it does not take one of the options.
        Unavailable: there is no such MPI.
    """
    dialect = dialect or getattr(args, "dialect", "")
    network = args.emulate or args.scale is not None or args.latency is not None or args.queue
    if network and args.on not in ("mpi", "sim"):
        raise InputError(
            f"--emulate, --scale, --latency, --queue: --on {args.on[:40]} uses no network; use "
            f"--on mpi"
        )
    if network and not args.emulate:
        raise InputError("--scale, --latency, --queue: shape the network of --emulate; add it")
    if args.regime and (args.on != "mpi" or args.emulate):
        raise InputError("--regime: only --on mpi without --emulate starts ranks in containers")
    if args.libraries and args.on != "mpi":
        raise InputError("--libraries: only --on mpi has ranks for them")
    if args.libraries and (args.latency or args.cross):
        raise InputError("--libraries: --latency and --cross do not reach their messages")
    _check_jobs(args)
    if args.on not in real:
        options = _options_given(args, _USUAL)
        if options and args.on in _EXECUTORS:
            raise InputError(f"{', '.join(options)}: --on {args.on} moves no data; use --on mpi")
        if args.on == "sim" and args.emulate and "loopback" not in real:
            raise InputError("--emulate: only bench simulates it; use --on mpi")
        if args.cross:
            if "loopback" not in real:  # tune
                return cross_executor(args, topology, dialect)
            return cross_simulator(args, topology, load_cross_traffic(args.cross), dialect)
        if args.on == "sim" and args.emulate:
            return emulated_simulator(args, topology)
        return executor_of(args, topology, real, dialect)
    if args.cross and not (args.on == "mpi" and args.emulate):
        raise InputError(
            f"--cross: --on {args.on[:40]} shares its links with nobody; use --on sim, or --on mpi "
            "--emulate"
        )
    if args.on == "mscclpp":
        return mscclpp_executor(args, topology, stack)
    if dialect == "mscclpp":
        raise InputError(
            f"--dialect mscclpp: --on {args.on[:40]} runs no plans; use --on sim or mscclpp"
        )
    if args.on == "nccl-tests":
        return nccl_tests_executor(args, topology, stack, dialect)
    operands = runtime.Operands(args.datatype, args.op, args.check)
    if args.on == "mpi":
        return mpi_executor(args, topology, operands, stack, effort)
    if args.mpi:
        raise InputError(f"--mpi: --on {args.on} uses none; use --on mpi")
    if args.on == "cuda":
        return stack.enter_context(runtime.CudaExecutor(topology.ranks, operands, effort))
    return runtime.LoopbackExecutor(topology.ranks, operands)


def mpi_executor(
    args: argparse.Namespace,
    topology: Topology,
    operands: runtime.Operands,
    stack: ExitStack,
    effort: runtime.Effort | None,
) -> runtime.MpiExecutor:
    """Return an executor over MPI: here, in cells or on an emulated cluster; ``stack`` ends it.

    Raises:
        InputError: the topology or an option cannot be.
        Unavailable: there is no such MPI, or this process may not make namespaces.
    """
    if args.emulate:
        emulated = emulated_executor(args, topology, operands, stack, effort)
        return with_libraries(args, emulated, emulated.launch, stack)
    mpi = runtime.find_mpi(args.mpi)
    if args.regime:
        stack.enter_context(ended_by_signals())
        cells = stack.enter_context(emulation.Cells(args.regime, topology.ranks))
        in_cells = emulation.CellsExecutor(cells, topology, mpi, operands=operands, effort=effort)
        return with_libraries(args, stack.enter_context(in_cells), cells.launch, stack)
    context = local_context(topology.ranks)
    executor = runtime.MpiExecutor(
        topology.ranks, mpi, operands=operands, effort=effort, context=context
    )
    return with_libraries(args, stack.enter_context(executor), usual_launch, stack)


def with_libraries(
    args: argparse.Namespace,
    executor: runtime.MpiExecutor,
    launch: Callable[[Mpi], Launch],
    stack: ExitStack,
) -> runtime.MpiExecutor:
    """Return ``executor`` with the libraries of --libraries beside it; ``stack`` ends them.

    Raises:
        InputError: there is no such library.
        Unavailable: none is installed.
    """
    if not args.libraries:
        return executor
    names = tuple(dict.fromkeys(args.libraries.split(",")))
    if unknown := [name for name in names if name not in LIBRARIES]:
        raise InputError(
            f"--libraries {unknown[0][:40]}: expected one or some of {', '.join(LIBRARIES)}"
        )
    found, missing = start_libraries(executor, launch, names, stack)
    warn(missing)
    executor.set_libraries({library.name: library.time for library in found})
    return executor


def emulated_simulator(
    args: argparse.Namespace, topology: Topology, cross: CrossTraffic | None = None
) -> emulation.EmulatedSimExecutor:
    """Return what simulates --emulate, beside ``cross``.

    Raises:
        InputError: the topology cannot be emulated.
    """
    machine = load_machine(args.machine) if args.machine else None
    scale, latency = args.scale, args.latency or 0.0
    return emulation.EmulatedSimExecutor(topology, scale, latency, machine, cross=cross)


def cross_executor(
    args: argparse.Namespace, topology: Topology, dialect: str = ""
) -> ScenarioExecutor:
    """Return the simulator under the scenarios of --cross.

    Raises:
        InputError: a file or a weight cannot be, or the simulator has no network.
    """
    scenarios = []
    for part in args.cross.split(","):
        file, _, weight = part.partition("=")
        cross = None if file == "idle" else load_cross_traffic(file)
        executor = cross_simulator(args, topology, cross, dialect)
        try:
            scenarios.append(Scenario(Path(file).stem, executor, float(weight or 1)))
        except ValueError:
            raise InputError(f"--cross {part[:60]}: expected FILE=WEIGHT") from None
    return ScenarioExecutor(scenarios, getattr(args, "objective", "mean"))


def cross_simulator(
    args: argparse.Namespace, topology: Topology, cross: CrossTraffic | None, dialect: str
) -> runtime.SimExecutor:
    """Return the simulator beside ``cross``.

    Raises:
        InputError: it has no network that others could share.
    """
    if args.on != "sim" or args.machine == "cuda" or dialect == "mscclpp":
        raise InputError("--cross: --on sim of programs alone shares links with others")
    if args.emulate:
        return emulated_simulator(args, topology, cross)
    machine = load_machine(args.machine) if args.machine else None
    return runtime.SimExecutor(topology, machine, args.launch_mode, cross=cross)


def _options_given(args: argparse.Namespace, usual: Mapping[str, object]) -> list[str]:
    """The options that were given something else than usual."""
    names = [name for name, value in usual.items() if getattr(args, name) != value]
    return [f"--{name.replace('_', '-')}" for name in names]


def _check_jobs(args: argparse.Namespace) -> None:
    """Refuse options of jobs that the executor does not start."""
    own: dict[str, dict[str, object]] = {
        "nccl-tests": {**_JOB, **_NCCL_TESTS},
        "mscclpp": {**_JOB, **_MSCCLPP},
    }
    for on, usual in own.items():
        taken = own.get(args.on, {})
        others = {name: value for name, value in usual.items() if name not in taken}
        if args.on != on and (options := _options_given(args, others)):
            raise InputError(
                f"{', '.join(options)}: --on {args.on[:40]} starts none; use --on {on}"
            )


def mscclpp_executor(
    args: argparse.Namespace, topology: Topology, stack: ExitStack
) -> MscclppExecutor:
    """Return an executor that starts MSCCL++'s executor_test.py; ``stack`` ends it.

    Raises:
        InputError: the launcher or an option cannot be.
        Unavailable: there is no executor_test.py.
    """
    from tuccl.runtime.jobs import job_launcher
    from tuccl.runtime.jobs.launch import cache_folder
    from tuccl.runtime.mscclpp import ExecutorTest, MscclppExecutor, find_executor_test

    if args.mpi:
        raise InputError("--mpi: --on mscclpp is started by --launcher")
    if args.op != "sum":
        raise InputError(f"--op {args.op[:20]}: plans of MSCCL++ only add up; leave it out")
    if not args.timeout > 0:
        raise InputError(f"--timeout {args.timeout:g}: expected more than 0 seconds")
    test = ExecutorTest(
        find_executor_test(args.mscclpp),
        job_launcher(args.launcher, topology.ranks),
        Path(args.shared).resolve() if args.shared else cache_folder() / "mscclpp",
        datatype=args.datatype,
        limit_s=args.timeout,
    )
    stack.enter_context(ended_by_signals())
    hosts = len(topology.hosts)
    return stack.enter_context(MscclppExecutor(test, topology.ranks, hosts, topology.name))


def nccl_tests_executor(
    args: argparse.Namespace, topology: Topology, stack: ExitStack, dialect: str
) -> runtime.NcclTestsExecutor:
    """Return an executor that starts the user's nccl-tests; ``stack`` ends it.

    Raises:
        InputError: the launcher or an option cannot be.
        Unavailable: there is no nccl-tests.
    """
    from tuccl.program import DIALECTS
    from tuccl.runtime.jobs import job_launcher
    from tuccl.runtime.jobs.launch import cache_folder
    from tuccl.runtime.nccl_tests import NcclTests, find_nccl_tests

    if args.mpi:
        raise InputError("--mpi: --on nccl-tests is started by --launcher")
    if not args.timeout > 0:
        raise InputError(f"--timeout {args.timeout:g}: expected more than 0 seconds")
    tests = NcclTests(
        find_nccl_tests(args.nccl_tests),
        job_launcher(args.launcher, topology.ranks),
        Path(args.shared).resolve() if args.shared else cache_folder() / "nccl-tests",
        datatype=args.datatype,
        op=args.op,
        limit_s=args.timeout,
        json=args.tests_json,
    )
    stack.enter_context(ended_by_signals())
    runs = dialect if dialect in DIALECTS else "executor"
    executor = runtime.NcclTestsExecutor(tests, topology.ranks, topology.name, runs)
    stack.callback(lambda: warn(executor.notes))
    return stack.enter_context(executor)


def emulated_executor(
    args: argparse.Namespace,
    topology: Topology,
    operands: runtime.Operands,
    stack: ExitStack,
    effort: runtime.Effort | None = None,
) -> emulation.EmulatedExecutor:
    """Return an executor on an emulated cluster; ``stack`` ends it and takes the cluster down.

    Raises:
        InputError: the topology cannot be emulated.
        Unavailable: there is no such MPI, or this process may not make namespaces.
    """
    mpi = runtime.find_mpi(args.mpi)
    stack.enter_context(ended_by_signals())
    cross = load_cross_traffic(args.cross) if args.cross else None
    cluster = emulation.Emulation(
        topology, args.scale, args.latency or 0.0, cross=cross, queue_bytes=queue_of(args)
    )
    introduce(stack.enter_context(cluster))
    kind = emulation.CrossExecutor if cross else emulation.EmulatedExecutor
    executor = kind(cluster, mpi, operands=operands, effort=effort)
    return stack.enter_context(executor)
