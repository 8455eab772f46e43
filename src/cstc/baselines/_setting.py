"""What a system is fitted to: checked rows that teach, rows that stop and choose, prices, and units.

Everything is checked and encoded by the estimators of this library, so that a system sees the rows that CSTC sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..boosting import Boosting
from ..costs import ResolvedCosts
from ..estimators import CSTCClassifier, CSTCRanker, CSTCRegressor
from ..estimators._base import CSTCBase
from ..losses import Loss
from ..model import FittedTree, Schema, TreePool, TreeShape
from ..model.build import Score, build_tree
from ..rows import Rows, Units, part

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
    train, validation : Rows
        The rows that teach, and those that stop boosting and choose inside of a fit; targets in standard units.
    everything : Rows or None
        Both together, where the validation rows were held out of those given: once the number of rounds is known, an
        ensemble that is used as it is can be grown on all of them.
    costs : ResolvedCosts
    units : Units
        Of the target.
    boosting : Boosting
        How trees are boosted, from the best constant on.
    schema : Schema
    seed : int
    """

    face: Any
    train: Rows
    validation: Rows
    everything: Rows | None
    costs: ResolvedCosts
    units: Units
    boosting: Boosting
    schema: Schema
    seed: int

    @property
    def loss(self) -> Loss:
        return self.boosting.loss

    @property
    def constant(self) -> np.ndarray:
        """Margin of the constant prediction, in standard units."""
        return self.boosting.constant

    @property
    def constant_risk(self) -> float:
        """What it risks at the rows that teach, in standard units."""
        rows = self.train
        return self.loss.risk(np.tile(self.constant, (len(rows), 1)), rows.y, rows.weights)

    def weighted(self, pool: TreePool, weights: np.ndarray, intercept: float) -> FittedTree:
        """A tree of one node: ``intercept + sum_t weights[t] * h_t(x)`` in standard units."""
        return build_tree(
            TreeShape.full(1),
            [Score(pool, np.reshape(weights, (-1, 1)), np.array([float(intercept)]))],
            [None],
            constant=self.constant,
            costs=self.costs,
            link=self.loss.link,
            schema=self.schema,
            offset=self.units.offset,
            scale=self.units.scale,
        )


def set_up(
    face: CSTCBase,
    fraction: float,
    X,
    y,
    X_val,
    y_val,
    sample_weight,
    sample_weight_val,
    qid,
    qid_val,
    *,
    several_classes: bool = False,
) -> Setting:
    """Check all that was given; hold rows out (whole queries, stratified classes) where there is no validation data.

    `several_classes` says whether the system can tell more than two classes apart.
    """
    rows = face._check_rows(Rows(X, y, sample_weight, qid), reset=True)
    classes = getattr(face, "classes_", None)
    if classes is not None and len(classes) > 2 and not several_classes:
        raise ValueError(
            f"y holds {len(classes)} classes; the systems of cstc.baselines tell two classes apart, but for "
            "CostAwareTree and HierarchicalMixture, which take several"
        )
    names, loss = face._feature_names(), face._loss()
    costs = face._resolve_costs(face.costs)
    face.costs_ = costs
    seed = int(check_random_state(face.random_state).randint(np.iinfo(np.int32).max))
    validation = face._check_validation(Rows(X_val, y_val, sample_weight_val, qid_val))
    boosting = face._boosting(loss, costs, face._categorical_columns(names), seed)
    parts = part(rows, validation, loss, fraction, seed)
    return Setting(
        face=face,
        train=parts.train,
        validation=parts.validation,
        everything=parts.everything if parts.were_held_out else None,
        costs=costs,
        units=parts.units,
        boosting=boosting.starting_at(parts.everything),
        schema=face._schema(rows),
        seed=seed,
    )
