"""The boosted trees of the paper as columns of ``Phi``, and trees of classifiers that weigh them one by one.

What the single classifier, the lasso and Cronus share: one ensemble, grown blind to cost on the rows that teach, and
its columns at these rows and at those that choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..hard_tree import HardTree, Rows
from ..model import FittedTree
from ..objective import DenseDesign, NodeParameters, Penalty, TreeObjective
from ..refinement import drop_small_weights
from ..training import FLOOR, Sample
from ..tree import TreeShape
from ..weak_learners import WeakLearners, identity_weak_learners
from ._boosting import boost
from ._setting import Setting

__all__ = ["Columns", "check_weak_learners"]


@dataclass(frozen=True, eq=False)
class Columns:
    """One column for each tree, centred, in the units of the standardised target.

    Attributes
    ----------
    setting : Setting
    learners : WeakLearners
    offset : ndarray of shape (n_columns,)
        Means that were taken out of the columns.
    scale : float
        What the columns were divided by: plain inputs have units of their own, and the target's are taken out.
    train, validation : Rows
    """

    setting: Setting
    learners: WeakLearners
    offset: np.ndarray
    scale: float
    train: Rows
    validation: Rows

    @classmethod
    def grow(cls, setting: Setting, weak_learners: str) -> Columns:
        """One column for each boosted tree, or for each input as it is."""
        scale = 1.0
        if weak_learners == "identity":
            learners, scale = identity_weak_learners(setting.train.X.shape[1], 1), setting.y_scale
        else:
            # on the rows that teach only: the rows that choose must see columns that were not fitted to them
            pool = boost(setting, use_everything=False)
            none = np.zeros(pool.n_learners, dtype=int)
            learners = WeakLearners(pool, np.arange(pool.n_learners), none, none, setting.constant)
        pool, n = learners.pool, learners.n_columns
        offset = np.average(pool.transform(setting.train.X), axis=0, weights=setting.train.weights)
        evaluation = np.full(n, setting.costs.evaluation)

        def rows(part: Sample) -> Rows:
            phi = learners.transform(part.X, setting.costs)
            values = (phi.values - offset) / scale
            return Rows(
                values, phi.bits, part.y, part.weights, setting.loss, setting.costs.prices, evaluation, part.qid
            )

        return cls(setting, learners, offset, scale, rows(setting.train), rows(setting.validation))

    @cached_property
    def spread(self) -> np.ndarray:
        """Standard deviation of each column."""
        return np.sqrt(np.average(self.train.phi**2, axis=0, weights=self.train.weights))

    def in_standard_units(self, weight: float) -> float:
        """A cost weight for the standardised target."""
        return weight / self.setting.y_scale**2

    def objective(
        self, shape: TreeShape, cost_weight: float, kind: type[TreeObjective] = TreeObjective
    ) -> TreeObjective:
        """The loss of a tree of this shape; gates have slope 1 in the units of the target, as in the paper."""
        spread = self.spread[self.spread > 0]
        penalty = Penalty(
            learner_items=self.learners.column_items(self.setting.costs).astype(float),
            prices=self.setting.costs.prices,
            evaluation=self.train.evaluation,
            cost_weight=self.in_standard_units(cost_weight),
            l1_weight=0.0,
            floor=FLOOR / float(np.median(spread)) if len(spread) else FLOOR,
        )
        design = DenseDesign(self.train.phi)
        return kind(design, self.train.y, self.train.weights, self.setting.loss, shape, penalty, self.setting.y_scale)

    def exact(self, shape: TreeShape, parameters: NodeParameters, cost_weight: float) -> HardTree:
        """The tree under hard routing, with weights that hardly contribute set to zero where something costs."""
        if cost_weight:
            parameters = drop_small_weights(parameters, FLOOR / np.where(self.spread > 0, self.spread, 1.0))
        return HardTree.from_parameters(shape, parameters, 1)

    def judge(self, cost_weight: float) -> Callable[[HardTree], float]:
        """Risk + cost_weight * exact cost at the validation rows."""
        weight = self.in_standard_units(cost_weight)
        return lambda tree: tree.exact_loss(self.validation, weight)

    def to_model(self, tree: HardTree) -> FittedTree:
        setting = self.setting
        return tree.to_model(
            self.learners,
            offset=self.offset,
            scale=np.full(self.learners.n_columns, self.scale),
            y_offset=setting.y_offset,
            y_scale=setting.y_scale,
            constant=setting.in_units(setting.constant),
            costs=setting.costs,
            link=setting.link,
            schema=setting.schema,
        )


def check_weak_learners(weak_learners) -> None:
    if weak_learners not in ("boosted", "identity"):
        raise ValueError(f"weak_learners is {weak_learners!r}; it must be 'boosted' or 'identity'")
