"""What a system is fitted to: checked rows that teach, rows that stop and choose, prices, and units.

Everything is checked and encoded by the estimators of this library, so that a system sees the rows that CSTC sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..costs import ResolvedCosts, as_cost_model
from ..estimators import CSTCClassifier, CSTCRanker, CSTCRegressor
from ..estimators._base import CSTCBase
from ..model import FittedTree, Schema
from ..pool import TreePool
from ..training import Sample
from ..tree import TreeShape

__all__ = ["TASKS", "Setting", "set_up"]

#: The estimator that checks the rows of each task, and that the fitted model predicts like.
TASKS: dict[str, type[CSTCBase]] = {
    "regression": CSTCRegressor,
    "classification": CSTCClassifier,
    "ranking": CSTCRanker,
}


@dataclass(frozen=True, eq=False)
class Setting:
    """Rows, prices and units.

    Attributes
    ----------
    face : CSTCRegressor, CSTCClassifier or CSTCRanker
        Knows the columns, the classes and the loss.
    train, validation : Sample
        The rows that teach, and those that stop boosting and choose inside of a fit; targets of squared risk in
        standard deviations from their mean.
    everything : Sample or None
        Both together, where the validation rows were held out of those given: once the number of rounds is known, an
        ensemble that is used as it is can be grown on all of them.
    costs : ResolvedCosts
    y_offset, y_scale : float
        The units of the target.
    constant : ndarray of shape (1,)
        Margin of the constant prediction, in standard units.
    schema : Schema
    seed : int
    """

    face: Any
    train: Sample
    validation: Sample
    everything: Sample | None
    costs: ResolvedCosts
    y_offset: float
    y_scale: float
    constant: np.ndarray
    schema: Schema
    seed: int

    @property
    def loss(self) -> Any:
        return self.face._loss()

    @property
    def link(self) -> str:
        return {"squared": "identity"}.get(self.loss.name, self.loss.name)

    def in_units(self, margins: np.ndarray) -> np.ndarray:
        """Standard margins in the units of the target."""
        return margins * self.y_scale + self.y_offset

    def weighted(self, pool: TreePool, weights: np.ndarray, intercept: float) -> FittedTree:
        """A tree of one node: ``intercept + sum_t weights[t] * h_t(x)`` in standard units."""
        n = pool.n_learners
        return FittedTree(
            pool=pool,
            shape=TreeShape.full(1),
            predict_weights=np.reshape(weights * self.y_scale, (n, 1, 1)),
            predict_intercepts=self.in_units(np.reshape(float(intercept), (1, 1))),
            route_weights=np.zeros((n, 1)),
            thresholds=np.zeros(1),
            constant=self.in_units(self.constant),
            costs=self.costs,
            link=self.link,
            schema=self.schema,
        ).compressed()


def set_up(face: CSTCBase, X, y, X_val, y_val, sample_weight, sample_weight_val, qid, qid_val) -> Setting:
    """Check all that was given; hold rows out (whole queries, stratified classes) where there is no validation data."""
    sample = Sample(*face._check_sample(X, y, sample_weight, qid, reset=True))
    classes = getattr(face, "classes_", None)
    if classes is not None and len(classes) > 2:
        raise ValueError(f"y holds {len(classes)} classes; the systems of cstc.baselines tell two classes apart")
    names = face._feature_names()
    costs = as_cost_model(face.costs, len(names)).resolve(names)
    face.costs_ = costs
    seed = int(check_random_state(face.random_state).randint(np.iinfo(np.int32).max))
    validation = face._check_validation(X_val, y_val, sample_weight_val, qid_val)
    y_offset, y_scale = 0.0, 1.0
    if face._loss().name == "squared":
        y_offset = float(np.average(sample.y, weights=sample.weights))
        y_scale = float(np.sqrt(np.average((sample.y - y_offset) ** 2, weights=sample.weights))) or 1.0
        sample = replace(sample, y=(sample.y - y_offset) / y_scale)
        if validation is not None:
            validation = replace(validation, y=(validation.y - y_offset) / y_scale)
    train, everything = sample, None
    if validation is None:
        held_out = np.zeros(len(sample.y), dtype=bool)
        held_out[face._hold_out(sample, seed)] = True
        train, validation = sample.take(np.flatnonzero(~held_out)), sample.take(np.flatnonzero(held_out))
        everything = sample
    return Setting(
        face=face,
        train=train,
        validation=validation,
        everything=everything,
        costs=costs,
        y_offset=y_offset,
        y_scale=y_scale,
        constant=face._loss().constant(sample.y, sample.weights),
        schema=Schema(names, dict(face._categories), np.isnan(sample.X).any(axis=0), classes),
        seed=seed,
    )
