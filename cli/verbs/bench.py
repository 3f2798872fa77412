"""``tuccl bench``: times a program, or a baseline's own choice, size by size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tuccl.cli.arguments import (
    add_json,
    add_knobs,
    add_nccl_version,
    add_root,
    add_sizes,
    collectives_of,
    knobs_of,
    one_collective_of,
    sizes_of,
    topology_of,
    warn_of_nccl,
)
from tuccl.cli.executors import add_executor, add_real, real_executor_of
from tuccl.cli.iterations import add_iterate, print_iterations, print_loads
from tuccl.cli.layouts import add_company, add_layout, groups_of, has_layout
from tuccl.cli.output import print_json, say
from tuccl.cli.recording import (
    add_recording,
    check_recording,
    is_recorded,
    use_row,
    use_text,
    write_trace,
)
from tuccl.cli.verbs.verify import read_bytes
from tuccl.errors import InputError
from tuccl.mscclpp import ExecutionPlan, is_plan
from tuccl.program import Knobs, Program, max_threads, parse_xml, replicate
from tuccl.program import verify as verify_program
from tuccl.runtime import (
    BASELINES,
    MSCCL_LOOP,
    NCCL_VERSION,
    SYMMETRIC_BASELINE,
    ConfiguredProgram,
    Executor,
    Statistics,
    StepLoop,
    Timing,
)
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.topology import Topology

if TYPE_CHECKING:
    from tuccl.runtime import TracedRun

EXAMPLE = "tuccl bench allgather.xml ndv2x2.json -s 1K:1G:x4 --on sim"

_ROUNDS = 5  # of measured runs; to the simulator they are one


class Timed(NamedTuple):
    """One size's result, and what ran."""

    nbytes: int
    timing: Timing
    chosen: str
    program: Program
    knobs: Knobs
    loop: StepLoop = MSCCL_LOOP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="F.xml T",
        help="program, or plan of MSCCL++, and topology; with --baseline only the topology",
    )
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help=f"time a default instead: {' '.join(BASELINES)}; on nccl-tests also"
        f" {SYMMETRIC_BASELINE}: buffers registered as windows (-R 2, NCCL 2.27 on)",
    )
    add_nccl_version(parser)
    parser.add_argument("-c", "--collective", metavar="COLL", help="the baseline's collective")
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default), rccl (legacy) or fork; mscclpp: run as an execution plan",
    )
    add_sizes(parser, required=False)
    add_iterate(parser)
    add_layout(parser, required=False, traces=False)
    add_company(parser)
    add_root(parser)
    add_knobs(parser)
    add_executor(parser)
    add_real(parser)
    add_recording(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Time and print; 1 where a checked result was wrong."""
    warn_of_nccl(nccl_version_of(args) and args.nccl_version)
    check_recording(args)
    if has_layout(args):
        return bench_groups(args)
    if args.concurrent or args.beside:
        raise InputError(
            "--concurrent, --beside: expected groups; add --layout, --mesh or --groups"
        )
    if args.iterate:
        return bench_iteration(args)
    if not args.size:
        raise InputError("-s: expected sizes, like -s 1K:1G:x4")
    with ExitStack() as stack:
        if args.baseline:
            executor, collective, results = bench_baseline(args, stack)
        else:
            executor, collective, results = bench_program(args, stack)
        timed = list(results)
    print_results(args, executor, collective, timed)
    wrong = [t for t in timed if t.timing.wrong]
    for t in wrong:
        say(f"{t.nbytes} bytes: {t.timing.wrong} wrong elements; {t.timing.first_wrong}")
    return 1 if wrong else 0


def bench_groups(args: argparse.Namespace) -> int:
    """Simulate the program, or a baseline's choice, on all groups of a kind at once, and print."""
    from tuccl.cli.group_times import GroupTimes, print_group_times
    from tuccl.groups.concurrent import Choose, nccl_choice
    from tuccl.runtime.executors.plan_sim import call_plan

    if args.on != "sim" or args.emulate or args.cross or args.iterate or is_recorded(args):
        raise InputError(
            "groups: their calls are simulated; leave out --on, --emulate, --cross, --iterate, "
            "--trace and --utilisation"
        )
    if args.machine or args.root or args.check or args.launch_mode != "mpi":
        raise InputError("groups: leave out --machine, --root, --check and --launch-mode")
    if not args.collective or not args.size:
        raise InputError("groups: expected -c KIND:COLLECTIVE and -s, as -c dp:allreduce -s 64M")
    if args.baseline not in (None, "nccl"):
        raise InputError(f"--baseline {args.baseline[:40]}: with groups only nccl")
    if args.baseline and len(args.files) != 1:
        raise InputError("expected one topology: bench --baseline nccl -c KIND:COLLECTIVE T")
    topology = topology_of(args.files[-1])
    times = GroupTimes(args, topology, groups_of(args, topology))
    if args.baseline:
        choosers: dict[str, Choose] = {"nccl": nccl_choice(args.nccl_version or NCCL_VERSION)}
    else:
        [collective, *others] = {collective for _, collective in times.calls}
        if others:
            raise InputError("-c: a program has one collective; name no other")
        check_files(args)
        if is_plan(read_bytes(args.files[0])):
            raise InputError(
                f"{args.files[0]}: is a plan; groups run a program's, with --dialect mscclpp"
            )
        as_plan = args.dialect == "mscclpp"
        program, knobs = checked_program(args, collective, plans=as_plan)
        if program.group_size:
            raise InputError(f"{args.files[0]}: is a call of all groups; time it without --layout")
        for kind, _ in times.calls:
            if any(len(group) != program.ngpus for group in kind.groups):
                raise InputError(
                    f"{args.files[0]}: is for {program.ngpus} GPUs; groups of kind {kind.name} "
                    f"have {len(kind.groups[0])}"
                )

        def chosen(part: Topology, _: str, nbytes: int) -> ConfiguredProgram:
            plan = call_plan(part, program, knobs, nbytes) if as_plan else None
            return ConfiguredProgram(program, knobs, name=describe(program), plan=plan)

        choosers = {"plan" if as_plan else "program": chosen}
    rows = times.rows(choosers)
    if args.json:
        print_json({"machine": topology.name, "simulated": rows})
    elif rows:
        print_group_times(rows)
    return 0 if rows else 1


def bench_iteration(args: argparse.Namespace) -> int:
    """Time a job's iterations with the program and print them; 0."""
    with ExitStack() as stack:
        executor, program, knobs = loaded_program(args, stack)
        print_iterations(args, executor, program, knobs)
    return 0


def print_results(
    args: argparse.Namespace, executor: Executor, collective: str, timed: list[Timed]
) -> None:
    """Print one row a size, in columns or as JSON, and the records."""
    from tuccl.eval import bandwidth_row, columns_text

    nccl = nccl_version_of(args)
    rows = [
        bandwidth_row(
            collective,
            t.program.group_size or executor.ranks,
            t.nbytes,
            t.timing,
            t.chosen,
            root=args.root,
            datatype=args.datatype,
            op=args.op,
        )
        for t in timed
    ]
    recorded = [traced_run(args, executor, t) for t in timed] if is_recorded(args) else []
    if args.trace:
        write_trace(Path(args.trace), recorded[0])
    if args.json:
        version = {"nccl_version": nccl} if nccl else {}
        use = {"utilisation": [use_row(run) for run in recorded]} if args.utilisation else {}
        spread = {"quantiles": [certainty(t.timing) for t in timed]} if args.cross else {}
        loads = {"cross": executor.loads} if executor.loads else {}
        report = {"on": args.on, "label": executor.label, **version, "rows": rows}
        print_json({**report, **spread, **loads, **use})
    else:
        print(f"# {executor.label}" + (f"; NCCL {nccl}'s own choice" if nccl else ""))
        print(columns_text(rows, [certainty(t.timing) for t in timed]))
        print_loads(executor)
        if args.utilisation:
            print("".join(f"\n{use_text(run)}\n" for run in recorded), end="")


def certainty(timing: Timing) -> dict[str, str]:
    """Return how many timed runs a measured time comes from, and how far its rounds lie apart.

    Of single runs and moments beside cross traffic, whose mean the time is: two quantiles.
    """
    quantiles = {}
    if len(timing.samples_us) >= max(timing.runs, 2) and len(set(timing.samples_us)) > 1:
        each = Statistics.of(timing.samples_us)
        quantiles = {"p50": f"{each.median_us:.1f}", "p99": f"{each.p99_us:.1f}"}
    if timing.runs == 0:
        return quantiles
    spread = (max(timing.samples_us) - min(timing.samples_us)) / median(timing.samples_us)
    return {"runs": str(timing.runs), "spread": f"{spread:.0%}", **quantiles}


def nccl_version_of(args: argparse.Namespace) -> str | None:
    """Return the version of NCCL whose choice is timed, or None where none is."""
    if args.baseline == "nccl" and args.on == "nccl-tests":
        if args.nccl_version:
            raise InputError(
                "--nccl-version: nccl-tests runs the NCCL it is linked with; leave it out"
            )
        return None
    if args.baseline == "nccl":
        return nccl_release(args.nccl_version or NCCL_VERSION)
    if args.nccl_version:
        raise InputError("--nccl-version: only --baseline nccl has one; leave it out")
    return None


def traced_run(args: argparse.Namespace, executor: Executor, timed: Timed) -> TracedRun:
    """Return the run behind ``timed`` again, recorded.

    Raises:
        InputError: it was not simulated.
    """
    passes = args.trace_passes or 0
    call = (timed.program, timed.knobs, timed.nbytes)
    return executor.trace(*call, passes=passes, loop=timed.loop)


def loaded_program(args: argparse.Namespace, stack: ExitStack) -> tuple[Executor, Program, Knobs]:
    """Return the executor, the verified program in its number of instances, its knobs."""
    check_files(args)
    executor = real_executor_of(args, topology_of(args.files[1]), stack)
    # MSCCL on GPUs always runs a protocol with its most threads.
    most_threads = executor.runs_nccl
    return executor, *checked_program(
        args, args.collective, most_threads=most_threads, plans=executor.runs_plans
    )


def check_files(args: argparse.Namespace) -> None:
    """Refuse what is no program and a topology.

    Raises:
        InputError: there are more files, or fewer.
    """
    if len(args.files) != 2:
        raise InputError(
            "expected a program and a topology: bench F.xml T, or bench --baseline nccl -c COLL T"
        )


def checked_program(
    args: argparse.Namespace,
    collective: str | None,
    *,
    most_threads: bool = False,
    plans: bool = False,
) -> tuple[Program, Knobs]:
    """Return the verified program in its number of instances, and its knobs.

    Raises:
        InputError: the file has no such program, or one that is wrong.
    """
    from tuccl.runtime.executors.plan_sim import plan_knobs
    from tuccl.runtime.table.programs import program_dialect

    program = parse_xml(read_bytes(args.files[0]), args.files[0])
    if collective and collectives_of(collective) != [program.collective]:
        raise InputError(f"{args.files[0]}: computes {program.collective}, not {collective[:40]}")
    report = verify_program(program, program_dialect(args.dialect), root=args.root)
    if not report.ok:
        first = report.errors[0]
        raise InputError(f"{first.message} [{first.code}]; see tuccl verify {args.files[0]}")
    threads = max_threads(program.protocol, args.dialect) if most_threads else 512
    knobs = knobs_of(args, program.protocol, threads=threads)
    if knobs.channels > 1 and not (plans and plan_knobs(knobs).group_size > 1):
        program = replicate(program, knobs.channels)
    return program, knobs


def bench_plan(args: argparse.Namespace, stack: ExitStack) -> tuple[Executor, str, Iterator[Timed]]:
    """Return the executor, the collective and the timings of a file with a plan of MSCCL++.

    Raises:
        InputError: the plan is not right, or a knob was given, of which the plan has its own.
    """
    from tuccl.runtime.baseline import collective_stub
    from tuccl.synth import PLAN_COLLECTIVES, Collective

    knobs = ("protocol", "channels", "threads", "buffer")
    if given := [f"--{name}" for name in knobs if getattr(args, name) is not None]:
        raise InputError(f"{', '.join(given)}: a plan has its own knobs; leave them out")
    plan = ExecutionPlan.parse(read_bytes(args.files[0]), args.files[0])
    report = plan.verify(root=args.root)
    if not report.ok:
        first = report.errors[0]
        raise InputError(f"{first.message} [{first.code}]; see tuccl verify {args.files[0]}")
    args.dialect = "mscclpp"
    executor = real_executor_of(args, topology_of(args.files[1]), stack)
    collective = next(name for name, word in PLAN_COLLECTIVES.items() if word == plan.collective)
    chosen = f"{'LL' if plan.packets else 'Simple'}/{len(plan.gpus[0].threadblocks)}tb"
    stub = collective_stub(Collective(collective, executor.ranks, args.root))
    timings = (
        Timed(n, executor.time_plan(plan, n, repeats=_ROUNDS), chosen, stub, Knobs())
        for n in sizes_of(args.size)
    )
    return executor, collective, timings


def bench_program(
    args: argparse.Namespace, stack: ExitStack
) -> tuple[Executor, str, Iterator[Timed]]:
    """Return the executor, the collective and the timings of a program file, or of a plan."""
    if len(args.files) == 2 and is_plan(read_bytes(args.files[0])):
        return bench_plan(args, stack)
    executor, program, knobs = loaded_program(args, stack)
    timings = (
        Timed(
            n,
            executor.time(program, knobs, n, root=args.root, repeats=_ROUNDS),
            describe(program),
            program,
            knobs,
        )
        for n in sizes_of(args.size)
    )
    return executor, program.collective, timings


def describe(program: Program) -> str:
    """Return what was run, in a word."""
    return f"{program.protocol}/{program.nchannels}ch"


def bench_baseline(
    args: argparse.Namespace, stack: ExitStack
) -> tuple[Executor, str, Iterator[Timed]]:
    """Return the executor, the collective and the timings of a baseline."""
    from tuccl.runtime import time_baseline

    if args.baseline not in (known := (*BASELINES, SYMMETRIC_BASELINE)):
        raise InputError(f"--baseline {args.baseline[:40]}: expected one of {', '.join(known)}")
    if len(args.files) != 1 or not args.collective:
        raise InputError("expected one topology and -c COLL: bench --baseline nccl -c allgather T")
    knobs = ("protocol", "channels", "threads", "buffer")
    if given := [f"--{name}" for name in knobs if getattr(args, name) is not None]:
        raise InputError(f"{', '.join(given)}: a baseline chooses its own knobs; leave them out")
    collective = one_collective_of(args.collective)
    topology = topology_of(args.files[0])
    executor = real_executor_of(args, topology, stack)
    version = nccl_version_of(args) or NCCL_VERSION
    return (
        executor,
        collective,
        (
            Timed(n, result.timing, result.name, result.program, result.knobs, result.loop)
            for n in sizes_of(args.size)
            for result in [
                time_baseline(
                    executor,
                    topology,
                    args.baseline,
                    collective,
                    n,
                    root=args.root,
                    repeats=_ROUNDS,
                    version=version,
                )
            ]
        ),
    )
