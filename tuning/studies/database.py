"""A study's storage in a database, which processes on many machines share."""

from __future__ import annotations

import json
from collections.abc import Iterator

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy.orm import Session


class Database(RDBStorage):
    """Optuna's storage, which adds a finished trial in seven statements.

    Optuna's own takes three for each parameter and attribute, 40 in all, so that storing an
    evaluation would take longer than simulating it.
    """

    def __init__(self, url: str) -> None:
        """Open the database at ``url``; what fails leaves no connection open."""
        try:
            super().__init__(url)
        except BaseException:
            if engine := vars(self).get("engine"):
                engine.dispose()
            raise

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        if template_trial is None or not template_trial.state.is_finished():
            return super()._get_prepared_new_trial(study_id, template_trial, session)
        trial = models.TrialModel(
            study_id=study_id,
            number=None,
            state=template_trial.state,
            datetime_start=template_trial.datetime_start,
            datetime_complete=template_trial.datetime_complete,
        )
        session.add(trial)
        session.flush()
        session.add_all(_rows(trial.trial_id, template_trial))
        trial.number = trial.count_past_trials(session)
        return trial


def _rows(trial_id: object, trial: FrozenTrial) -> Iterator[object]:
    if trial.value is not None:
        value, kind = models.TrialValueModel.value_to_stored_repr(trial.value)
        yield models.TrialValueModel(trial_id=trial_id, objective=0, value=value, value_type=kind)
    for name, param in trial.params.items():
        distribution = trial.distributions[name]
        yield models.TrialParamModel(
            trial_id=trial_id,
            param_name=name,
            param_value=distribution.to_internal_repr(param),
            distribution_json=distribution_to_json(distribution),
        )
    for key, attr in trial.user_attrs.items():
        yield models.TrialUserAttributeModel(
            trial_id=trial_id, key=key, value_json=json.dumps(attr)
        )
