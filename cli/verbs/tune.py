"""``tuccl tune``: searches sketch, method and knobs together and writes the table."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.arguments import (
    COLLECTIVES,
    add_any_order,
    add_collective,
    add_json,
    add_nccl_version,
    add_prefer,
    add_root,
    add_sizes,
    collectives_of,
    sizes_of,
    topology_of,
)
from tuccl.cli.executors import (
    TUNED_ON,
    add_executor,
    add_real,
    one_run,
    real_executor_of,
)
from tuccl.cli.layouts import (
    add_company,
    add_layout,
    beside_of,
    calls_of,
    groups_of,
    has_layout,
    ranks_text,
)
from tuccl.cli.output import print_json, warn, warn_new
from tuccl.cli.progress import Progress
from tuccl.cli.renamed import search_name
from tuccl.cli.tune_output import print_result, tuned_columns
from tuccl.errors import InputError
from tuccl.runtime import (
    NCCL_VERSION,
    Executor,
    load_table,
)
from tuccl.runtime.nccl.versions import nccl_caveats
from tuccl.runtime.table import hangs_between_hosts
from tuccl.synth import SOLVERS
from tuccl.topology import Topology
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.runtime.workload import Workload
    from tuccl.tuning import TrainingJob, TuneOptions

_FEW_RANKS = 64  # that are searched without a time limit
_LIMIT_S = 3600.0
EXAMPLE = "tuccl tune ndv2x2.json -c allgather,allreduce -s 1K:1G:x4 --on sim -o table/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_collective(parser, many=True, required=False)
    add_sizes(parser, required=False)
    parser.add_argument(
        "--workload",
        metavar="FILE",
        help="tune the calls of a job; -c and -s then only restrict them: a list of "
        "calls, a PyTorch execution trace, nccl-tests' output, an NCCL log or an AICB workload",
    )
    add_root(parser)
    add_executor(parser)
    add_real(parser, elements=False)
    add_layout(parser, required=False)
    add_company(parser, none=True)
    add_search(parser)
    parser.add_argument(
        "--objective",
        default="mean",
        help="with --cross: the scenarios' mean log time (default), tail (the slowest tenth) or "
        "regret (the worst loss against a scenario's best)",
    )
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default), rccl (legacy) or fork; mscclpp: as its execution plans; "
        "nccl, on sim or nccl-tests: no programs, NCCL's own algorithms for the tuner plugin",
    )
    add_prefer(parser, "default speed; the runtime takes the first candidate")
    add_any_order(parser)
    add_nccl_version(parser)
    add_workers(parser)
    parser.add_argument("--resume", action="store_true", help="continue the study of TABLE")
    parser.add_argument(
        "--plans",
        metavar="DIR",
        help="with --dialect mscclpp: write the table's plans there too, as export does",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="TABLE", help="folder of the table"
    )
    add_json(parser)


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the search: which one, how long, and what it begins with."""
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--search",
        type=search_name,
        default="descent",
        help="descent (default); mraco, tpe: by a Parzen estimator; rl, with --policy",
    )
    group.add_argument(
        "--budget",
        type=int,
        default=100,
        metavar="N",
        help="evaluations at full effort per collective and size (default 100)",
    )
    group.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="seconds for all searches together, shared by collectives and sizes (default: none; "
        "of more than 64 simulated GPUs 3600)",
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="same seed, same table (default 0)"
    )
    group.add_argument(
        "--method",
        metavar="M,...",
        help="make programs by these methods alone (default: all but solvers); taccl runs a solver "
        "for up to 10 s on the sketches where greedy's programs are fastest",
    )
    group.add_argument(
        "--sketch",
        metavar="F,...",
        help="make programs on these sketches alone, of tuccl's or TACCL's format (default: "
        "derived from T)",
    )
    group.add_argument(
        "--policy",
        metavar="FILE",
        help="a policy that `tuccl policy` trained on other machines: --search rl follows it, "
        "other searches begin with its points",
    )
    group.add_argument(
        "--intensity",
        type=float,
        metavar="I",
        help="operations a sample and parameter of the model (ResNet-50 470, BERT 249); with "
        "--batch, reports calls that only less data makes faster",
    )
    group.add_argument(
        "--batch", type=int, metavar="M", help="samples a rank and step (see --intensity)"
    )
    group.add_argument(
        "--part",
        type=int,
        metavar="HOSTS",
        help="search on so many hosts of a simulated cluster first, with half of the budget, and "
        "on all of it only what is best there, of n > 128 GPUs with 128/n of it; 0: on all of it "
        "alone, each size by itself (default: 4 hosts of more than 64 GPUs)",
    )
    group.add_argument(
        "--warm-start",
        metavar="TABLE",
        help="begin with the points of another table: of other sizes, or of a similar machine",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of processes that search together."""
    group = parser.add_argument_group("many processes")
    group.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that search at the same time, where times are simulated (default 1)",
    )
    group.add_argument(
        "--storage",
        metavar="URL",
        help="an Optuna storage, like postgresql://host/db: processes that are started with "
        "the same URL share the work, under any launcher",
    )
    group.add_argument(
        "--dask", metavar="URL", help="a Dask scheduler (tcp://host:8786) whose workers search"
    )
    group.add_argument(
        "--evaluation-timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds after which a worker's evaluation counts as hung (default 600)",
    )


def run(args: argparse.Namespace) -> int:
    """Tune and print what was found."""
    from tuccl.tuning import aligned_size, study_folder, tune, tune_workload

    if args.on == "mscclpp":
        if args.dialect not in ("executor", "mscclpp"):
            raise InputError(f"--dialect {args.dialect[:20]}: --on mscclpp runs plans of its own")
        args.dialect = "mscclpp"
    if args.plans and args.dialect != "mscclpp":
        raise InputError("--plans: only --dialect mscclpp has plans; add it")
    if args.objective != "mean" and not args.cross:
        raise InputError("--objective: expected --cross, whose scenarios it weighs")
    if args.budget < 1:
        raise InputError(f"--budget {args.budget}: expected at least 1 evaluation")
    if args.workload is None and (args.collective is None or args.size is None):
        raise InputError("expected -c and -s, or --workload FILE")
    topology = topology_of(args.topology)
    if has_layout(args):
        return run_job(args, topology)
    if args.concurrent or args.beside:
        raise InputError(
            "--concurrent, --beside: expected groups; add --layout, --mesh or --groups"
        )
    sizes = sizes_of(args.size) if args.size else []
    collectives = collectives_of(args.collective or ",".join(COLLECTIVES))
    workload = workload_of(args, topology, collectives, sizes)
    with ExitStack() as stack:
        update = stack.enter_context(Progress()).update  # an executor of many ranks takes seconds
        executor = real_executor_of(args, topology, stack, effort=one_run(), real=TUNED_ON)
        if args.regime and executor.topology is not None:
            topology = executor.topology  # whose hosts are the cells
        warn(warn_unused(args, executor))
        out, options = Path(args.output), options_of(args, topology)
        if args.resume and not args.storage:
            warn_new(study_folder(out))
        if workload is not None:
            collectives = list(dict.fromkeys(call.collective for call in workload.calls))
        elif args.dialect != "nccl":
            warn(uneven(sizes, executor.ranks, aligned_size))
        if args.dialect != "nccl":
            warn([*few_evaluations(args.budget, options.methods), *without_solver()])
            warn(without_simple(collectives, executor, len(topology.hosts)))
            warn(executor.pinned_knobs())
        how = (lambda _: executor, options)
        if workload is not None:
            table = tune_workload(topology, workload, *how, path=out, progress=update)
        else:
            table = tune(topology, collectives, sizes, *how, path=out, progress=update)
    if args.plans:
        warn(table.export("mscclpp", args.plans).notes)
    return print_result(args, table.result, limited=options.seconds is not None)


def run_job(args: argparse.Namespace, topology: Topology) -> int:
    """Tune the tables of a job's groups and print what was found."""
    from tuccl.groups.export import export_job
    from tuccl.tuning.job_search import tune_job

    if args.on != "sim" or args.emulate or args.cross or args.regime or args.workload:
        raise InputError(
            "groups: their calls are simulated; leave out --on, --emulate, --cross, --regime and "
            "--workload"
        )
    if args.machine or args.root or args.launch_mode != "mpi":
        raise InputError("groups: leave out --machine, --launch-mode and --root")
    job = groups_of(args, topology)
    calls = [(kind.name, collective) for kind, collective in calls_of(args.collective, job)]
    beside = beside_of(args.beside, job)
    with Progress() as progress:
        tables, tuned = tune_job(
            topology,
            job,
            calls,
            sizes_of(args.size),
            options_of(args, topology),
            path=args.output,
            concurrent=args.concurrent or "kind",
            beside=beside,
            progress=progress.update,
        )
    if args.plans:
        warn(export_job(tables, "mscclpp", args.plans).notes)
    if args.json:
        print_json([table.result for table in tuned])
        return 0
    for table in tuned:
        entry = next(e for e in tables.entries if tables.place(e) == table.folder)
        members = ranks_text(tables.members(entry))
        print(f"{entry.kind}: {len(entry.groups)} groups alike, the first of ranks {members}")
        print(f"# {table.result.label}, against {table.result.baseline}")
        print(tuned_columns(table.result))
    evaluations, seconds = (
        sum(getattr(table.result, name) for table in tuned) for name in ("evaluations", "seconds")
    )
    print(
        f"{args.output}: {len(tuned)} tables tuned, {evaluations} evaluations in {seconds:.1f} s; "
        f"`tuccl compare {args.output}` has all groups of a kind at once"
    )
    return 0


def workload_of(
    args: argparse.Namespace, topology: Topology, collectives: list[str], sizes: list[int]
) -> Workload | None:
    """Return the job's calls of --workload that -c and -s leave, and warn of the others.

    Raises:
        InputError: the file is no workload, or nothing is left of it.
    """
    from tuccl.runtime.workload import read_workload

    if args.workload is None:
        return None
    workload = read_workload(args.workload, topology.ranks)
    if args.collective or args.size:
        workload = workload.within(collectives, *[sizes] if sizes else [])
    warn([left_out] if (left_out := workload.left_out_text()) else [])
    return workload


def options_of(args: argparse.Namespace, topology: Topology) -> TuneOptions:
    """Return the options of the verb's arguments for ``topology``."""
    from tuccl.sketches import load_sketch
    from tuccl.tuning import TuneOptions, load_policy

    many = topology.ranks > _FEW_RANKS and args.dialect != "nccl"
    limit = _LIMIT_S if args.on == "sim" and many else None
    return TuneOptions(
        search=args.search,
        budget=args.budget,
        seed=args.seed,
        root=args.root,
        resume=args.resume,
        dialect=args.dialect,
        storage=args.storage,
        nccl_version=args.nccl_version or NCCL_VERSION,
        seconds=limit if args.time_limit is None else args.time_limit,
        default_limit=args.time_limit is None,
        any_order=args.any_order,
        prefer=args.prefer or "speed",
        workers=args.workers,
        scheduler=args.dask,
        evaluation_limit=args.evaluation_timeout,
        methods=tuple(dict.fromkeys(args.method.split(","))) if args.method else (),
        sketches=tuple(load_sketch(f, topology) for f in (args.sketch or "").split(",") if f),
        policy=load_policy(Path(args.policy)) if args.policy else None,
        job=job_of(args),
        start=load_table(Path(args.warm_start)).lookup if args.warm_start else None,
        part=args.part,
    )


def job_of(args: argparse.Namespace) -> TrainingJob | None:
    """Return the training job that the arguments describe, None without one.

    Raises:
        InputError: half of it is given, or a number is not positive.
    """
    from tuccl.tuning import TrainingJob

    if args.intensity is None and args.batch is None:
        return None
    if args.intensity is None or args.batch is None:
        raise InputError("--intensity and --batch: give both or none")
    if not (0 < args.intensity <= 1e12 and 0 < args.batch <= 1 << 20):
        raise InputError("--intensity, --batch: expected numbers above 0")
    return TrainingJob(intensity=args.intensity, local_batch=args.batch)


def few_evaluations(budget: int, methods: Sequence[str] = ()) -> Iterator[str]:
    """Yield a warning if the budget is too small to try every method."""
    from tuccl.tuning.workload_tasks import FEWEST_EVALUATIONS

    # Quick programs choose the sketches that a solver runs on.
    least = FEWEST_EVALUATIONS * (2 if SOLVERS & set(methods) else 1)
    if budget < least:
        yield (
            f"--budget {budget}: too few to try every method, so that the default stays in most "
            f"places; {least} give each method a point, 100 (the default) are enough"
        )


def without_solver() -> Iterator[str]:
    """Yield a warning if a method cannot run for want of its solver."""
    if importlib.util.find_spec("ortools") is None:
        yield (
            "OR-Tools is not installed: fewstep, often the fastest at small sizes, is not tried; "
            "pip install 'ortools==9.15.*'"
        )


def without_simple(collectives: list[str], executor: Executor, hosts: int) -> Iterator[str]:
    """Yield for which collectives Simple is not tried, and why."""
    names = [name for name in collectives if hangs_between_hosts(name, "Simple", hosts)]
    if names and executor.default_baseline == "nccl":
        yield (
            f"{', '.join(names)}: Simple is left out, MSCCL's runtimes hang in it between hosts "
            "(docs/reference/msccl.md)"
        )


def warn_unused(args: argparse.Namespace, executor: Executor) -> Iterator[str]:
    """Yield a warning if NCCL is named where it cannot run."""
    if args.nccl_version and executor.default_baseline != "nccl":
        yield (
            "--nccl-version: NCCL runs on GPUs only; "
            f"the default here is {executor.default_baseline}"
        )
    elif args.nccl_version:
        yield from nccl_caveats(args.nccl_version)


def uneven(sizes: list[int], ranks: int, aligned_size: Callable[[int, int], int]) -> Iterator[str]:
    """Yield a warning if some sizes are tuned at another one nearby."""
    moved = [(nbytes, aligned_size(nbytes, ranks)) for nbytes in sizes]
    if changed := [f"{format_bytes(a)} at {b}" for a, b in moved if a != b]:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield f"tuned at sizes that {ranks} ranks can share: {', '.join(changed[:3])}{more}"
