"""A job of ranks that replay or train: its description for them, and their results."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuccl.training.model import Model
from tuccl.training.timeline import Span

JOB_FILE, RESULTS_FILE = "job.json", "results.json"
CONTROL = "gloo"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job for each rank to read: ``methods`` in turns, ``rounds`` times, by each backend.

    Attributes:
        kind: ``replay``: timers compute ``model``; ``train``: the module of ``factory`` computes.
        byte_scale: Bytes moved over bytes of the schedule, in replay.
        factory: ``module:function`` (`tuccl.training.ranks.modules`).
        batch: Samples per step and rank.
        backends: ``table`` and ``gloo``, or ``gloo`` alone where there is no table.
        steps: Timed steps per turn, after one warm-up step.
        servers: Parameter servers; 0: as many as there are ranks.
        colocated: Whether they share the processes of the first ranks.
        limit_s: Seconds after which no round begins; 0: no limit.
    """

    kind: Literal["replay", "train"]
    methods: tuple[str, ...]
    backends: tuple[str, ...]
    ranks: int
    steps: int
    rounds: int
    model: Model | None = None
    byte_scale: float = 1.0
    factory: str = ""
    batch: int | None = None
    servers: int = 0
    colocated: bool = True
    limit_s: float = 0.0
    seed: int = 0

    @property
    def processes(self) -> int:
        """Ranks, and after them servers that are processes of their own."""
        return self.ranks + (0 if self.colocated else self.servers)

    @property
    def serving(self) -> range:
        """Return the processes that serve."""
        if self.colocated:
            return range(self.servers or self.ranks)
        return range(self.ranks, self.processes)


class MethodResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The steps of a method by a backend: times of the slowest rank in us, one by one.

    Attributes:
        alone_us: of a step without communication, as measured or given.
        predicted_us: the step that the measured costs of all-reduces predict.
        calls: of a step, by a program and by Gloo.
        buckets: bytes of the calls.
        spans: of the last step, on rank 0.
        equal: parameters after 20 steps are DDP's: bit for bit, within rounding or not at all;
            "" where nothing was trained, or what is sent is lossy.
        loss: of the first step's batches at the end, the mean over ranks; 0 where nothing was
            trained.
        trained_steps: that were made until then.
    """

    method: str
    backend: str
    steps_us: tuple[float, ...]
    exposed_us: float
    alone_us: float
    predicted_us: float
    calls: tuple[int, int]
    buckets: tuple[int, ...]
    c2c: float
    spans: tuple[Span, ...]
    model: Model
    equal: Literal["", "bitwise", "rounding", "no"] = ""
    loss: float = 0.0
    trained_steps: int = 0
