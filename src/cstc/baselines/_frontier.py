"""The models of one system from cheap to expensive, judged as `cstc.Frontier` judges ours."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from ..boosting import work_of
from ..estimators._base import watched
from ..frontier import FrontierTable
from ..frontier._choice import Choice
from ..frontier._evidence import Evidence, Judges, Point, judged_point, not_dominated
from ..frontier._fits import tell_of
from ..frontier._grid import search
from ..metrics import Quality, quality_of
from ..parallel import apart
from ..progress import Progress
from ..rows import Rows

__all__ = ["SystemFrontier", "frontier_of"]


class SystemFrontier(Choice):
    """Models of one system, cheap to expensive, no dominated ones (by validation data).

    Attributes
    ----------
    models_ : list of fitted systems
    table_ : FrontierTable
        For each of `models_`: the varied parameter; mean_cost, p95_cost and max_cost of the validation rows (counting
        "branch"); quality, and the same as validation_quality; nodes; items in use; standard errors with ``_error``.
    tried_, tried_models_
        The same for all models, those that were beaten too.
    quality_name_ : str
    quality : callable, str or None
        As it was given.
    """

    def __init__(self, points: list[Point], quality_name: str, judges: Rows, quality: Any = None):
        self.quality = quality
        self._judges = judges
        points = sorted(points, key=lambda point: (point.cost, -point.quality))
        chosen = not_dominated(points)
        self._evidence = Evidence.of(chosen)
        self.models_ = [point.model for point in chosen]
        self.table_ = FrontierTable([point.row for point in chosen], quality_name)
        self.tried_ = FrontierTable([point.row for point in points], quality_name)
        self.tried_models_ = [point.model for point in points]
        self.quality_name_ = quality_name

    def _judge(self, model: Any) -> tuple[np.ndarray, float]:
        rows = self._judges
        return model.predict_cost(rows.X, qid=rows.qid), quality_of(self.quality, model._face)[1](model, rows, None)

    def __repr__(self) -> str:
        return self._summary()

    def _repr_html_(self) -> str:
        return self.table_._repr_html_()


@dataclass(eq=False)
class _Models:
    """Fits a model for a value of the varied parameter, once; what all share is at hand."""

    system: Any
    setting: Any
    shared: Any
    validation: Rows
    quality: Quality
    quality_name: str
    progress: Progress
    points: dict[Any, Point] = field(default_factory=dict)

    def __call__(self, weight: Any) -> Point:
        if weight not in self.points:
            started = time.perf_counter()
            self.progress.begin_model()
            if self.shared is None:  # each model is an ensemble of its own
                self.progress.begin("boosting", work_of_one(self.setting))
            model = self.system._at(self.setting, self.shared, weight)
            self.points[weight] = self._judge(model, weight)
            self.progress.end_model()
            took = f"{time.perf_counter() - started:.1f} s"
            tell_of(self.progress, len(self.points), self.points[weight], self.quality_name, took)
        return self.points[weight]

    def _judge(self, model: Any, value: Any) -> Point:
        rows = self.validation
        margins, costs = model.decision_function(rows.X, qid=rows.qid), model.predict_cost(rows.X, qid=rows.qid)
        return judged_point(model, self.system._varied, value, margins.reshape(len(margins), -1), costs, self._judges)

    @cached_property
    def _judges(self) -> Judges:
        return Judges.of(self.validation, self.quality, self.setting.boosting.random_state)

    def risk(self) -> float:
        """Mean risk of the constant prediction on the training rows, in the units of the target."""
        return self.setting.units.risk(self.setting.constant_risk)


def work_of_one(setting: Any) -> float:
    """What an ensemble takes, for those who watch: it may be grown once more on all rows."""
    n, n_columns = setting.train.X.shape
    return (1 if setting.everything is None else 2) * work_of(n, n_columns, setting.boosting.n_rounds)


def frontier_of(
    system: Any, setting: Any, validation: Rows, values: Any, n_points: Any, quality: Any, verbose: int
) -> SystemFrontier:
    """Fit the models of a system and keep those that no other one beats."""
    if not isinstance(n_points, Integral) or n_points < 2:
        raise ValueError(f"n_points is {n_points!r}; it must be a whole number, 2 or more")
    name, judged = quality_of(quality, setting.face)
    n_most = int(n_points) if values is None else len(set(values))
    speaker = type(system).__name__
    progress = Progress(f"cstc {speaker}", verbose, speaker=speaker, n_models=n_most)
    setting = replace(setting, boosting=replace(setting.boosting, progress=progress))
    with watched(progress):
        progress.begin("what all models share", work_of_one(setting), once=True)
        shared = apart(lambda: system._share(setting), progress.draw)
        models = _Models(system, setting, shared, validation, judged, name, progress)
        if values is None:
            values = system._values(setting, shared, n_most)
            progress.n_models = n_most if values is None else len(values)
        if values is None:
            search(models, n_most)
        else:
            for value in values:
                models(value)
    return SystemFrontier(list(models.points.values()), name, validation, quality)
