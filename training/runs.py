"""Replay and training on ranks: from a model and a machine to rows like the simulated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuccl.emulation import Emulation, emulated_cluster
from tuccl.emulation.cross_cluster import with_bytes_scaled
from tuccl.emulation.cross_traffic import played
from tuccl.errors import InputError
from tuccl.runtime.executors.cross_load import CarriedLoad
from tuccl.topology import CrossTraffic, Topology
from tuccl.training.bucket_schedule import Bucket, BucketSchedule
from tuccl.training.job import Job, MethodResult
from tuccl.training.launch import run_job
from tuccl.training.lossy import LOSSY, hook_and_ratio, is_lossy, lossy_method
from tuccl.training.methods import GRADIENT_METHODS, GradientMethod, Label
from tuccl.training.model import Model
from tuccl.training.rows import row_of
from tuccl.training.server_hosts import with_servers
from tuccl.training.simulation import TrainingRun
from tuccl.training.timeline import StepTimeline, gaps

RUN_METHODS = tuple(GRADIENT_METHODS)
"""Methods that ranks run."""
TORCH_DDP = GradientMethod(
    "torch-ddp", Label("BSP", "none", "A2A", "DDP buckets"), GRADIENT_METHODS["ddp"].schedule
)
"""PyTorch's own DistributedDataParallel, a row beside in training."""


@dataclass(frozen=True)
class MeasuredRun(TrainingRun):
    """A run on ranks: beside the row what the measured costs of all-reduces predicted for it.

    ``equal`` says whether the parameters after 20 steps are those of DDP: bitwise, rounding, no;
    ``loss`` is that of the first step's batches after ``trained_steps``.
    """

    predicted_us: float
    equal: str
    loss: float = 0.0
    trained_steps: int = 0


OnLoad = Callable[[CarriedLoad], None]
Progress = Callable[[Sequence[MeasuredRun]], None]
"""Called with the runs so far after each round."""


def replay_training(
    model: Model,
    topology: Topology,
    methods: Sequence[str],
    *,
    table: Path | None = None,
    scale: float | None = None,
    steps: int = 5,
    rounds: int = 3,
    servers: int = 0,
    colocated: bool = False,
    limit_s: float = 0.0,
    cross: CrossTraffic | None = None,
    on_load: OnLoad = lambda _: None,
    progress: Progress = lambda _: None,
) -> list[MeasuredRun]:
    """Return runs whose ranks compute by timers and move the gradients' bytes for real.

    Several hosts are emulated, with rates and bytes times ``scale`` and times as they are. All
    methods go in turns, each by the table's programs and by Gloo where there is a table;
    ``progress`` gets the runs so far after each round. Parameter servers are ``servers`` further
    hosts, or share the first of the workers' hosts; 0 share all of them. ``cross`` is played
    meanwhile, its flows' bytes scaled as well; ``on_load`` gets what it carried.

    Raises:
        InputError: a method cannot be run, or the topology not be emulated.
        Unavailable: PyTorch is missing, or the privilege to make namespaces.
        TucclError: a rank failed.
    """
    _check(methods, RUN_METHODS)
    further = 0 if colocated else servers
    with _cluster(topology, scale, further, cross, on_load) as emulation:
        job = Job(
            kind="replay",
            methods=tuple(methods),
            backends=_backends(table),
            ranks=topology.ranks,
            steps=steps,
            rounds=rounds,
            model=model,
            byte_scale=emulation.cluster.scale if emulation is not None else scale or 1.0,
            servers=servers,
            colocated=not further,
            limit_s=limit_s,
        )
        return _runs(job, topology, table, emulation, progress)


