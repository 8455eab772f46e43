"""The boosted trees of the paper as columns of ``Phi``, for systems that weigh them one by one.

What the single classifier, the lasso and Cronus share: one ensemble, grown blind to cost on the rows that teach, and
its columns at these rows and at those that choose.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import TreePool, TreeShape
from ..paper.features import Columns
from ..paper.hard_tree import HardTree
from ..paper.objective import NodeParameters
from ._boosting import boost
from ._setting import Setting

__all__ = ["check_weak_learners", "columns_of", "hard_tree", "judge"]


def columns_of(setting: Setting, weak_learners: str) -> Columns:
    """One column for each boosted tree, or for each input as it is."""
    if weak_learners == "identity":
        pool, scale = TreePool.identity(setting.train.X.shape[1]), setting.units.scale
    else:
        # on the rows that teach only: the rows that choose must see columns that were not fitted to them
        pool, scale = boost(setting, use_everything=False), 1.0
    return Columns.of(
        pool,
        setting.train,
        setting.validation,
        loss=setting.loss,
        costs=setting.costs,
        constant=setting.constant,
        units=setting.units,
        schema=setting.schema,
        scale=scale,
    )


def hard_tree(columns: Columns, shape: TreeShape, parameters: NodeParameters, cost_weight: float) -> HardTree:
    """The tree under hard routing, with weights that hardly contribute set to zero where something costs."""
    if cost_weight:
        parameters = columns.exact_support(parameters)
    return HardTree.from_parameters(shape, parameters, 1)


def judge(columns: Columns, cost_weight: float) -> Callable[[HardTree], float]:
    """Risk + cost_weight * exact cost at the validation rows."""
    weight = columns.units.standard_weight(cost_weight)
    return lambda tree: tree.exact_loss(columns.validation, weight)


def check_weak_learners(weak_learners) -> None:
    if weak_learners not in ("boosted", "identity"):
        raise ValueError(f"weak_learners is {weak_learners!r}; it must be 'boosted' or 'identity'")
