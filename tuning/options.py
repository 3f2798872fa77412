"""Options of a tune."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.runtime import NCCL_VERSION, LookupTable
from tuccl.runtime.table import PREFERENCES
from tuccl.runtime.table.programs import program_dialect
from tuccl.sketches import Sketch
from tuccl.synth import find_method
from tuccl.synth.lowering.limits import limits_of
from tuccl.tuning.rl.policy import Policy
from tuccl.tuning.rl.search import RlSearch
from tuccl.tuning.rl.state import TrainingJob
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.mraco import MracoSearch
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.tpe_searches import TpeSearch

SEARCHES: dict[str, type[Search]] = {
    search.name: search for search in (DescentSearch, MracoSearch, TpeSearch, RlSearch)
}
_ADDRESS = r"[a-z]+://[^/\s]+:\d+"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of `tune`: its search, its limits, and the runtime that loads the programs.

    Args:
        search: One of `SEARCHES`.
        budget: Evaluations at full effort, per collective and size.
        seed: Equal seeds give equal tables.
        root: The root of the collectives that have one.
        resume: Go on with an unfinished study, to the end that it would have had.
        dialect: Of the program files: executor, rccl or fork; mscclpp: they run as its plans;
            nccl: none, NCCL's own algorithms, protocols and channels for a tuner plugin.
        storage: URL of an Optuna storage; None: a journal next to the table.
        nccl_version: The NCCL whose own choice has to be beaten.
        default_limit: Whether ``seconds`` is nobody's choice: what it cut then counts as finished
            in a tune that is resumed.
        seconds: Time limit of all searches together; what is left of it is shared by the
            sizes that are left, as their budgets. The final rounds come on top.
        prefer: How an entry's candidates are ordered: speed or sms
            (`tuccl.runtime.table_preferring`).
        workers: Processes that search tasks at the same time; more than one only where times are
            simulated, since real runs would disturb each other.
        scheduler: Address of a Dask scheduler whose workers search tasks instead.
        evaluation_limit: Seconds after which a worker's evaluation is ended and counts as hung.
        start: A table whose points searches begin with.
        part: Hosts of the part of a large cluster that is searched first: the whole cluster tries
            what is best there, of n > 128 GPUs with 128/n of the budget. None: four of a simulated
            cluster of more than 64 GPUs; 0: the whole cluster is searched alone, and each size by
            itself; else, of more than 32 GPUs, every eighth nominates what is tried between.
        any_order: Also programs whose ranks add in different orders, so that results may differ
            in the last bit.
        methods: Names of `tuccl.synth.find_method` that make the programs; none: all but
            solvers. Beside a solver's, `greedy` chooses the sketches that it runs on.
        sketches: The sketches to make programs on; none: those that the topology suggests.
        policy: A trained policy: ``rl`` follows it, other searches begin with its points.
        job: The training job that makes the calls; with it the result says where nothing lossless
            is left (`tuccl.tuning.rl.saturation`).
    """

    search: str = "descent"
    budget: int = 100
    seed: int = 0
    root: int = 0
    resume: bool = False
    dialect: str = "executor"
    storage: str | None = None
    nccl_version: str = NCCL_VERSION
    seconds: float | None = None
    default_limit: bool = False
    workers: int = 1
    scheduler: str | None = None
    evaluation_limit: float = 600.0
    any_order: bool = False
    prefer: str = "speed"
    methods: tuple[str, ...] = ()
    sketches: tuple[Sketch, ...] = ()
    policy: Policy | None = None
    job: TrainingJob | None = None
    start: LookupTable | None = None
    part: int | None = None

    def check(self) -> None:
        """Refuse options that cannot be.

        Raises:
            InputError: an unknown search, method or dialect, two sketches of one name, a budget
                below 1, or no time at all.
        """
        if self.search not in SEARCHES:
            raise InputError(f"search {self.search[:30]!r}: expected one of {', '.join(SEARCHES)}")
        for method in self.methods:
            find_method(method)
        of = [sketch.name for sketch in self.sketches]
        if twice := [name for name in of if of.count(name) > 1]:
            raise InputError(f"duplicate sketch {twice[0][:60]!r}: give each its own name")
        if self.policy is not None and self.policy.of_nccl != (self.dialect == "nccl"):
            raise InputError(
                "policy: trained on NCCL's own configurations; use it with --dialect nccl"
                if self.policy.of_nccl
                else "policy: trained on programs; for --dialect nccl train one with that option"
            )
        if self.budget < 1:
            raise InputError(f"budget {self.budget}: expected at least 1 evaluation")
        if self.prefer not in PREFERENCES:
            names = " or ".join(PREFERENCES)
            raise InputError(f"preference {self.prefer[:20]!r}: expected {names}")
        if self.seconds is not None and self.seconds <= 0:
            raise InputError(f"time limit {self.seconds:g}: expected more than 0 seconds")
        if self.workers < 1:
            raise InputError(f"workers {self.workers}: expected at least 1")
        if self.scheduler is not None and not re.fullmatch(_ADDRESS, self.scheduler):
            raise InputError(
                f"--dask {self.scheduler[:80]}: expected an address like tcp://host:8786"
            )
        if self.scheduler is not None and self.workers > 1:
            raise InputError("--workers: the scheduler has its own; leave one of the two out")
        if self.part is not None and self.part < 0:
            raise InputError(f"part {self.part}: expected hosts to search first, or 0")
        if self.part and self.dialect == "nccl":
            raise InputError("part: --dialect nccl searches no programs; leave it out")
        if self.evaluation_limit <= 0:
            raise InputError(
                f"evaluation limit {self.evaluation_limit:g}: expected more than 0 seconds"
            )
        if self.dialect != "nccl":
            limits_of(program_dialect(self.dialect))

    def deadline(self, start: float) -> float:
        """Return when searches end, on the clock that ``start`` is from."""
        return math.inf if self.seconds is None else start + self.seconds