def train_module(
    factory: str,
    topology: Topology,
    methods: Sequence[str],
    *,
    batch: int | None = None,
    table: Path | None = None,
    scale: float | None = None,
    steps: int = 10,
    rounds: int = 3,
    servers: int = 0,
    colocated: bool = False,
    limit_s: float = 0.0,
    cross: CrossTraffic | None = None,
    on_load: OnLoad = lambda _: None,
    progress: Progress = lambda _: None,
) -> list[MeasuredRun]:
    """Return runs whose ranks compute the module of ``factory`` and reduce its gradients.

    ``factory`` is ``mlp`` or ``module:function`` (`tuccl.training.ranks.modules`), ``batch`` the
    samples of a step on one rank. Methods are also ``torch-ddp`` and lossy hooks (`LOSSY`), with
    a ratio behind ``@``. Each rank has the same share of the processors, also for the
    step alone that speed-ups are of. Servers and ``cross`` are as in `replay_training`.

    Raises:
        InputError: a method cannot be run, or the topology not be emulated.
        Unavailable: PyTorch is missing, or the privilege to make namespaces.
        TucclError: a rank failed, with its last words.
    """
    _check(methods, (*RUN_METHODS, TORCH_DDP.name, *LOSSY))
    further = 0 if colocated else servers
    with _cluster(topology, scale, further, cross, on_load) as emulation:
        job = Job(
            kind="train",
            methods=tuple(methods),
            backends=_backends(table),
            ranks=topology.ranks,
            steps=steps,
            rounds=rounds,
            factory=factory,
            batch=batch,
            servers=servers,
            colocated=not further,
            limit_s=limit_s,
        )
        return _runs(job, topology, table, emulation, progress)


def _runs(
    job: Job,
    topology: Topology,
    table: Path | None,
    emulation: Emulation | None,
    progress: Progress,
) -> list[MeasuredRun]:
    def made(results: list[MethodResult]) -> list[MeasuredRun]:
        return [_run(job.kind, each, topology) for each in results]

    return made(run_job(job, table, emulation, lambda some: progress(made(some))))


def _check(methods: Sequence[str], allowed: Sequence[str]) -> None:
    for name in methods:
        if is_lossy(name) and TORCH_DDP.name in allowed:
            hook_and_ratio(name)
        elif name not in allowed:
            raise InputError(f"method {name[:40]!r}: expected one of {', '.join(allowed)}")


def _backends(table: Path | None) -> tuple[str, ...]:
    return ("gloo",) if table is None else ("table", "gloo")


@contextmanager
def _cluster(
    topology: Topology,
    scale: float | None,
    servers: int,
    cross: CrossTraffic | None,
    on_load: OnLoad,
) -> Iterator[Emulation | None]:
    """The emulated hosts of ``topology``, and of servers beside them, and the traffic of others.

    None for one host, whose ranks run side by side, and servers with them.
    """
    if len(topology.hosts) == 1:
        if cross is not None:
            raise InputError("cross traffic: one host has no network; expected two hosts or more")
        yield None
        return
    hosts = with_servers(topology, servers)
    if cross is not None:
        cross = with_bytes_scaled(cross, emulated_cluster(hosts, scale).scale)
    with Emulation(hosts, scale, cross=cross) as emulation, played(emulation, on_load):
        yield emulation


def _run(kind: str, result: MethodResult, topology: Topology) -> MeasuredRun:
    method = GRADIENT_METHODS.get(result.method, TORCH_DDP)
    if is_lossy(result.method):
        method = lossy_method(result.method)
    row = row_of(
        kind,  # type: ignore[arg-type]
        result.model,
        method,
        result.backend,  # type: ignore[arg-type]
        topology.ranks,
        result.steps_us,
        result.exposed_us,
        result.calls,
        c2c=result.c2c,
        alone_us=result.alone_us,
    )
    step_us = max((span.end_us for span in result.spans), default=row.step_us)
    schedule = BucketSchedule(tuple(Bucket(0, 1, nbytes) for nbytes in result.buckets))
    timeline = StepTimeline(step_us, result.spans, gaps(result.spans, step_us))
    more = (result.predicted_us, result.equal, result.loss, result.trained_steps)
    return MeasuredRun(row, method, schedule, timeline, *more)
