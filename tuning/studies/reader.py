"""Reading studies: the evaluations of every collective and size that a tune has stored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tuccl.errors import InputError
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tpe import silence_optuna
from tuccl.tuning.studies.storages import close_storage, open_to_read

if TYPE_CHECKING:
    from datetime import datetime

    from optuna import Study as OptunaStudy
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

_NAME = re.compile(r"([0-9a-f]{16})-([a-z-]+)-(\d{1,18})-[0-9a-f]{12}")
_FEWEST_POINTS = 20  # of which the best tenth is compared with the rest


@dataclass(frozen=True)
class Evaluation:
    """Samples in us of one point; none where it cannot run.

    ``run`` names the search and its seed, ``seconds`` counts from the study's first evaluation.
    """

    point: Point
    run: str
    repeats: int
    samples_us: tuple[float, ...]
    seconds: float

    @property
    def us(self) -> float:
        """The median in us; infinite where the point cannot run."""
        return median(self.samples_us) if self.samples_us else math.inf


@dataclass(frozen=True)
class StoredStudy:
    """The evaluations of one collective and size, in the order in which they were stored."""

    signature: str
    collective: str
    nbytes: int
    evaluations: tuple[Evaluation, ...]

    @property
    def points_us(self) -> dict[Point, float]:
        """The median in us of all samples of each point that ran."""
        samples: dict[Point, list[float]] = {}
        for evaluation in self.evaluations:
            samples.setdefault(evaluation.point, []).extend(evaluation.samples_us)
        return {point: median(us) for point, us in samples.items() if us}

    @property
    def best_so_far(self) -> tuple[tuple[int, float, float], ...]:
        """Evaluation (from 1), its time in s and its median in us, each faster than any before."""
        steps: list[tuple[int, float, float]] = []
        for number, evaluation in enumerate(self.evaluations, 1):
            if evaluation.us < (steps[-1][2] if steps else math.inf):
                steps.append((number, evaluation.seconds, evaluation.us))
        return tuple(steps)

    def best_by(self, dimension: str) -> dict[str, float]:
        """Return the least median in us by value of a dimension (``method``, ...), rising."""
        best: dict[str, float] = {}
        for point, us in self.points_us.items():
            value = str(parameters_of(point)[dimension])
            best[value] = min(us, best.get(value, math.inf))
        return dict(sorted(best.items(), key=lambda item: item[1]))


def read_studies(where: Path | str) -> tuple[StoredStudy, ...]:
    """Return the studies in a folder (`study_folder`) or an Optuna storage's URL, by size.

    Of several for one collective and size the newest counts: what times them had changed.
    Studies of other making are passed over.

    Raises:
        InputError: nothing is there, it is no storage, or an evaluation in it cannot be read.
        Unavailable: the URL needs a database driver that is not installed.
    """
    storage = open_to_read(str(where))
    try:
        return _newest_studies(storage)
    finally:
        close_storage(storage)


def _newest_studies(storage: BaseStorage) -> tuple[StoredStudy, ...]:
    """The newest study of each signature, collective and size."""
    import optuna

    newest: dict[tuple[str, str, int], tuple[datetime, StoredStudy]] = {}
    for name in optuna.get_all_study_names(storage):
        if (match := _NAME.fullmatch(name)) is None:
            continue
        trials = optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False)
        times = [trial.datetime_complete for trial in trials if trial.datetime_complete]
        if not times:
            continue
        key = match[1], match[2], int(match[3])
        evaluations = tuple(_evaluation(trial, min(times)) for trial in trials)
        study = StoredStudy(*key, evaluations)
        if key not in newest or newest[key][0] < max(times):
            newest[key] = max(times), study
    return tuple(newest[key][1] for key in sorted(newest))


def _evaluation(trial: FrozenTrial, start: datetime) -> Evaluation:
    attrs: Mapping[str, Any] = trial.user_attrs
    end = trial.datetime_complete or start
    try:
        return Evaluation(
            _point(str(attrs["point"])),
            str(attrs["run"]),
            int(attrs["repeats"]),
            tuple(float(us) for us in attrs["samples_us"]),
            (end - start).total_seconds(),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"study: evaluation {trial.number} cannot be read ({str(error)[:80]}); "
            "expected one that `tuccl tune` stored"
        ) from None


def _point(text: str) -> Point:
    """The point that a study's evaluation names."""
    choice, protocol, channels, threads, buffer_bytes = text.rsplit("/", 4)
    method, sketch = choice.split("/", 1)
    sketch, chunks = sketch.rsplit("/", 1)
    knobs = int(channels), int(threads), int(buffer_bytes)
    return Point(ScheduleChoice(sketch, method, int(chunks)), protocol, *knobs)


def importances(study: StoredStudy) -> dict[str, float]:
    """Return by dimension its share in what sets the best tenth of the points apart, largest first.

    The shares add up to 1; there are none where too few points ran, or all took as long.

    Notes:
        PED-ANOVA (Watanabe et al., IJCAI 2023) as Optuna has it. It looks at the points that the
        search tried, so a dimension that the search settled early looks less important.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    times = study.points_us
    if len(times) < _FEWEST_POINTS or min(times.values()) == max(times.values()):
        return {}
    optuna_study = _optuna_study(times)
    evaluator = PedAnovaImportanceEvaluator()
    return dict(get_param_importances(optuna_study, evaluator=evaluator))


def _optuna_study(times: Mapping[Point, float]) -> OptunaStudy:
    """A study in memory with one trial for each point."""
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import create_trial

    silence_optuna()
    rows = [(parameters_of(point), us) for point, us in times.items()]
    distributions: dict[str, Any] = {}
    for name in rows[0][0]:
        values = sorted({params[name] for params, _ in rows}, key=str)
        if len(values) > 1:
            distributions[name] = CategoricalDistribution(values)
    study = optuna.create_study()
    for params, us in rows:
        chosen = {name: params[name] for name in distributions}
        study.add_trial(create_trial(params=chosen, distributions=distributions, value=us))
    return study


def parameters_of(point: Point) -> dict[str, str | int]:
    """Return the value of each dimension at ``point``."""
    choice = point.choice
    return {
        "method": choice.method,
        "sketch": choice.sketch,
        "chunking": choice.chunks_per_rank,
        "protocol": point.protocol,
        "channels": point.channels,
        "threads": point.threads,
        "buffer": point.buffer_bytes,
    }
