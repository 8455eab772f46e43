"""One fit for each cost weight, what fits share, and what the rows that choose say of each.

Whatever a method keeps in `shared` is used again by all fits: `Experts` its experts, lazy experts and groups, `Paper`
and `Exact` the columns of ``Phi``.  A fit of `Paper` also starts from the solution of the next larger cost weight.
(From a smaller one it takes longer than from the top-down start: weights that have to leave again leave slowly.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from ..cluster import Workers, workers_of
from ..losses import stakes_of
from ..method import OutOfFold
from ..metrics import Quality
from ..progress import Progress
from ..rows import Rows
from ._checkpoint import Checkpoint
from ._evidence import Judges, Known, Point, judged_point

__all__ = ["Fits", "tell_of"]

NEAR = 8.0  # a solution for a cost weight up to so many times as large is a good start


def tell_of(progress: Progress, n_done: int, point: Point, quality_name: str, took: str) -> None:
    """A line for each model, for those who want one."""
    varied, value = next(iter(point.row.items()))
    left = "" if progress.n_models is None else f", at most {max(progress.n_models - n_done, 0)} left"
    shown = f"{value:.4g}" if isinstance(value, float) else repr(value)
    told = f"{varied} {shown}, mean cost {point.cost:.4g}, {quality_name} {point.quality:.4f}, {took}"
    progress.say(f"model {n_done}{left}: {told}")


@dataclass(eq=False)
class Fits:
    """Fits a model for a cost weight, or finds it in the checkpoint; what fits can share is shared."""

    estimator: Any
    train: Rows
    validation: Rows
    quality: Quality
    store: Checkpoint | None
    progress: Progress
    quality_name: str
    points: dict[float, Point] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    workers: Workers | None = None
    _unseen_judges: Judges | None = None

    @contextmanager
    def working(self, executor: Any, scratch: Any) -> Iterator[None]:
        """Within, large ensembles are grown by the workers of an executor, if there is one."""
        with workers_of(self.estimator._resolved_method(), executor, scratch) as self.workers:
            yield

    def __call__(self, weight: float) -> Point:
        if weight in self.points:
            return self.points[weight]
        started = time.perf_counter()
        self.progress.begin_model()
        model = clone(self.estimator).set_params(cost_weight=weight)
        found = None if self.store is None else self.store.restore(weight)
        if found is not None:
            model._restore(*found)
        else:
            given = {"shared": self.shared, "start": self._start(weight), "workers": self.workers}
            given |= {"progress": self.progress} if self.progress.shown else {}  # or its own, if the estimator has one
            model._fit_rows(self.train, Rows(None, None), **given)
            if self.store is not None:
                self.store.store(weight, model.model_, model._state())
        point = self.points[weight] = self._judge(model)
        self.progress.end_model(fitted=found is None)
        took = f"{time.perf_counter() - started:.1f} s" if found is None else "from the checkpoint"
        tell_of(self.progress, len(self.points), point, self.quality_name, took)
        return point

    def _start(self, weight: float) -> Any:
        """The solution of the next larger cost weight, if it is near and its model buys anything.

        Points come in the same order, with the same solutions, whether they are fitted or read from a checkpoint.
        """
        larger = [other for other in self.points if weight < other <= NEAR * weight]
        if not larger or self.points[min(larger)].is_free:
            return None
        return self.points[min(larger)].model._solution

    def _judge(self, model) -> Point:
        X, fitted = model._check_X(self.validation.X, reset=False), model.model_
        if self.points:  # what training did not see was said of the first model
            margins, costs = fitted.decide(X, qid=self.validation.qid)
        else:
            margins, costs = fitted.decision_and_cost(X, qid=self.validation.qid)
        weight = float(model.cost_weight)
        unseen = self.told_out_of_fold(model, model._out_of_fold)
        return judged_point(model, "cost_weight", weight, margins, costs, self.judges, unseen)

    @cached_property
    def judges(self) -> Judges:
        return Judges.of(self.validation, self.quality, self.estimator.random_state)

    def told_out_of_fold(self, model: Any, unseen: OutOfFold | None) -> Known | None:
        """What training rows say of a model that is cross-fitted; None where they have nothing to say.

        Where queries lie only partly among the rows that are answered, their order says little.
        """
        if unseen is None or not self.quality.from_margins:
            return None
        y, weights = np.asarray(self.train.y), self.train.weights
        weights = np.ones(len(y)) if weights is None else weights
        taught = np.flatnonzero(weights * model._class_weights(model._check_y(y, reset=False)))
        if self.train.qid is not None and len(unseen.rows) < len(taught):
            return None
        if self._unseen_judges is None:
            at = taught[unseen.rows]
            qid = None if self.train.qid is None else np.asarray(self.train.qid)[at]
            rows = Rows(None, y[at], None if self.train.weights is None else weights[at], qid)
            self._unseen_judges = Judges.of(rows, self.quality, self.estimator.random_state + 1)
        return self._unseen_judges(model, unseen.margins.astype(float))

    def risk(self) -> float:
        """Mean risk of the constant prediction on the training rows."""
        model = next(iter(self.points.values())).model
        y = model._check_y(self.train.y, reset=False)
        margins = np.tile(model.model_.constant, (len(y), 1))
        return stakes_of(model._loss(), model.model_.decisions).risk(margins, y, self.train.weights)
